"""Matched cases as values of a diagnosis: retrieval's reasons become messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomdoc.diagnosis.result import MatchedCase
from oomdoc.messages import say

__all__ = ["find_cases"]


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
