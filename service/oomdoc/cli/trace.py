"""``oomdoc trace``: exact mode, a real step without a GPU beside the estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from oomdoc.cli.common import Format, Language, coloured, load_document, parse_set, print_json, show, terminal_width
from oomkb.errors import JobError

DIFFERS = 1


EPILOG: Final = "Exit status: 0 they agree; 1 they differ; 2 a job that cannot be traced or a wrong call."


def trace(
    job: Annotated[Path | None, typer.Argument(help="A job document, YAML or JSON; - is standard input.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A job field, field=value; repeatable.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.text,
    lang: Annotated[Language, typer.Option(help="Language of the answer.")] = Language.auto,
) -> None:
    """Run the real step without a GPU or weights, and show the traced sizes beside the estimate.

    Needs `pip install 'oomdoc[trace]'`.

    Examples:

        oomdoc trace job.yaml

        oomdoc trace --set model=Qwen/Qwen2.5-7B --set method=lora --set micro_batch=1 --set seq_len=2048
    """
    document = load_document(job) if job is not None else {}
    if isinstance(document.get("job"), dict):
        document = document["job"]
    changes = parse_set(set_ or [])
    if not document and not changes:
        raise JobError(
            "no job is given", where="oomdoc trace", hint="name a file, or --set model=... --set seq_len=..."
        )
    from oomdoc.report.command_texts import trace_text
    from oomdoc.tracing import compare
    from oomkb.memory.job import Job

    found = compare(Job.from_document(document).with_fields(changes))
    if format_ is Format.json:
        print_json(found.document())
    else:
        language = "en" if lang is Language.auto else lang.value
        show(trace_text(found.document(), found.notes(), language, width=terminal_width(), colour=coloured()))
    if not found.agrees:
        raise typer.Exit(DIFFERS)
