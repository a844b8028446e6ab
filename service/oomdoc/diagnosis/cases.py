"""Matched cases as values of a diagnosis: retrieval's reasons become messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomdoc.diagnosis.result import MatchedCase
from oomdoc.messages import say

__all__ = ["find_cases", "sounds_like"]


def find_cases(text: str, *, top: int = 5, context: Mapping[str, Any] | None = None) -> tuple[MatchedCase, ...]:
    """The known cases that look like ``text``; ``context`` holds facts whose agreement counts."""
    from oomkb.retrieval.search import search

    return tuple(
        MatchedCase(
            case=match.id,
            title=match.titles,
            score=match.score,
            why=tuple(say(key, **values) for key, values in match.why),
            url=match.url,
            cause=match.cause,
        )
        for match in search(text, top=top, context=context)
    )


def sounds_like(text: str) -> Mapping[str, float]:
    """Cause -> how much ``text`` sounds like questions about it, in standard deviations over the causes."""
    from oomkb.records.loader import load_cases
    from oomkb.retrieval.index import open_index
    from oomkb.retrieval.views import look

    cases = load_cases()
    if not text.strip() or not cases:
        return {}
    index = open_index(cases)
    sounds = look(index, text[:_READ]).sounds
    return dict(zip(index.causes, ((sounds.vectors + sounds.words) / 2).tolist(), strict=True))


_READ = 700
"""About what the embedding model reads at once."""
