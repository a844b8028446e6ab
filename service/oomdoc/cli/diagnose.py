"""``oomdoc diagnose``: read a failure, say why, say what would fit."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from oomdoc.cli.common import (
    Format,
    Language,
    coloured,
    json_lines,
    parse_set,
    print_json,
    progress,
    read_text,
    show,
    terminal_width,
)
from oomdoc.evidence import Source
from oomkb.errors import InputError, JobError, OomdocError

if TYPE_CHECKING:
    from oomdoc.report.report import Report

_LONG_BYTES: Final = 16 << 20
"""A log beyond this is read with a bar that shows how far."""
_MAX_NAME_BYTES: Final = 255
"""Bytes of a file's name on the usual file systems (``NAME_MAX``)."""
_WORDS_OF_A_FILE: Final = 4
"""Words of an argument that ends like a file's name up to which it is taken for one."""


EPILOG: Final = (
    "Exit status: 0 a failure was diagnosed, of memory or not; 1 nothing failed (a question, a plan, a "
    "healthy log); 2 bad input or a wrong call."
)


def diagnose(
    files: Annotated[
        list[str] | None, typer.Argument(help="Logs, configs, notes, or a question in quotes; - is standard input.")
    ] = None,
    config: Annotated[list[Path] | None, typer.Option(help="A config file or launch script; repeatable.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A job field, field=value; repeatable.")] = None,
    batch: Annotated[
        Path | None, typer.Option(help="JSONL, one {id, text} per line; prints one result per line.")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.text,
    lang: Annotated[Language, typer.Option(help="Language of the answer.")] = Language.auto,
    full: Annotated[bool, typer.Option("--full", help="Print the whole report, not only the first screen.")] = False,
    plans: Annotated[bool, typer.Option(help="Search for plans that fit.")] = True,
    explain: Annotated[
        bool, typer.Option("--explain", help="List the evidence for and against the first causes.")
    ] = False,
    chart: Annotated[Path | None, typer.Option(help="Write a stacked chart of the memory here (.svg or .png).")] = None,
    language_model: Annotated[
        bool, typer.Option(help="Let the language model of OOMDOC_LLM_URL read it too, where that is set.")
    ] = True,
) -> None:
    """Say why a job ran out of memory, and what would fit.

    Examples:

        oomdoc diagnose log.txt --config train.yaml

        cat train.log | oomdoc diagnose - --set gpu=V100-16GB --set gpus=8

        oomdoc diagnose --batch reports.jsonl --format json

        oomdoc diagnose log.txt --explain

        oomdoc diagnose "Will Qwen3-8B QLoRA fit on one RTX 4090?"
    """
    options = parse_set(set_ or [])
    if batch is not None:
        _batch(batch, options, lang, plans=plans, language_model=language_model)
        return
    sources = _sources(files or ([] if config else ["-"]), config or [])
    from oomdoc.library import diagnose as run

    report = run(sources, options=options, language=lang, plans=plans, language_model=language_model)
    if chart is not None:
        _chart(report, chart)
    if format_ is Format.json:
        show(report.json())
    elif format_ is Format.markdown:
        show(report.markdown())
    else:
        show(report.text(width=terminal_width(), colour=coloured(), full=full))
        if explain:
            from oomdoc.report.command_texts import explanation_text

            show(explanation_text(report.document(), report.language, width=terminal_width(), colour=coloured()))
    if report.diagnosis.verdict == "no-failure":
        raise typer.Exit(1)


def _chart(report: Report, path: Path) -> None:
    document = report.document()["estimate"]
    if document is None:
        raise InputError(
            "nothing to draw: the memory could not be estimated", where="--chart", hint="add --set model=..."
        )
    from oomdoc.report.chart import write_chart

    write_chart(document, path)


def _sources(files: list[str], configs: list[Path]) -> list[Source]:
    if files == ["-"] and sys.stdin.isatty():
        sys.stderr.write("Paste the log, config or question, then press Ctrl-D.\n")
    from oomdoc.intake.configs.companions import companion_files
    from oomdoc.intake.configs.segments import form_of

    found = [Source("input", name) if _is_question(name) else _log(Path(name)) for name in files]
    own = [Source(str(path), read_text(path)) for path in dict.fromkeys(configs)]
    named = [s for s in (*found, *own) if form_of(s.name) is not None and s.name != "input"]
    more = [companion for source in named for companion in companion_files(Path(source.name), source.text)]
    known = {Path(source.name).resolve() for source in (*found, *own)}
    return found + own + [s for s in {s.name: s for s in more}.values() if Path(s.name).resolve() not in known]


def _is_question(name: str) -> bool:
    """Whether an argument is what somebody asks, and no (perhaps mistyped) name of a file."""
    if not re.search(r"\s|[\u4e00-\u9fff]", name):
        return False
    if re.search(r"\.[A-Za-z]\w{0,5}$", name) and len(name.split()) <= _WORDS_OF_A_FILE:
        return False
    return len(os.fsencode(name)) > _MAX_NAME_BYTES or not Path(name).exists()


def _log(path: Path) -> Source:
    """A log of any size: a large one is condensed to its telling lines in bounded memory."""
    if str(path) == "-":
        return Source("input", read_text(path, limit_bytes=256 << 20))
    from oomdoc.intake.stream import load_source

    if not (sys.stderr.isatty() and path.is_file() and path.stat().st_size > _LONG_BYTES):
        return load_source(path)
    with progress() as bar:
        task = bar.add_task(f"reading {path.name}", total=None)
        return load_source(path, progress=lambda done, total: bar.update(task, completed=done, total=total))


def _batch(path: Path, options: Mapping[str, Any], lang: Language, *, plans: bool, language_model: bool) -> None:
    from oomdoc.cli.rows import answered

    work = partial(_answer, path, options, lang, plans, language_model)
    with progress() as bar:
        task = bar.add_task("diagnosing", total=None)
        for document in answered(work, json_lines(path), streamed=str(path) == "-"):
            print_json(document, line=True)
            bar.advance(task)


def _answer(
    path: Path,
    options: Mapping[str, Any],
    lang: Language,
    plans: bool,
    language_model: bool,
    numbered: tuple[int, Mapping[str, Any]],
) -> dict[str, Any]:
    """The document of one row of a batch: its report, or why there is none."""
    from oomdoc.library import diagnose as run
    from oomdoc.report.document import SCHEMA
    from oomdoc.report.estimates import refused_document

    number, row = numbered
    identifier, text = row.get("id"), row.get("text")
    try:
        if not isinstance(text, str):
            raise InputError("no text", where=f"{path}:{number}", hint='each line is {"id": ..., "text": "..."}')
        stated = {**options, **_stated(row)}
        report = run(text, options=stated, language=lang, plans=plans, language_model=language_model)
        return report.document(identifier=identifier)
    except OomdocError as error:
        return refused_document(SCHEMA, identifier, error)


def _stated(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """:raises JobError: where ``set`` is no mapping of fields."""
    stated = row.get("set") or {}
    if not isinstance(stated, Mapping):
        raise JobError("not a mapping of fields", where="set", hint='for example {"gpus": 8}')
    return stated
