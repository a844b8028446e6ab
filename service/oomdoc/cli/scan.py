"""``oomdoc scan``: known memory regressions among installed versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from oomdoc.cli.common import Format, Language, print_json, read_text, show
from oomkb.errors import InputError

EPILOG: Final = "Exit status: 0 nothing known; 1 a known regression is installed; 2 bad input."


def scan(
    requirements: Annotated[Path | None, typer.Argument(help="requirements.txt, pip freeze; - is stdin.")] = None,
    current_env: Annotated[bool, typer.Option("--current-env", help="Scan this Python environment.")] = False,
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.text,
    lang: Annotated[Language, typer.Option(help="Language of the answer.")] = Language.auto,
) -> None:
    """List known memory regressions in installed versions, with the versions that fix them.

    Versions that a reporter had, without a known range, are listed apart and do not change the exit status.

    Examples:

        oomdoc scan requirements.txt

        pip freeze | oomdoc scan -
    """
    from oomdoc.diagnosis.regressions import scan as scan_versions
    from oomdoc.diagnosis.regressions import scan_seen
    from oomdoc.intake.requirements import installed_versions, parse_requirements

    if current_env:
        versions = installed_versions()
    elif requirements is not None:
        versions = parse_requirements(read_text(requirements))
    else:
        raise InputError("nothing to scan", where="oomdoc scan", hint="name a requirements file, - or --current-env")
    language = "en" if lang is Language.auto else lang.value
    found, seen = scan_versions(versions), scan_seen(versions)
    if format_ is Format.json:
        print_json(
            {
                "schema": "oomdoc.scan/1",
                "scanned": len(versions),
                "advisories": [a.document(language) for a in found],
                "seen": [a.document(language) for a in seen],
            }
        )
    else:
        for advisory in (*found, *seen):
            show(advisory.text(language))
        show(f"{len(versions)} packages, {len(found)} known memory regressions, {len(seen)} seen by a reporter only")
    if found:
        raise typer.Exit(1)
