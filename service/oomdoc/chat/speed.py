"""The relative speed of the set-ups that a conversation has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from oomdoc.chat import parts
from oomdoc.chat.session import Reply
from oomdoc.comparison import compare
from oomdoc.report.words import word
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job

_MAX_ROWS: Final = 8


def compared(setups: Sequence[tuple[Job, Mapping[str, Any]]], job: Job, language: str) -> Reply:
    """A row a set-up, the first and the latest ones, and the fastest that fits."""
    named = _distinct(setups, language)
    now, *found = compare([job, *(setup for _, setup in named)])
    if now.priced is None:
        return Reply(word("chat.cannot-price", language, problem=now.problem), {}, job)
    rows: list[tuple[str, float, Estimate]] = [
        (name, one.relative_speed, one.priced.estimate)
        for (name, _), one in zip(named, found, strict=True)
        if one.priced is not None and one.relative_speed is not None
    ]
    lines = [word("chat.speed-head", language)]
    lines += [
        "- "
        + word(
            "chat.speed-row",
            language,
            name=n,
            speed=f"{s:.2f}",
            peak_bytes=e.process_bytes,
            fits=parts.fit_word(e, language),
        )
        for n, s, e in rows
    ]
    fitting = [row for row in rows if row[2].fits is not False]
    best = max(fitting, key=lambda row: row[1], default=None)
    lines.append(word("chat.speed-best", language, name=best[0]) if best else word("chat.speed-none", language))
    return Reply("\n".join(lines), {}, job, now.priced.estimate.process_bytes)


def _distinct(setups: Sequence[tuple[Job, Mapping[str, Any]]], language: str) -> list[tuple[str, Job]]:
    seen: list[Job] = []
    rows: list[tuple[str, Job]] = []
    for index, (setup, changes) in enumerate(setups):
        if setup not in seen:
            seen.append(setup)
            name = word("chat.original", language) if index == 0 else parts.shown_changes(changes, language)
            rows.append((name, setup))
    return rows if len(rows) <= _MAX_ROWS else [rows[0], *rows[1 - _MAX_ROWS :]]
