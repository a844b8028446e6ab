"""Going to one of several runs that were talked about: "take B", "the second one", "back to the 2 card variant"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from oomdoc.chat.context import Context
from oomdoc.chat.session import moved_to
from oomdoc.chat.wording import patterns
from oomkb.catalog import gpus, models
from oomkb.memory.job import Job
from oomkb.units import billions

_RE: Final = patterns("choosing")
_PLACES: Final = {
    **dict.fromkeys(("a", "1", "first", "former", "一", "前者"), 0),
    **dict.fromkeys(("b", "2", "second", "two", "二", "两"), 1),
    **dict.fromkeys(("c", "3", "third", "三"), 2),
    **dict.fromkeys(("d", "4", "fourth", "四"), 3),
    **dict.fromkeys(("latter", "last", "后者"), -1),
}
_DERIVED: Final = frozenset({"world", "nodes", "gpus", "tp", "dp", "capacity_gib"})
"""Fields that follow from others: an earlier run is known by the rest."""


def chosen(turn: str, context: Context) -> tuple[dict[str, Any], str]:
    """The fields of the alternative that a turn takes by its place, and the turn without the words that take it.

    The alternatives are those that were set side by side last, else the runs that were priced, in order.
    """
    if len(context.latest) > 1 and _RE["both"].search(turn):
        return {name: value for changes in context.latest for name, value in changes.items()}, ""
    if (side := _named_side(turn, context)) is not None:
        return side, ""
    match = _RE["takes"].match(turn) or (_RE["alone"].fullmatch(turn) if context.offered else None)
    if match is None:
        return {}, turn
    named = next(value for value in match.groupdict().values() if value)
    place, rest = _PLACES[named.lower()], f"{turn[: match.start()]} {turn[match.end() :]}"
    if context.offered and -1 <= place < len(context.offered):
        return dict(context.offered[place]), rest
    if len(context.tried) > 1 and -1 <= place < len(context.tried) and not match.groupdict().get("letter"):
        return moved_to(context.job, context.tried[place]), rest
    return {}, turn


def _named_side(turn: str, context: Context) -> dict[str, Any] | None:
    """The one alternative of the last answer whose value a turn names: "go with the 8bit one"."""
    named = _RE["the_one"].search(turn)
    if named is None or not context.offered:
        return None
    words = re.sub(r"[\W_]", "", (named["what"] or named["what_zh"]).lower())
    values = [re.sub(r"[\W_]", "", " ".join(map(str, side.values())).lower()) for side in context.offered]
    alike = [n for n, value in enumerate(values) if words and words in value]
    return dict(context.offered[alike[0]]) if len(alike) == 1 else None


def returned(turn: str, changes: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """The changes of a turn that goes back to what it names: to the whole earlier run where that is what is named, else
    to each value as an earlier run had it ("back to the 70b": the model of that size that was talked about).
    """
    if not changes or not _RE["back"].search(turn):
        return dict(changes)
    earlier = [job for job in reversed((*context.tried, *context.earlier)) if job != context.job]
    found = {name: _as_earlier(name, value, earlier) for name, value in changes.items()}
    if _RE["whole"].search(turn):
        said = {n: v for n, v in found.items() if n not in _DERIVED} or {
            n: v for n, v in found.items() if n in ("gpus", "nodes")
        }
        alike = (job for job in earlier if all(_same(job, name, value) for name, value in said.items()))
        if (job := next(alike, None)) is not None:
            return moved_to(context.job, job)
    return found


def _same(job: Job, name: str, value: Any) -> bool:
    return job.get(name) == value or (value == 1 and job.get(name) is None)


def _as_earlier(name: str, value: Any, earlier: list[Job]) -> Any:
    """A card as an earlier run has it: with its size."""
    if name != "gpu" or not isinstance(value, str):
        return value
    said = gpus.find(value)
    known = (job.gpu for job in earlier if job.gpu is not None)
    return next((gpu for gpu in known if said is not None and _starts(gpu, said.name, value)), value)


def _starts(gpu: str, name: str, said: str) -> bool:
    device = gpus.find(gpu)
    return gpu.lower().startswith(said.lower()) or (device is not None and device.name == name)


def of_size(params_b: float, context: Context) -> str | None:
    """The model of a size that was talked about before."""
    for job in (*reversed(context.tried), *context.earlier):
        if not isinstance(job.model, str) or job.model == context.job.model:
            continue
        entry = models.find(job.model)
        size = entry.params / 1e9 if entry is not None and entry.params else billions(job.model)
        if re.search(rf"(?i)(?<![\d.]){params_b:g}b", job.model) or (size and abs(size - params_b) < 0.05 * params_b):
            return job.model
    return None
