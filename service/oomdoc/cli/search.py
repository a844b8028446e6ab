"""``oomdoc search``: the known cases that look like a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from oomdoc.cli.common import Format, Language, json_lines, print_json, read_text, show
from oomkb.errors import InputError


def search(
    text: Annotated[str | None, typer.Argument(help="What it looks like; - is standard input.")] = None,
    top: Annotated[int, typer.Option(min=1, max=100, help="How many cases.")] = 5,
    batch: Annotated[
        Path | None, typer.Option(help="JSONL, one {id, text} per line; prints one result per line.")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.text,
    lang: Annotated[Language, typer.Option(help="Language of the titles.")] = Language.auto,
) -> None:
    """Find known cases.

    Examples:

        oomdoc search "cross_entropy OOM with a 152k vocabulary, DPO"

        oomdoc search "保存检查点时爆显存" --top 3 --format json
    """
    if batch is not None:
        for _, row in json_lines(batch):
            print_json({"id": row.get("id"), "matches": _matches(str(row.get("text", "")), top, lang)}, line=True)
        return
    query = read_text(Path("-")) if text == "-" else text
    if not query or not query.strip():
        raise InputError(
            "nothing to search for", where="oomdoc search", hint='for example oomdoc search "OOM when saving"'
        )
    from oomdoc.report.words import word

    matches = _matches(query, top, lang)
    if format_ is Format.json:
        print_json({"matches": matches})
        return
    if not matches:
        show(word("report.no-match", _language(query, lang)))
    for match in matches:
        show(f"{match['score']:.2f}  {match['title']}\n      {match['case']}  {match['url']}")
        show(f"      {'; '.join(match['why'][:3])}")


def _matches(text: str, top: int, lang: Language) -> list[dict[str, Any]]:
    from oomdoc.diagnosis.searching import find_cases
    from oomdoc.report.document import match_document

    return [match_document(match, _language(text, lang)) for match in find_cases(text, top=top)]


def _language(text: str, lang: Language) -> str:
    from oomdoc.intake.digest import language_of

    return language_of(text, text) if lang is Language.auto else lang.value
