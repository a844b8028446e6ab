"""``oomdoc batch``: the logs of a whole fleet."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from oomdoc.cli.common import Format, Language, coloured, print_json, progress, show, terminal_width


class Engine(StrEnum):
    """What runs it."""

    processes = "processes"
    ray = "ray"


def batch(
    logs: Annotated[list[str], typer.Argument(help="Files, folders, patterns, or URLs (s3://, gs:// ...).")],
    output: Annotated[Path, typer.Option(help="Where the results go, as JSONL; an interrupted run is resumed.")] = Path(
        "oomdoc-fleet.jsonl"
    ),
    engine: Annotated[Engine, typer.Option(help="Processes on this machine, or a Ray cluster.")] = Engine.processes,
    workers: Annotated[int, typer.Option(min=0, help="How many at once; 0: one per core.")] = 0,
    team: Annotated[str | None, typer.Option(help="Pattern over the log's name; group 1 is the team.")] = None,
    plans: Annotated[bool, typer.Option(help="Search for plans that fit (slower).")] = False,
    format_: Annotated[Format, typer.Option("--format", help="How to print the summary.")] = Format.text,
    lang: Annotated[Language, typer.Option(help="Language of the summary.")] = Language.auto,
) -> None:
    """Diagnose thousands of logs with all cores, and sum them up.

    Examples:

        oomdoc batch /var/log/jobs --team '/jobs/([^/]+)/'

        oomdoc batch 's3://logs/2026-11/*.log.gz' --output november.jsonl

        oomdoc batch /shared/logs --engine ray
    """
    from oomdoc.fleet import Settings, run_fleet, summarise
    from oomdoc.fleet.running import read_rows
    from oomdoc.report.command_texts import fleet_text

    settings = Settings(output=output, workers=workers, engine=engine.value, team_pattern=team, plans=plans)
    with progress() as bar:
        task = bar.add_task("diagnosing", total=None)
        run_fleet(logs, settings, lambda done, total: bar.update(task, completed=done, total=total))
    document = summarise(read_rows(output))
    if format_ is Format.json:
        print_json(document)
    else:
        language = "en" if lang is Language.auto else lang.value
        show(fleet_text(document, language, width=terminal_width(), colour=coloured()))
