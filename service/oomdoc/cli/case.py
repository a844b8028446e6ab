"""``oomdoc case``: the case records."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from oomdoc.cli import search as search_command
from oomdoc.cli.common import Language, print_json, show
from oomkb.errors import RecordError

__all__ = ["app"]

app = typer.Typer(name="case", no_args_is_help=True, help="List, check, write and export case records.")
app.command("search")(search_command.search)


class ExportFormat(StrEnum):
    """What a case can be exported as."""

    json = "json"
    osv = "osv"
    markdown = "markdown"


@app.command(epilog="Exit status: 0 clean; 1 problems were found.")
def lint(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders; default: all cases.")] = None,
) -> None:
    """Check case records and print every problem with its file and field.

    Example: `oomdoc case lint cases/logits`
    """
    from oomkb.records.lint import lint as run
    from oomkb.records.loader import cases_dir, private_dirs

    problems = run(paths or [cases_dir(), *private_dirs()])
    for problem in problems:
        show(str(problem))
    show(f"{len(problems)} problems")
    if problems:
        raise typer.Exit(1)


@app.command("list")
def list_(
    cause: Annotated[str | None, typer.Option(help="Only this cause.")] = None,
    framework: Annotated[str | None, typer.Option(help="Only this framework.")] = None,
    lang: Annotated[Language, typer.Option(help="Language of the titles.")] = Language.auto,
) -> None:
    """List the cases.

    Example: `oomdoc case list --cause logits`
    """
    from oomdoc.casework import listed

    language = "en" if lang is Language.auto else lang.value
    for case in listed(cause=cause, framework=framework):
        show(f"{case.id:<60} {case.titles.get(language) or case.titles.get('en', '')}")


@app.command("show")
def show_(
    identifier: Annotated[str, typer.Argument(metavar="CASE", help="cause/slug")],
    format_: Annotated[ExportFormat, typer.Option("--format", help="How to print.")] = ExportFormat.markdown,
    lang: Annotated[Language, typer.Option(help="Language of the text.")] = Language.auto,
) -> None:
    """Print one case.

    Example: `oomdoc case show logits/dpo-large-vocabulary`
    """
    from oomdoc.casework import found
    from oomkb.records.export import export_case

    show(export_case(found(identifier), format_.value, "en" if lang is Language.auto else lang.value))


@app.command()
def export(
    format_: Annotated[ExportFormat, typer.Option("--format", help="What to write.")] = ExportFormat.json,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a record instead.")] = False,
) -> None:
    """Write all cases to standard output.

    Example: `oomdoc case export --format osv > advisories.json`
    """
    from oomkb.records import export as exporting

    if schema:
        print_json(exporting.json_schema())
        return
    show(exporting.export_all(format_.value))


@app.command()
def new(
    cause: Annotated[str, typer.Argument(help="A cause of the taxonomy.")],
    slug: Annotated[str, typer.Argument(help="A short name, words joined by -.")],
    folder: Annotated[Path, typer.Option(help="Where the case folders are.")] = Path("cases"),
    from_diagnosis: Annotated[Path | None, typer.Option(help="A diagnosis (JSON) to prefill from.")] = None,
) -> None:
    """Start a case record from the template, or from a real diagnosis.

    Example: `oomdoc diagnose log.txt --format json > d.json; oomdoc case new logits my-case --from-diagnosis d.json`
    """
    from oomdoc.casework import write_new

    show(f"{write_new(folder, cause, slug, from_diagnosis)} written; fill it in, then run oomdoc case lint")


@app.command()
def add(
    file: Annotated[Path, typer.Argument(help="A case record.")],
    folder: Annotated[
        Path | None, typer.Option(help="Your private case folder; default: first of OOMDOC_CASES.")
    ] = None,
) -> None:
    """Check a case and put it into your private case folder.

    Example: `OOMDOC_CASES=~/cases oomdoc case add my-case.yaml`
    """
    from oomdoc.casework import add as run

    added = run(file, folder)
    if added.problems:
        for problem in added.problems:
            show(str(problem))
        raise RecordError(f"{len(added.problems)} problems", where=str(file), hint="mend them, then add it again")
    show(f"{added.path} added")
