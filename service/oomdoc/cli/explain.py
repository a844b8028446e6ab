"""``oomdoc explain``: the page of a cause or a topic."""

from __future__ import annotations

from typing import Annotated

import typer

from oomdoc.cli.common import Language, causes_beginning, show


def explain(
    cause: Annotated[
        str | None,
        typer.Argument(help="A cause's or topic's name; without one, the causes.", autocompletion=causes_beginning),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the causes and every topic.")] = False,
    lang: Annotated[Language, typer.Option(help="Language of the page.")] = Language.auto,
) -> None:
    """Print what a cause is (sign, mechanism, how to confirm and fix it), or what is known of a concept.

    Example: `oomdoc explain logits`, `oomdoc explain gradient-accumulation`, `oomdoc explain --list`
    """
    from oomdoc.diagnosis.pages import page
    from oomdoc.report.words import word
    from oomkb.records.taxonomy import CAUSES
    from oomkb.topics import topics

    language = "en" if lang is Language.auto else lang.value
    if cause is None or listed:
        for name in sorted(CAUSES):
            show(f"{name:<28} {word(f'cause.{name}.title', language)}")
        for topic in topics().values() if listed else ():
            show(f"{topic.id:<28} {topic.title[language]}")
        return
    show(page(cause, language))
