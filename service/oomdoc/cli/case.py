"""``oomdoc case``: the case records."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from oomdoc.cli.common import Language, print_json, show
from oomkb.errors import RecordError

app = typer.Typer(name="case", no_args_is_help=True, help="List, show, check and write case records.")


class ShownFormat(StrEnum):
    """How a case is printed."""

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
        show(f"{case.id:<60} {case.title.get(language) or case.title.get('en', '')}")


@app.command("show")
def show_(
    identifier: Annotated[str, typer.Argument(metavar="CASE", help="cause/slug")],
    format_: Annotated[ShownFormat, typer.Option("--format", help="How to print.")] = ShownFormat.markdown,
    lang: Annotated[Language, typer.Option(help="Language of the text.")] = Language.auto,
) -> None:
    """Print one case.

    Example: `oomdoc case show logits/dpo-large-vocabulary`
    """
    from oomdoc.casework import found
    from oomdoc.report.case_page import case_page
    from oomkb.records.case import case_document

    case = found(identifier)
    if format_ is ShownFormat.json:
        print_json(case_document(case))
    elif format_ is ShownFormat.osv:
        from oomkb.records.osv import osv

        if (advisory := osv(case)) is None:
            raise RecordError("names no affected range", where=case.id, hint="print it as json or markdown")
        print_json(advisory)
    else:
        show(case_page(case, "en" if lang is Language.auto else lang.value))


@app.command()
def export() -> None:
    """Write every case that names affected versions as an OSV advisory, in one JSON list.

    Example: `oomdoc case export > advisories.json`
    """
    from oomkb.records.loader import load_cases
    from oomkb.records.osv import osv

    advisories = [advisory for case in load_cases() if (advisory := osv(case)) is not None]
    show(json.dumps(advisories, ensure_ascii=False, indent=2, default=str))


@app.command()
def new(
    cause: Annotated[str | None, typer.Argument(help="A cause of the taxonomy; asked for where missing.")] = None,
    slug: Annotated[
        str | None, typer.Argument(help="A short name, words joined by -; asked for where missing.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where the case folders are.")] = Path("cases"),
    from_diagnosis: Annotated[
        str | None, typer.Option(help="A diagnosis to prefill from: a JSON file, or the id of one that was served.")
    ] = None,
) -> None:
    """Start a case record: an interview in a terminal, the template, or what a real diagnosis knows.

    Examples:

        oomdoc case new

        oomdoc case new logits my-case

        oomdoc diagnose log.txt --format json > d.json; oomdoc case new logits my-case --from-diagnosis d.json
    """
    from oomdoc.casework import from_answers, write_new

    document = _diagnosis(from_diagnosis) if from_diagnosis else None
    text = None
    if cause is None or slug is None:
        if not _interactive():
            raise RecordError(
                "no cause and no slug are given",
                where="oomdoc case new",
                hint="for example oomdoc case new logits my-case",
            )
        known = {k: v for k, v in (("cause", cause or _first_cause(document)), ("slug", slug)) if v}
        answers = _interview(known, only=("cause", "slug") if document is not None else ())
        cause, slug = answers["cause"], answers["slug"]
        text = None if document is not None else from_answers(answers)
    path = write_new(folder, cause, slug, document, text=text)
    show(f"{path} written; fill it in, then run oomdoc case lint {path}")


def _interactive() -> bool:
    return sys.stdin.isatty()


def _first_cause(document: Mapping[str, Any] | None) -> str | None:
    causes = (document or {}).get("causes") or []
    return str(causes[0]["cause"]) if causes else None


def _interview(known: Mapping[str, str], *, only: tuple[str, ...]) -> dict[str, Any]:
    """Ask what is not known; an answer that does not hold is asked for again with what would do."""
    from oomdoc.casework import QUESTIONS

    answers: dict[str, Any] = {}
    for question in QUESTIONS:
        if question.key in known:
            answers[question.key] = question.check(known[question.key])
            continue
        while question.key not in answers and (not only or question.key in only):
            given = typer.prompt(question.text, default=question.default, show_default=bool(question.default))
            if not given.strip() and question.default == "":
                break
            try:
                answers[question.key] = question.check(given)
            except RecordError as error:
                show(f"  {error.message}; {error.hint}")
    return answers


def _diagnosis(name: str) -> Mapping[str, Any]:
    """A diagnosis in a file, or one that the server keeps."""
    from oomdoc.casework import read_diagnosis

    path = Path(name)
    if path.exists() or path.suffix or len(path.parts) > 1:
        return read_diagnosis(path)
    from oomdoc.settings import load_settings
    from oomdoc.store.store import default_database_url, open_store

    store = open_store(load_settings().database_url or default_database_url())
    try:
        kept = store.diagnosis(name)
    finally:
        store.close()
    if kept is None:
        raise RecordError(
            f"no diagnosis {name!r} is kept, and no such file is there",
            where="--from-diagnosis",
            hint="give a file, or the id that the server's answer carries (OOMDOC_DATABASE_URL says which store)",
        )
    return kept.result


@app.command()
def add(
    file: Annotated[Path, typer.Argument(help="A case record.")],
    folder: Annotated[
        Path | None, typer.Option(help="Your private case folder; default: first of OOMDOC_CASES.")
    ] = None,
    cause: Annotated[str | None, typer.Option(help="Its cause, where its folder is not named after it.")] = None,
) -> None:
    """Check a case and put it into your private case folder.

    Example: `OOMDOC_CASES=~/cases oomdoc case add my-case.yaml`
    """
    from oomdoc.casework import add as run

    added = run(file, folder, cause=cause)
    if added.problems:
        for problem in added.problems:
            show(str(problem))
        raise RecordError(f"{len(added.problems)} problems", where=str(file), hint="mend them, then add it again")
    show(f"{added.path} added")
