"""From single readings to failures: which is the root, which follows from it, what each rank and line adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from oomdoc.evidence import SIZES, Failure, Outcome, Signal
from oomdoc.intake.lines import Kind, Line
from oomdoc.intake.outcomes import failure_of, is_asserted
from oomdoc.intake.phase import frames_of
from oomdoc.intake.tracebacks import Placed

_EXITS: Final = frozenset({"exit-137", "exit-135", "ray-actor-died", "tgi-shard-killed", "worker-vanished"})
_REMARKS: Final = frozenset({"torch-cuda-oom-warning", "xla-remat-insufficient"})
_NEAR: Final = 6
_MAX_FRAMES: Final = 16
_MAX_BYTES: Final = 1 << 50
_LEAST_CARD_BYTES: Final = 1 << 20

Indexed = tuple[int, Failure]


def assemble(
    found: Sequence[Indexed],
    lines: Sequence[Line],
    kinds: Sequence[Kind],
    placed: Sequence[Placed],
    signals: Sequence[Signal],
) -> list[Indexed]:
    """Failures of memory in order, with frames and steps; what follows from another is a ``cascade``."""
    kept = [(i, _possible(f)) for i, f in found if _sizes(f) or is_asserted(f, lines[i], kinds[i])]
    kept = _without_mentions(kept, kinds)
    kept = [(i, replace(f, frames=frames_of(i, lines, placed), step=_step(f, signals))) for i, f in kept]
    kept = _without_headlines(kept)
    real = [f for _, f in kept if not f.cascade and f.signal.name not in _EXITS]
    out = [(i, replace(f, cascade=f.cascade or (bool(real) and f.signal.name in _EXITS))) for i, f in kept]
    return _completed(out, lines)


def agreeing(
    failures: Sequence[Indexed], outcome: Outcome | None, lines: Sequence[Line], placed: Sequence[Placed]
) -> list[Indexed]:
    """The failures, the first that is no consequence being the one that the outcome names."""
    failure = failure_of(outcome) if outcome is not None else None
    if outcome is None or failure is None:
        return list(failures)
    place = outcome.span
    index = next((i for i, at in enumerate(lines) if (at.source, at.number) == (place.source, place.line)), 0)
    frames = frames_of(index, lines, placed) if failure.kind == "other" else ()
    last = tuple(p.frame for p in placed if p.tag == placed[-1].tag)  # logs are often cut before the message
    failure = replace(failure, frames=frames or last[-_MAX_FRAMES:])
    rest = [(i, replace(f, cascade=True)) for i, f in failures]
    return sorted([*rest, (index, failure)], key=lambda pair: pair[0])


def _possible(failure: Failure) -> Failure:
    """Without sizes that no machine has: a card of a few bytes, or more than a petabyte."""
    least = {"capacity_bytes": _LEAST_CARD_BYTES}
    odd = (name for name, size in _sizes(failure).items() if not least.get(name, 0) <= size <= _MAX_BYTES)
    unknown: dict[str, Any] = dict.fromkeys(odd)
    return replace(failure, **unknown)


def _without_mentions(found: Sequence[Indexed], kinds: Sequence[Kind]) -> list[Indexed]:
    """Drop what only repeats in words ("I get CUDA out of memory") what a message states with its numbers."""
    numbered = {f.kind for _, f in found if _sizes(f) and f.signal.name not in _REMARKS}
    out: list[Indexed] = []
    for index, failure in found:
        mention = kinds[index] == "prose" and not _sizes(failure)
        remark = failure.signal.name in _REMARKS
        if failure.kind in numbered and (mention or remark):
            continue
        out.append((index, failure))
    return out


def _without_headlines(found: Sequence[Indexed]) -> list[Indexed]:
    """Drop a message that stands alone ("CUDA out of memory", as a thread's title) where it follows with its sizes."""
    sized = [(f.signal.name, frames) for _, f in found if _sizes(f) and not f.cascade for frames in ((), f.frames)]
    return [(i, f) for i, f in found if _sizes(f) or (f.signal.name, f.frames) not in sized]


def _sizes(failure: Failure) -> dict[str, Any]:
    """The sizes that its message states."""
    found = {name: getattr(failure, name) for name in SIZES.values()}
    return {name: size for name, size in found.items() if size is not None}


def _completed(found: Sequence[Indexed], lines: Sequence[Line]) -> list[Indexed]:
    """Give a failure without numbers those that the next lines of the same writer state about it."""
    out: list[Indexed] = []
    skip: set[int] = set()
    for at, (index, first) in enumerate(found):
        if at in skip:
            continue
        whole = first
        for later, (other, more) in enumerate(found[at + 1 : at + 4], start=at + 1):
            near = other - index <= _NEAR and lines[other].tag == lines[index].tag and more.kind == first.kind
            known, told = _sizes(whole), _sizes(more)
            bare = not known or (whole.requested_bytes is None and more.requested_bytes is not None)
            same = bool(known) and more.signal.name == whole.signal.name and known.items() <= told.items()
            if ((near and bare) or same) and len(told) > len(known):
                whole = replace(whole, **told)
                skip.add(later)
        out.append((index, whole))
    return out


def _step(failure: Failure, signals: Sequence[Signal]) -> int | None:
    """The step that was printed last before the failure."""
    place = failure.signal.span
    steps = [
        s.data["step"]
        for s in signals
        if s.name == "progress" and s.span.source == place.source and s.span.line <= place.line
    ]
    return steps[-1] if steps else None
