"""``oomdoc estimate``: price a job document."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from oomdoc.cli.common import (
    Format,
    Language,
    coloured,
    json_lines,
    load_document,
    parse_set,
    print_json,
    read_named,
    show,
    terminal_width,
)
from oomkb.errors import InputError, JobError

if TYPE_CHECKING:
    from oomdoc.evidence import Evidence
    from oomkb.memory.job import Job


EPILOG: Final = "Exit status: 0 priced; 2 an impossible job or a wrong call."


def estimate(
    job: Annotated[
        Path | None, typer.Argument(help="A job document, a config or a launch script; - is standard input.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A job field, field=value; repeatable.")] = None,
    batch: Annotated[
        Path | None, typer.Option(help="JSONL, one {id, job} per line; prints one result per line.")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.text,
    lang: Annotated[Language, typer.Option(help="Language of the answer.")] = Language.auto,
    chart: Annotated[Path | None, typer.Option(help="Write a stacked chart here (.svg or .png).")] = None,
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
    changes = parse_set(set_ or [])
    if job is None and not changes:
        raise JobError(
            "no job is given", where="oomdoc estimate", hint="name a file, or --set model=... --set seq_len=..."
        )
    from oomdoc.library import estimate as run
    from oomkb.pricing import check_device

    stated, evidence = _job_of(job)
    priced_job = stated.with_fields(changes)
    check_device(priced_job)
    report = run(priced_job)
    if chart is not None:
        from oomdoc.report.chart import write_chart

        write_chart(report.document(), chart)
    if format_ is Format.json:
        print_json(_with_framework(report.document(language=language), evidence, language))
        return
    for warning in _warnings(evidence, language):
        show("! " + warning)
    show(report.text(language=language, width=terminal_width(), colour=coloured()))


def _job_of(path: Path | None) -> tuple[Job, Evidence | None]:
    """The job of a job document, else of a framework's config or script with what it names."""
    from oomdoc.planner import job_of_text
    from oomkb.memory.job import Job

    if path is None:
        return Job(), None
    text, name, others = read_named(path)
    if path.suffix in _DOCUMENTS and str(path) != "-" and not _is_config(text):
        document = load_document(path)
        return Job.from_document(document["job"] if isinstance(document.get("job"), dict) else document), None
    return job_of_text(text, name, others)


_DOCUMENTS: Final = (".yaml", ".yml", ".json", "")


def _is_config(text: str) -> bool:
    """Whether most of a document's keys are no fields of a job: then it is some framework's configuration."""
    from oomkb.memory.job import Job
    from oomkb.untrusted import yaml_document

    try:
        document = yaml_document(text, where="the file", finite=False)
    except InputError:
        return "--" in text
    if not isinstance(document, dict) or isinstance(document.get("job"), dict):
        return not isinstance(document, dict) and "--" in text
    fields = sum(str(key) in Job.__dataclass_fields__ for key in document)
    return len(document) > 0 and 2 * fields < len(document)


def _warnings(evidence: Evidence | None, language: str) -> list[str]:
    from oomdoc.report.words import render

    return [render(w, language) for w in evidence.warnings] if evidence is not None else []


def _with_framework(document: dict[str, Any], evidence: Evidence | None, language: str) -> dict[str, Any]:
    from oomdoc.report.document import framework_document

    if evidence is None:
        return document
    warnings = [*document.get("warnings", ()), *_warnings(evidence, language)]
    return {**document, "framework": framework_document(evidence), "warnings": warnings}


def _batch(path: Path, language: str) -> None:
    from oomdoc.cli.pricing import run

    run(json_lines(path), path, language, sys.stdout.write)
