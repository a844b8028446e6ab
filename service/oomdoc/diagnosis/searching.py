"""The known cases that a description looks like: what it sounds like, and what the diagnosis makes of its causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomdoc.diagnosis.cases import matched
from oomdoc.diagnosis.engine import causes_in, view_of
from oomdoc.diagnosis.result import MatchedCase
from oomdoc.intake.read import read_text

if TYPE_CHECKING:
    from oomkb.retrieval.search import Match


def search(text: str, *, top: int = 5) -> list[Match]:
    """The known cases that look like ``text``, best first.

    Where it tells of a failure, its causes count as they do for the cases beside a diagnosis; a question is compared as
    it stands.

    :raises OomdocError: where the index or its model cannot be opened.
    """
    from oomkb.retrieval.search import search as by_text

    evidence = read_text(text)
    view, _, look, _ = view_of(evidence)
    causes = {found.cause: found.probability for found in causes_in(evidence, view)}
    return look.matches(causes, top) if look is not None and causes else by_text(text, top=top)


def find_cases(text: str, *, top: int = 5) -> tuple[MatchedCase, ...]:
    """The same as a diagnosis has them."""
    return tuple(matched(match) for match in search(text, top=top))
