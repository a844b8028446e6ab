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
    from oomkb.retrieval.documents import query_words
    from oomkb.retrieval.embed import encoder
    from oomkb.retrieval.gloss import gloss
    from oomkb.retrieval.index import open_index
    from oomkb.retrieval.search import cause_scores

    cases = load_cases()
    if not text.strip() or not cases:
        return {}
    vectors = encoder().encode([gloss(text)[:_READ]])
    return cause_scores(open_index(cases), vectors, query_words(text))


_READ = 700
"""About what the embedding model reads at once."""
