"""``oomdoc estimate``: price a job document."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from oomdoc.cli.common import (
    Format,
    Language,
    coloured,
    json_lines,
    load_document,
    parse_set,
    print_json,
    show,
    terminal_width,
)
from oomkb.errors import JobError

__all__ = ["estimate", "register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Exit status: 0 priced; 2 an impossible job or a wrong call.")(estimate)


def estimate(
    job: Annotated[Path | None, typer.Argument(help="A job document, YAML or JSON; - is standard input.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A job field, field=value; repeatable.")] = None,
    batch: Annotated[Path | None, typer.Option(help="JSONL with id and job a line; one result a line.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.text,
    lang: Annotated[Language, typer.Option(help="Language of the answer.")] = Language.auto,
    chart: Annotated[Path | None, typer.Option(help="Write a stacked chart here (.svg or .png).")] = None,
    allocator: Annotated[
        bool, typer.Option("--allocator", help="Replay PyTorch's caching allocator; writes a snapshot and a picture.")
    ] = False,
) -> None:
    """Say what each GPU holds, phase by phase and term by term.

    Examples:

        oomdoc estimate job.yaml --chart memory.svg

        oomdoc estimate --set model=Qwen/Qwen2.5-7B --set method=lora --set seq_len=4096 --set gpu="RTX 4090"

        oomdoc estimate --batch jobs.jsonl --format json
    """
    language = "en" if lang is Language.auto else lang.value
    if batch is not None:
        _batch(batch, language)
        return
    document = load_document(job) if job is not None else {}
    if isinstance(document.get("job"), dict):
        document = document["job"]
    changes = parse_set(set_ or [])
    if not document and not changes:
        raise JobError(
            "no job is given", where="oomdoc estimate", hint="name a file, or --set model=... --set seq_len=..."
        )
    from oomdoc.library import estimate as run
    from oomkb.memory.job import Job
    from oomkb.pricing import check_device

    priced_job = Job.from_document(document).with_fields(changes)
    check_device(priced_job)
    report = run(priced_job)
    if chart is not None:
        from oomdoc.report.chart import write_chart

        write_chart(report.document(), chart)
    answer = None
    if allocator:
        from oomdoc.cli.allocator import replayed

        answer = replayed(report.priced, job, language)
    if format_ is Format.json:
        more = {"allocator": answer.document} if answer else {}
        print_json({**report.document(language=language), **more})
        return
    show(report.text(language=language, width=terminal_width(), colour=coloured()) + (answer.text if answer else ""))


def _batch(path: Path, language: str) -> None:
    from oomdoc.cli.pricing import run

    run(json_lines(path), path, language, sys.stdout.write)
