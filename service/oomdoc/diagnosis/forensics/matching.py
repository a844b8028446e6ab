"""Matches a requested size against the candidates, and prices coincidence.

The message prints two decimals of MiB or GiB, and PyTorch's allocator asks for blocks of 2 MiB from 10 MiB on
(``kRoundLarge`` in ``c10/cuda/CUDACachingAllocator.cpp``), so a request is a window of sizes, not a number. Any other
size falls into the window of a candidate of known size with chance window / size over the six e-foldings that sizes
spread over; where a count is solved for, with chance window / grid. Dimensions are round, so requests pile up at
powers of two: there a candidate of round dimensions matches by chance one time in five, and a solved count always. By
Bayes' rule, with even odds that the tensor is among the n candidates at all, candidate i is it with odds
1 / (n x chance).
"""

from __future__ import annotations

import math
from typing import Final

from oomdoc.diagnosis.forensics.candidates import Candidate, Scene, candidates, vocabulary_candidates
from oomdoc.diagnosis.result import TensorMatch
from oomdoc.messages import say
from oomkb.dataclass import dataclass
from oomkb.memory.job import Job
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB, MIB

_LARGE_BLOCK: Final = 2 * MIB
_MIN_REQUEST_BYTES: Final = 20 * MIB
"""Up to here the allocator asks for standard segments: the figure says nothing of the tensor."""
_SPREAD: Final = 6.0
_MAX_MATCHES: Final = 3
_LOWEST: Final = 0.2
_MAX_TOKENS: Final = 4_000_000
_ROUND_CHANCE: Final = 0.2
_ROUND: Final = 3
"""A size is round where nothing but factors of two and at most this is left of it."""
_RATIO_CHANCE: Final = 0.15
"""Chance that a ratio lies within 0.02 of a multiple of a half, as shards of weights, master and moments do."""


@dataclass(frozen=True, slots=True)
class _Hit:
    candidate: Candidate
    count: int
    size_bytes: float
    chance: float


def tensors_for(
    requested_bytes: int, shape: ModelShape, job: Job, scene: Scene | None = None
) -> tuple[TensorMatch, ...]:
    """Tensors of ``shape`` and ``job`` whose size is the requested one, best first."""
    scene = scene or Scene()
    return _priced(requested_bytes, tuple(candidates(shape, job, scene)), scene, shape.name)


def tensors_of_unknown_model(requested_bytes: int, job: Job) -> tuple[TensorMatch, ...]:
    """Logits whose vocabulary is one of the catalogue's, for a model that is not known but whose tokens are stated."""
    from oomkb.catalog.models import all_models

    if requested_bytes <= _MIN_REQUEST_BYTES or job.objective == "inference":
        return ()
    sizes = {entry.config.get("vocab_size") for entry in all_models()}
    tried = tuple(vocabulary_candidates(job, sorted(v for v in sizes if isinstance(v, int) and v > 0)))
    return _priced(requested_bytes, tried, Scene(), "")


def _priced(requested_bytes: int, tried: tuple[Candidate, ...], scene: Scene, model: str) -> tuple[TensorMatch, ...]:
    if requested_bytes <= _MIN_REQUEST_BYTES:
        return ()
    rounding = 0.005 * (GIB if requested_bytes >= GIB else MIB)  # half of the last digit of the allocator's message
    low, high = requested_bytes - _LARGE_BLOCK - rounding, requested_bytes + rounding
    hits = [hit for candidate in tried if (hit := _try(candidate, low, high, scene, requested_bytes)) is not None]
    weights = {id(hit): 1 / (len(tried) * max(hit.chance, 1e-6)) for hit in hits}
    total = sum(weights.values()) + 1.0
    best = sorted(hits, key=lambda hit: hit.chance)[:_MAX_MATCHES]
    return tuple(_match(hit, weights[id(hit)] / total, model) for hit in best if weights[id(hit)] / total >= _LOWEST)


def _try(candidate: Candidate, low: float, high: float, scene: Scene, requested_bytes: int) -> _Hit | None:
    """Whether this candidate has the size, and with what chance a size of anything else would have matched it."""
    low, high = low * (1 - candidate.slack), high * (1 + candidate.slack)
    chance = (high - low) / (_SPREAD * requested_bytes) * max(len(candidate.counts), 1)
    if candidate.slack and _shards_ratio(scene, requested_bytes):
        chance *= _RATIO_CHANCE
    for count in candidate.counts:
        size = candidate.unit_bytes * count**candidate.power
        if low <= size <= high:
            both = _is_round(requested_bytes, high - requested_bytes) and _odd_part(round(size)) <= _ROUND
            return _Hit(candidate, count, size, max(chance, _ROUND_CHANCE) if both else chance)
    if not candidate.grid:
        return None
    if _is_round(requested_bytes, high - requested_bytes) and _odd_part(round(candidate.unit_bytes)) <= _ROUND:
        return None
    return _solved(candidate, low, high)


def _odd_part(size: int) -> int:
    """What is left of a size without its factors of two."""
    return size // (size & -size) if size > 0 else 0


def _is_round(requested_bytes: int, rounding: float) -> bool:
    """Whether a request, as far as its digits tell, is a power of two or three times one."""
    exponent = math.floor(math.log2(max(requested_bytes, 1)))
    return any(abs(part * 2**e - requested_bytes) <= rounding for e in (exponent - 1, exponent) for part in (1, 2, 3))


def _solved(candidate: Candidate, low: float, high: float) -> _Hit | None:
    """The roundest count that gives the size: a multiple of 8192 in a window of 20 says more than one of 256."""
    most, least = ((edge / candidate.unit_bytes) ** (1 / candidate.power) for edge in (high, low))
    grids = [g for g in (8192, 4096, 2048, 1024, 512, 256) if g >= candidate.grid]
    for grid in grids:
        count = math.floor(most / grid) * grid
        if max(least, grid) <= count <= _MAX_TOKENS:
            chance = min(1.0, len(grids) * (most - least) / grid)
            return _Hit(candidate, count, candidate.unit_bytes * count**candidate.power, chance)
    return None


def _shards_ratio(scene: Scene, requested_bytes: int) -> bool:
    """Whether what is allocated is a small multiple of half the request, as with states that come shard by shard."""
    if not scene.allocated_bytes:
        return False
    ratio = 2 * scene.allocated_bytes / requested_bytes
    return 2.5 <= ratio <= 17 and abs(ratio - round(ratio)) <= 0.04


def _match(hit: _Hit, match: float, model: str) -> TensorMatch:
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
        match=round(match, 3),
        cause=c.cause,
        note=say(f"tensor.{name}", part=part or model or "?"),
    )
