"""Runs side by side: what each needs, whether it fits, and which of them to take and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from oomdoc.chat import parts
from oomdoc.chat.prices import price_of
from oomdoc.chat.session import DERIVED, Reply, Session, flat
from oomdoc.chat.wording import patterns
from oomdoc.diagnosis.forms import needed_of
from oomdoc.planner import compare
from oomdoc.report.words import word
from oomkb.dataclass import dataclass
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job

_RE: Final = patterns("choosing")
_MAX_ROWS: Final = 6
_BETTER: Final = 1.02
"""How many times as good a run must be to be taken for it."""


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    job: Job
    estimate: Estimate
    speed: float

    @property
    def cards(self) -> float:
        return float(self.job.world or (self.job.gpus or 1) * (self.job.nodes or 1))

    @property
    def room(self) -> float:
        return (self.estimate.capacity_bytes or 0.0) - needed_of(self.estimate)

    @property
    def requests(self) -> float:
        served = self.estimate.served
        return served.requests if served is not None else 0.0


_GOODS: Final[dict[str, Callable[[_Row], float]]] = {
    "cards": lambda row: 1 / row.cards,
    "room": lambda row: max(row.room, 1.0),
    "requests": lambda row: row.requests,
    "speed": lambda row: row.speed,
}


def side_by_side(jobs: Sequence[Job], session: Session, text: str) -> Reply:
    """A row a run, the latest ones, and the one to take, by what the words care for."""
    language, job = session.language, session.job
    distinct = [one for n, one in enumerate(jobs) if one not in jobs[:n]][-_MAX_ROWS:]
    rows, problem = _rows(distinct, language)
    if not rows:
        return Reply(word("chat.cannot-price", language, problem=problem), {}, job)
    lines = [_best(rows, language, text)]
    lines += [f"- {_shown(row, language)}" for row in rows]
    if any(row.speed != rows[0].speed for row in rows):
        lines.append(word("chat.speed-note", language))
    lines += [word("chat.no-prices", language)] if _RE["price"].search(text) else []
    priced, _ = price_of(job, language)
    if priced is not None and priced.estimate.fits is False and _RE["pick"].search(text):
        plans = parts.planned(priced, language, most=3, held=session.held)
        lines += [word("chat.pick-head", language), *(f"- {plan}" for plan in plans)] if plans else []
    return Reply("\n".join(lines), {}, job, priced.estimate.process_bytes if priced is not None else None)


def _rows(jobs: Sequence[Job], language: str) -> tuple[list[_Row], str]:
    priced = [price_of(one, language) for one in jobs]
    known = [(one, found) for one, (found, _) in zip(jobs, priced, strict=True) if found is not None]
    fields = [flat(one) for one, _ in known]
    names = sorted(
        {name for each in fields for name in each} - {"planned", "failed", "assumed", "versions", "env", "params_b"}
    )
    differing = [n for n in names if any(each.get(n) != fields[0].get(n) for each in fields) and n not in DERIVED]
    rows = []
    for (one, found), each, side in zip(known, fields, compare([found.job for _, found in known]), strict=True):
        said = {n: each.get(n) for n in differing if each.get(n) is not None}
        name = parts.shown_changes(said, language) if said else word("chat.original", language)
        rows.append(_Row(name, one, found.estimate, side.relative_speed or 1.0))
    return rows, next((why for _, why in priced if why), "")


def _shown(row: _Row, language: str) -> str:
    values: dict[str, Any] = {
        "name": row.name,
        "needed_bytes": needed_of(row.estimate),
        "speed": f"{row.speed:.2f}",
        "fits": parts.fit_word(row.estimate, language),
        "requests": f"{row.requests:.1f}",
    }
    return word("chat.side-served" if row.estimate.served is not None else "chat.side", language, **values)


def _best(rows: Sequence[_Row], language: str, text: str) -> str:
    """The one to take, with the reason that sets it apart."""
    fitting = [row for row in rows if row.estimate.fits is not False]
    if not fitting:
        least = min(rows, key=lambda row: -row.room)
        return word("chat.best-none", language, name=least.name, needed_bytes=needed_of(least.estimate))
    if len(fitting) == 1 < len(rows):
        return word("chat.best-only", language, name=fitting[0].name)
    served = all(row.estimate.served is not None for row in rows)
    usual = ("requests", "speed", "room", "cards") if served else ("speed", "room", "cards")
    asked = [good for good in _GOODS if _RE[good].search(text)]
    for good in dict.fromkeys((*asked, *usual)):
        best = max(fitting, key=_GOODS[good])
        if len(fitting) == 1 or _GOODS[good](best) >= _BETTER * min(map(_GOODS[good], fitting)):
            sizes = {"room_bytes": best.room, "requests": f"{best.requests:.1f}", "cards": f"{best.cards:g}"}
            return word(f"chat.best-{good}", language, name=best.name, speed=f"{best.speed:.2f}", **sizes)
    return word("chat.best-even", language)
