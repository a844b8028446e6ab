"""From single readings to failures: which is the root, which follows from it, what each rank and line adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from oomdoc.evidence import SIZES, Failure, Frame, Outcome, Signal
from oomdoc.intake.lines import Kind, Line
from oomdoc.intake.outcomes import failure_of, is_asserted
from oomdoc.intake.phase import frames_of
from oomdoc.intake.tracebacks import Placed

_SIZES: Final = tuple(SIZES.values())
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
    kept = [(i, _possible(f)) for i, f in found if _count(f) or is_asserted(f, lines[i], kinds[i])]
    kept = _without_mentions(kept, kinds)
    kept = [(i, replace(f, frames=frames_of(i, lines, placed), step=_step(f, signals))) for i, f in kept]
    kept = _without_headlines(kept)
    real = [f for _, f in kept if not f.cascade and f.signal.name not in _EXITS]
    out = [(i, replace(f, cascade=f.cascade or (bool(real) and f.signal.name in _EXITS))) for i, f in kept]
    return _promoted(_completed(out, lines))


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
    failure = replace(failure, frames=frames or _last_frames(placed))
    rest = [(i, replace(f, cascade=True)) for i, f in failures]
    return sorted([*rest, (index, failure)], key=lambda pair: pair[0])


def _last_frames(placed: Sequence[Placed]) -> tuple[Frame, ...]:
    """Those of the last traceback of the input: logs are often cut before the message."""
    own = [p.frame for p in placed if p.tag == placed[-1].tag]
    return tuple(own[-_MAX_FRAMES:])


def _possible(failure: Failure) -> Failure:
    """Without sizes that no machine has: a card of a few bytes, or more than a petabyte."""
    odd = [name for name in _SIZES if _states(failure, name) and not 0 <= getattr(failure, name) <= _MAX_BYTES]
    if failure.capacity_bytes is not None and failure.capacity_bytes < _LEAST_CARD_BYTES:
        odd.append("capacity_bytes")
    unknown: dict[str, Any] = dict.fromkeys(odd)
    return replace(failure, **unknown) if unknown else failure


def _promoted(failures: Sequence[Indexed]) -> list[Indexed]:
    """Where only consequences were printed, the first that speaks of host memory stands for the failure behind it."""
    first = next((at for at, (_, f) in enumerate(failures) if f.kind == "host"), None)
    if first is None or any(not f.cascade for _, f in failures):
        return list(failures)
    return [(i, replace(f, cascade=False) if at == first else f) for at, (i, f) in enumerate(failures)]


def _without_mentions(found: Sequence[Indexed], kinds: Sequence[Kind]) -> list[Indexed]:
    """Drop what only repeats in words ("I get CUDA out of memory") what a message states with its numbers."""
    numbered = {f.kind for _, f in found if _count(f) and f.signal.name not in _REMARKS}
    out: list[Indexed] = []
    for index, failure in found:
        mention = kinds[index] == "prose" and not _count(failure)
        remark = failure.signal.name in _REMARKS
        if failure.kind in numbered and (mention or remark):
            continue
        out.append((index, failure))
    return out


def _without_headlines(found: Sequence[Indexed]) -> list[Indexed]:
    """Drop a message that stands alone ("CUDA out of memory", as a thread's title) where it follows with its sizes."""
    sized = [(f.signal.name, frames) for _, f in found if _count(f) and not f.cascade for frames in ((), f.frames)]
    return [(i, f) for i, f in found if _count(f) or (f.signal.name, f.frames) not in sized]


def _count(failure: Failure) -> int:
    return sum(_states(failure, name) for name in _SIZES)


def _states(failure: Failure, name: str) -> bool:
    return getattr(failure, name) is not None


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
            bare = not _count(whole) or (whole.requested_bytes is None and more.requested_bytes is not None)
            if ((near and bare) or _same(whole, more)) and _count(more) > _count(whole):
                whole = replace(whole, **{name: getattr(more, name) for name in _SIZES if _states(more, name)})
                skip.add(later)
        out.append((index, whole))
    return out


def _same(one: Failure, other: Failure) -> bool:
    """Whether the other message repeats every size of this one."""
    stated = [name for name in _SIZES if _states(one, name)]
    alike = one.signal.name == other.signal.name and bool(stated)
    return alike and all(getattr(one, name) == getattr(other, name) for name in stated)


def _step(failure: Failure, signals: Sequence[Signal]) -> int | None:
    """The step that was printed last before the failure."""
    place = failure.signal.span
    steps = [
        s.data["step"]
        for s in signals
        if s.name == "progress" and s.span.source == place.source and s.span.line <= place.line
    ]
    return steps[-1] if steps else None
