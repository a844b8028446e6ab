"""Known cases for a diagnosis: one look at the index, votes for causes, then the cases to show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from oomdoc.diagnosis.result import MatchedCase
from oomdoc.evidence import say
from oomkb.dataclass import dataclass

if TYPE_CHECKING:
    from oomkb.records.case import Case
    from oomkb.retrieval.index import Index
    from oomkb.retrieval.search import Match
    from oomkb.retrieval.views import Views


@dataclass(frozen=True, slots=True)
class Vote:
    """What one known case says: it is of ``cause``, and alike by ``score`` (0..1)."""

    cause: str
    case: str
    score: float


@dataclass(frozen=True, slots=True)
class Look:
    """What the index says of a text. Asked once: embedding the text is most of the time of a diagnosis."""

    index: Index
    views: Views

    def sounds(self) -> dict[str, float]:
        """Cause -> how much the text sounds like questions about it, in standard deviations over the causes."""
        said = (self.views.sounds.vectors + self.views.sounds.words) / 2
        return dict(zip(self.index.causes, said.tolist(), strict=True))

    def votes(self, top: int = 5, hidden: Collection[str] = ()) -> tuple[Vote, ...]:
        """The cases most like the text by themselves, without what causes sound like; ``hidden`` ones have no vote."""
        from oomkb.retrieval.search import Weights, scored

        alone = Weights(cause=0.0, diagnosed=0.0, repeat=0.0, dense=1.0, lexical=1.0)
        cases = self.index.cases
        found = scored(self.index, self.views, top=top + len(hidden), weights=alone)
        known = ((cases[number], score) for number, score in found if cases[number].id not in hidden)
        return tuple(Vote(case.cause, case.id, score) for case, score in islice(known, top))

    def chosen(self, causes: Mapping[str, float], top: int = 5) -> tuple[MatchedCase, ...]:
        """The cases to show, given what the diagnosis makes of the causes."""
        return tuple(matched(match) for match in self.matches(causes, top))

    def matches(self, causes: Mapping[str, float], top: int = 5) -> list[Match]:
        """The same as the search has them."""
        from oomkb.retrieval.search import choose
        from oomkb.retrieval.views import diagnosed_of

        views = replace(self.views, diagnosed=diagnosed_of(self.index, causes))
        return choose(self.index, views, top=top)


def look_at(text: str, context: Mapping[str, Any] | None, cases: Sequence[Case]) -> Look | None:
    """Ask every view of the index about ``text``; ``None`` where there is no text or no case.

    :raises OomdocError: where the index or its model cannot be opened.
    """
    from oomkb.retrieval.index import open_index
    from oomkb.retrieval.views import look

    if not text.strip() or not cases:
        return None
    index = open_index(cases)
    return Look(index, look(index, text, context or {}, beginning=True))


def matched(match: Match) -> MatchedCase:
    """A case that the search found, as a diagnosis has it."""
    return MatchedCase(
        case=match.id,
        title=match.titles,
        score=match.score,
        why=tuple(say(key, **values) for key, values in match.why),
        url=match.url,
        cause=match.cause,
        fixes=tuple((fix, match.case.standing(fix)) for fix in match.case.fixes),
    )
