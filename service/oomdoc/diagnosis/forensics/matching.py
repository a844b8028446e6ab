"""Matches a requested size against the candidates, and prices coincidence.

The message prints two decimals of MiB or GiB, and PyTorch's allocator asks for blocks of 2 MiB from 10 MiB on
(``kRoundLarge`` in ``c10/cuda/CUDACachingAllocator.cpp``), so a request is a window of sizes, not a number. A candidate
of known size falls into the window by chance with probability window / size over the six e-foldings that sizes
spread over; one with an unknown count does so when a multiple of its grid lies in the window. The sum of
these chances over all candidates is what a match has to beat.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from oomdoc.diagnosis.forensics.candidates import Candidate, Scene, candidates
from oomdoc.diagnosis.result import TensorMatch
from oomdoc.messages import say
from oomkb.memory.job import Job
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB, MIB

__all__ = ["rounding_of", "tensors_for"]

_LARGE_BLOCK: Final = 2 * MIB
_SMALLEST: Final = 20 * MIB
"""Up to here the allocator asks for standard segments: the figure says nothing of the tensor."""
_SPREAD: Final = 6.0
_MOST: Final = 3
_LOWEST: Final = 0.2
_MOST_TOKENS: Final = 4_000_000
_RATIO_CHANCE: Final = 0.15
"""Chance that a ratio lies within 0.02 of a multiple of a half, as shards of weights, master and moments do."""


@dataclass(frozen=True, slots=True)
class _Hit:
    candidate: Candidate
    count: int
    size_bytes: float
    chance: float


def rounding_of(requested_bytes: int) -> float:
    """Half of the last digit of the allocator's message, in bytes."""
    return 0.005 * (GIB if requested_bytes >= GIB else MIB)


def tensors_for(
    requested_bytes: int,
    rounding: float,
    shape: ModelShape,
    job: Job,
    scene: Scene | None = None,
) -> list[TensorMatch]:
    """Tensors of ``shape`` and ``job`` whose size is the requested one, best first.

    :param rounding: half of the message's last digit, in bytes (see :func:`rounding_of`).
    """
    if requested_bytes <= _SMALLEST:
        return []
    scene = scene or Scene()
    low, high = requested_bytes - _LARGE_BLOCK - rounding, requested_bytes + rounding
    hits: list[_Hit] = []
    total = 0.0
    for candidate in candidates(shape, job, scene):
        chance, found = _try(candidate, low, high, scene, requested_bytes)
        total += chance
        if found is not None:
            hits.append(found)
    return [
        _match(h, hits, total, shape)
        for h in sorted(hits, key=lambda h: h.chance)[:_MOST]
        if _sure(h, hits, total) >= _LOWEST
    ]


def _try(
    candidate: Candidate, low: float, high: float, scene: Scene, requested_bytes: int
) -> tuple[float, _Hit | None]:
    """The chance that this candidate matches anything, and its match."""
    low, high = low * (1 - candidate.slack), high * (1 + candidate.slack)
    known = (high - low) / (_SPREAD * requested_bytes)
    chance = known * max(len(candidate.counts), 1)
    if not candidate.rest and candidate.slack and _shards_ratio(scene, requested_bytes):
        known *= _RATIO_CHANCE
        chance *= _RATIO_CHANCE
    for count in candidate.counts:
        size = candidate.unit_bytes * count**candidate.power
        if low <= size <= high:
            return chance, _Hit(candidate, count, size, known)
    if not candidate.grid:
        return chance, None
    most, least = ((edge / candidate.unit_bytes) ** (1 / candidate.power) for edge in (high, low))
    gridded = min(1.0, (most - least) / candidate.grid)
    count = math.floor(most / candidate.grid) * candidate.grid
    if count >= max(least, candidate.grid) and count <= _MOST_TOKENS and gridded < 1.0:
        return chance + gridded, _Hit(candidate, count, candidate.unit_bytes * count**candidate.power, gridded)
    return chance + gridded * 0.5, None


def _shards_ratio(scene: Scene, requested_bytes: int) -> bool:
    """Whether what is allocated is a small multiple of half the request, as with states that come shard by shard."""
    if not scene.allocated_bytes:
        return False
    ratio = 2 * scene.allocated_bytes / requested_bytes
    return 2.5 <= ratio <= 17 and abs(ratio - round(ratio)) <= 0.04


def _sure(hit: _Hit, hits: Iterable[_Hit], total: float) -> float:
    """Probability that this is the tensor: not chance, and not one of the other hits."""
    weights = sum(1 / max(h.chance, 1e-6) for h in hits)
    own = (1 / max(hit.chance, 1e-6)) / weights
    return own * (
        1
        - min(
            1.0,
            0.5 * min(total, 1.0) * hit.chance / max(min(h.chance for h in hits), 1e-6)
            + 0.5 * min(hit.chance * 4, 1.0),
        )
    )


def _match(hit: _Hit, hits: Iterable[_Hit], total: float, shape: ModelShape) -> TensorMatch:
    c = hit.candidate
    dims = (hit.count,) * c.power if c.power == 2 else (hit.count,)
    full = (*c.rest, *dims) if c.power == 2 else c.rest if c.counts == (1,) else (*dims, *c.rest)
    if not full:
        full = (round(hit.size_bytes / (4 if c.dtype == "float32" else 2)),)
    name, _, part = c.name.partition(" ")
    return TensorMatch(
        name=c.name,
        shape=full,
        dtype=c.dtype,
        size_bytes=round(hit.size_bytes),
        match=round(_sure(hit, hits, total), 3),
        cause=c.cause,
        note=say(f"tensor.{name}", part=part or shape.name),
    )
