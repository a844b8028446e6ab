"""``oomdoc check``: for CI and launch scripts."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from oomdoc.cli.common import Language, parse_set, print_json, read_named, read_text, show
from oomkb.errors import InputError

DOES_NOT_FIT = 3


class CheckFormat(StrEnum):
    """How findings are printed."""

    text = "text"
    json = "json"
    sarif = "sarif"


EPILOG: Final = "Exit status: 0 nothing wrong; 1 warnings with --strict; 3 does not fit; 2 bad input."


def check(
    files: Annotated[list[Path], typer.Argument(help="Configs, launch scripts or job documents.")],
    gpu: Annotated[str | None, typer.Option(help="The GPU to check for.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="How many of them per machine.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A job field, field=value; repeatable.")] = None,
    requirements: Annotated[Path | None, typer.Option(help="requirements.txt, for known regressions.")] = None,
    current_env: Annotated[bool, typer.Option("--current-env", help="Use this Python environment's versions.")] = False,
    strict: Annotated[bool, typer.Option(help="Warnings count, too.")] = False,
    format_: Annotated[CheckFormat, typer.Option("--format", help="How to print.")] = CheckFormat.text,
    lang: Annotated[Language, typer.Option(help="Language of the findings.")] = Language.auto,
) -> None:
    """Say before a launch whether it fits, which settings have no effect, and which versions regressed.

    Examples:

        oomdoc check train.yaml --gpu A100-80GB --gpus 8

        oomdoc check configs/*.yaml --gpu H100 --format sarif > oomdoc.sarif
    """
    from oomdoc import checking

    if not files:
        raise InputError(
            "no file is named", where="oomdoc check", hint="for example oomdoc check train.yaml --gpu A100"
        )
    changes: dict[str, Any] = parse_set(set_ or [])
    changes |= {name: value for name, value in (("gpu", gpu), ("gpus", gpus)) if value is not None}
    versions = _versions(requirements, current_env=current_env)
    checked = []
    for file in files:
        text, _, others = read_named(file)
        checked.append(checking.check_text(text, str(file), changes, versions=versions, others=others))
    language = "en" if lang is Language.auto else lang.value
    if format_ is CheckFormat.text:
        show(checking.findings_text(checked, language))
    else:
        make = checking.findings_sarif if format_ is CheckFormat.sarif else checking.findings_document
        print_json(make(checked, language))
    levels = {finding.level for one in checked for finding in one.findings}
    if "error" in levels:
        raise typer.Exit(DOES_NOT_FIT)
    if strict and "warning" in levels:
        raise typer.Exit(1)


def _versions(requirements: Path | None, *, current_env: bool) -> dict[str, str]:
    from oomdoc.intake.requirements import installed_versions, parse_requirements

    if current_env:
        return dict(installed_versions())
    return dict(parse_requirements(read_text(requirements))) if requirements else {}
