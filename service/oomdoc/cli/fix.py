"""``oomdoc fix``: change a person's own file, in its own framework's keys."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from oomdoc.cli.common import Format, Language, json_lines, parse_set, print_json, read_text, show
from oomdoc.evidence import Source
from oomkb.errors import InputError, OomdocError

EPILOG: Final = "Exit status: 0 done; 1 a change has no place in this file; 2 none has, or bad input."


def fix(
    file: Annotated[Path | None, typer.Argument(help="The config or launch script to change.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A job field, field=value; repeatable.")] = None,
    log: Annotated[Path | None, typer.Option(help="The failure's log: take the changes from a plan.")] = None,
    plan: Annotated[int, typer.Option(min=1, max=9, help="Which plan of the diagnosis.")] = 1,
    framework: Annotated[
        str | None, typer.Option(help="The framework whose keys to write; default: recognised from the file.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Change the file (a .bak copy is kept).")] = False,
    batch: Annotated[
        Path | None, typer.Option(help="JSONL, one {id, filename, text, set} per line; prints one result per line.")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="Of a batch: always JSON lines.")] = Format.json,
    lang: Annotated[Language, typer.Option(help="Language of the answer.")] = Language.auto,
) -> None:
    """Write job fields, or a plan, into your own file; print the unified diff.

    Examples:

        oomdoc fix train.yaml --set seq_len=2048 --set micro_batch=1

        oomdoc fix train.yaml --log train.log --plan 2 --write
    """
    if batch is not None:
        _batch(batch)
        return
    if file is None:
        raise InputError(
            "no file is named", where="oomdoc fix", hint="for example oomdoc fix train.yaml --set seq_len=2048"
        )
    text = read_text(file)
    changes = _checked(parse_set(set_ or []))
    if log is not None:
        changes = {**_plan_changes(file, text, log, plan, lang), **changes}
    if not changes:
        raise InputError("nothing to change", where="oomdoc fix", hint="give --set field=value or --log LOG")
    _apply(file, text, changes, framework, write=write, language="zh" if lang is Language.zh else "en")


def _checked(changes: dict[str, Any]) -> dict[str, Any]:
    """The changes as every interface reads job fields; a key that is to be removed (``null``) keeps its place.

    :raises JobError: for a name that no job has, with the nearest one, or a value that no run can have.
    """
    from oomdoc.stated import stated_fields

    return {name: None for name, value in changes.items() if value is None} | stated_fields(changes)


def _apply(
    file: Path, text: str, changes: dict[str, Any], framework: str | None, *, write: bool, language: str
) -> None:
    from oomdoc.intake.configs import patch
    from oomdoc.report.estimates import not_written
    from oomdoc.report.words import word

    patched = patch(text, filename=file.name, framework=framework, changes=changes)
    reasons = [not_written(field, why, patched.framework, language) for field, why in patched.unplaced.items()]
    if patched.error:
        for reason in reasons:
            sys.stderr.write(reason + "\n")
        raise InputError(word("fix.nothing-written", language), where=str(file))
    show(patched.diff or "nothing changes\n")
    if patched.framework == "unknown":
        sys.stderr.write(word("fix.by-name", language) + "\n")
    if write and patched.text != text:
        shutil.copy2(file, file.with_name(file.name + ".bak"))
        file.write_text(patched.text, encoding="utf-8", newline="")
        sys.stderr.write(f"written {file}; the old one is {file.name}.bak\n")
    for reason in reasons:
        sys.stderr.write(reason + "\n")
    if patched.unplaced:
        raise typer.Exit(1)


def _plan_changes(file: Path, text: str, log: Path, number: int, lang: Language) -> dict[str, Any]:
    from oomdoc.intake.configs.companions import companion_files
    from oomdoc.intake.stream import load_source
    from oomdoc.library import diagnose

    report = diagnose([load_source(log), Source(file.name, text), *companion_files(file, text)], language=lang)
    plans = report.diagnosis.plans
    if number > len(plans):
        raise InputError(
            f"the diagnosis has {len(plans)} plans, not {number}",
            where="--plan",
            hint=f"see oomdoc diagnose {log} --config {file}",
        )
    from oomdoc.diagnosis.planning.patching import fields_to_write

    return fields_to_write(plans[number - 1], report.diagnosis.evidence)


def _batch(path: Path) -> None:
    from oomdoc.intake.configs import patch_batch_row

    for number, row in json_lines(path):
        text = str(row.get("text", ""))
        given = {**row, "text": text, "filename": row.get("filename") or f"{path.name}:{number}"}
        try:
            out = {"unplaced": {}, **patch_batch_row(given)}
        except OomdocError as error:
            out = {"id": row.get("id"), "text": text, "diff": "", "error": str(error)}
        print_json(out, line=True)
