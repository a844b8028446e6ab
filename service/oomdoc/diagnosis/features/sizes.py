"""The sizes that the failing message states, against each other and against the card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Final

from oomdoc.diagnosis.result import Feature, TensorMatch
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Message, say
from oomkb.units import GIB, MIB

_REQUEST_ENDS: Final = {
    **{"to-64m": 64 * MIB, "to-600m": 600 * MIB, "to-2.5g": 2.5 * GIB, "to-10g": 10 * GIB},
    **{"to-48g": 48 * GIB, "above-48g": inf},
}
_PARTS: Final = {"tiny": 0.004, "small": 0.02, "medium": 0.08, "large": 0.25, "very-large": 0.6, "most-of-card": inf}
_HELD_ENDS: Final = {"next-to-nothing": 0.1, "little": 0.45, "half": 0.75, "most": 0.92, "all": inf}
_CACHED_ENDS: Final = {"none": 0.02, "little": 0.05, "some": 0.1, "much": 0.2, "very-much": inf}
_CARD_ENDS: Final = {"to-8g": 8.2 * GIB, "to-16g": 16.6 * GIB, "to-24g": 25 * GIB, "to-48g": 49 * GIB, "above-48g": inf}
_OTHERS_ENDS: Final = {"none": 0.05, "some": 0.2, "much": 0.5, "most": inf}
_CONTEXT_BYTES: Final = 1.2 * GIB
"""The most that a CUDA context, its libraries and NCCL take: what exceeds it belongs to another process."""
_BELIEVED_MATCH: Final = 0.3
"""Below this a tensor of the size asked for is as likely a coincidence."""
_ROOM_FACTOR: Final = 3
_LEAST_ROOM: Final = 2 * GIB


def features(view: View) -> Iterator[Feature]:
    """Request, what is held, what is cached, what others hold, and the tensors that have the size asked for."""
    failure, capacity = view.failure, view.bytes_of("capacity")
    if capacity:
        yield Feature(f"card:{bucket(capacity, _CARD_ENDS)}", 1.0, say("feature.card", size_bytes=capacity))
    if failure is None or failure.kind != "device":
        return
    requested = view.bytes_of("requested")
    if requested:
        said = say("feature.request", requested_bytes=requested)
        yield Feature(f"request:{bucket(requested, _REQUEST_ENDS)}", 1.0, said)
        if capacity:
            part = bucket(requested / capacity, _PARTS)
            yield Feature(f"request-part:{part}", 1.0, said)
        if _is_power_of_two(requested):
            yield Feature("request:power-of-two", 1.0, said)
        length = view.stated("seq_len")
        if isinstance(length, int) and _is_square_of(requested, length, view.stated("micro_batch")):
            yield Feature("request:square-of-length", 1.0, say("feature.square", length=length))
    else:
        yield Feature("request:unstated")
    yield from _tensors(view)
    if capacity:
        yield from _held(view, capacity, requested)
    if refused_with_room(view):
        message = say("feature.room", free_bytes=view.bytes_of("free"), requested_bytes=requested)
        yield Feature("refused-with-room", 1.0, message)


def _tensors(view: View) -> Iterator[Feature]:
    for family, (match, tensor) in requested_tensors(view).items():
        if match >= _BELIEVED_MATCH:
            spans = (view.failure.signal.span,) if view.failure is not None else ()
            yield Feature(f"request-is:{family}", match, size_matches(tensor), spans)


def requested_tensors(view: View) -> dict[str, tuple[float, TensorMatch]]:
    """Tensors of the model whose size is the one asked for: cause (or what it is) -> (probability, the first one)."""
    best: dict[str, tuple[float, TensorMatch]] = {}
    for tensor in view.tensors:
        family = "weight-matrix" if tensor.name.startswith("weight ") else str(tensor.cause or tensor.name)
        total, first = best.get(family, (0.0, tensor))
        best[family] = (min(1.0, total + tensor.match), first)
    return best


def size_matches(tensor: TensorMatch) -> Message:
    """The sum by which a request is that tensor."""
    return say(
        "cause.size-matches",
        tensor=tensor.note or tensor.name,
        shape=" × ".join(f"{n:,}" for n in tensor.shape),
        dtype=tensor.dtype,
        size_bytes=tensor.size_bytes,
    )


def _held(view: View, capacity: int, requested: int | None) -> Iterator[Feature]:
    allocated, cached, free = view.bytes_of("allocated"), view.cached_bytes, view.bytes_of("free")
    if allocated is not None:
        said = say("feature.held", allocated_bytes=allocated, capacity_bytes=capacity)
        yield Feature(f"held:{bucket(allocated / capacity, _HELD_ENDS)}", 1.0, said)
    if cached is not None:
        said = say("feature.cached", cached_bytes=cached, requested_bytes=requested or 0)
        name = bucket(cached / capacity, _CACHED_ENDS)
        yield Feature(f"cached:{name}", 1.0, said)
        fits = allocated is None or allocated + (requested or 0) <= capacity
        if requested and cached + (free or 0) >= requested and fits and name != "none":
            yield Feature(f"cache-covers-request:{name}", 1.0, said)
        elif requested and not fits:
            yield Feature(
                "request-exceeds-rest", 1.0, say("feature.exceeds", needed_bytes=(allocated or 0) + requested)
            )
    yield from _others(view, capacity)


def _others(view: View, capacity: int) -> Iterator[Feature]:
    """What other processes hold: stated, or what neither this one holds nor the card has free."""
    others = view.bytes_of("other_process")
    free, own = view.bytes_of("free"), view.bytes_of("process")
    if others is None and free is not None:
        if own is None and view.bytes_of("allocated") is not None:
            own = (view.bytes_of("allocated") or 0) + (view.cached_bytes or 0) + round(_CONTEXT_BYTES)
        others = max(capacity - free - own, 0) if own is not None else None
    if others is not None:
        said = say("feature.others", others_bytes=others, capacity_bytes=capacity)
        yield Feature(f"others-hold:{bucket(others / capacity, _OTHERS_ENDS)}", 1.0, said)


def refused_with_room(view: View) -> bool:
    """Whether a request was refused although several times its size was free on the device."""
    free, requested = view.bytes_of("free"), view.bytes_of("requested")
    return bool(free and requested and free > _LEAST_ROOM and free > _ROOM_FACTOR * requested)


_HEADS: Final = (8, 12, 14, 16, 20, 24, 25, 28, 32, 36, 40, 48, 56, 64, 96, 128)
"""Attention heads of published models."""
_LEAST_SQUARE: Final = GIB
_ROUNDING: Final = 0.003


def _is_square_of(requested: int, length: int, batch: object) -> bool:
    """Whether a request is length x length x heads of 2 or 4 bytes, for one sample or the micro-batch."""
    if length < 256 or requested < _LEAST_SQUARE:
        return False
    samples = {1, batch} if isinstance(batch, int) and batch > 0 else {1}
    exact = (length * length * heads * width * count for heads in _HEADS for width in (2, 4) for count in samples)
    return any(abs(requested / size - 1) <= _ROUNDING for size in exact)


def _is_power_of_two(requested: int) -> bool:
    """Whether a request of at least 1 GiB is 1, 3 or 5 x 2^k MiB, as products of batch, heads and lengths are."""
    mebibytes = round(requested / MIB)
    if requested < GIB or abs(requested - mebibytes * MIB) > MIB / 100:
        return False
    return mebibytes // (mebibytes & -mebibytes) in (1, 3, 5)


def bucket(value: float, ranges: Mapping[str, float]) -> str:
    """The name of the range that ``value`` lies in: the first of those, in ascending order, whose end is above it."""
    return next(name for name, end in ranges.items() if value < end)
