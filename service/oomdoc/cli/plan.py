"""``oomdoc plan``: before a run, does it fit, and what does each setting save."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from oomdoc.cli.common import Format, Language, coloured, parse_set, print_json, read_named, show, terminal_width

DOES_NOT_FIT = 3


EPILOG: Final = "Exit status: 0 it fits; 3 it does not (so it can guard a launch script); 2 bad input."


def plan(
    file: Annotated[Path | None, typer.Argument(help="A job document, a config or a launch script.")] = None,
    gpu: Annotated[str | None, typer.Option(help="The GPU to plan for, as people write it.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="How many of them per machine.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A job field, field=value; repeatable.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.text,
    lang: Annotated[Language, typer.Option(help="Language of the answer.")] = Language.auto,
    full: Annotated[bool, typer.Option("--full", help="Print the whole report, not only the first screen.")] = False,
    short: Annotated[bool, typer.Option("--short", help="Shortened JSON for agents, a tenth as long.")] = False,
    fixed_hardware: Annotated[bool, typer.Option("--fixed-hardware", help="No plan with other or more GPUs.")] = False,
    chart: Annotated[Path | None, typer.Option(help="Write a stacked chart here (.svg or .png).")] = None,
) -> None:
    """Say before a run whether it fits, the largest batch that does, and what each setting saves.

    Examples:

        oomdoc plan train.yaml --gpu "RTX 4090" --gpus 7

        oomdoc plan --set model=Qwen/Qwen2.5-14B --set method=lora --gpu A100-80GB && bash launch.sh

        oomdoc plan train.yaml --gpu "RTX 4090" --fixed-hardware --format json --short
    """
    from oomdoc.planner import plan_document, plan_job
    from oomdoc.report.plan import plan_text

    changes: dict[str, Any] = parse_set(set_ or [])
    if gpu:
        changes["gpu"] = gpu
    if gpus:
        changes["gpus"] = gpus
    text, name, others = read_named(file)
    planned = plan_job(text, name, changes, others, fixed_hardware=fixed_hardware)
    language = "en" if lang is Language.auto else lang.value
    document = plan_document(planned, language)
    if chart is not None:
        from oomdoc.report.chart import write_chart

        write_chart(document["estimate"], chart)
    if short:
        from oomdoc.tools.compact import planned as shortened

        print_json(shortened(document, "short"))
    elif format_ is Format.json:
        print_json(document)
    else:
        show(plan_text(document, language, width=terminal_width(), colour=coloured(), full=full))
    if document["estimate"]["fits"] is False:
        raise typer.Exit(DOES_NOT_FIT)
