"""``oomdoc explain``: the page of a cause."""

from __future__ import annotations

from typing import Annotated

import typer

from oomdoc.cli.common import Language, causes_beginning, show

__all__ = ["explain", "register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(explain)


def explain(
    cause: Annotated[
        str | None, typer.Argument(help="A cause's name; without one, the list.", autocompletion=causes_beginning)
    ] = None,
    lang: Annotated[Language, typer.Option(help="Language of the page.")] = Language.auto,
) -> None:
    """Print what a cause is: its sign, its mechanism, how to confirm it, how to fix it.

    Example: `oomdoc explain logits`
    """
    from oomdoc.diagnosis.pages import page
    from oomdoc.report.words import word
    from oomkb.records.taxonomy import CAUSES

    language = "en" if lang is Language.auto else lang.value
    if cause is None:
        for name in sorted(CAUSES):
            show(f"{name:<20} {word(f'cause.{name}.title', language)}")
        return
    show(page(cause, language))
