"""Which tensor has the size that was asked for: the tensors that a step allocates, matched, and coincidence priced.

A :class:`Candidate` either has a known size, or one unknown count (tokens, a sequence's length) that the request is
solved for; such a solution counts for something only where it lies on a coarse grid, because people choose round
numbers.

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
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any, Final

from oomdoc.diagnosis.result import TensorMatch
from oomdoc.evidence import say
from oomkb.catalog.models import all_models
from oomkb.dataclass import dataclass
from oomkb.memory.job import Job
from oomkb.memory.setting import PREFERENCE
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
    if requested_bytes <= _MIN_REQUEST_BYTES or job.objective == "inference":
        return ()
    return _priced(requested_bytes, tuple(_logits_of_any(job)), Scene(), "")


@cache
def _vocabularies() -> tuple[int, ...]:
    """The sizes of vocabulary that the catalogue's models have."""
    sizes = {entry.config.get("vocab_size") for entry in all_models()}
    return tuple(sorted(v for v in sizes if isinstance(v, int) and v > 0))


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
            both = both and not _is_made_there(candidate, scene)
            return _Hit(candidate, count, size, max(chance, _ROUND_CHANCE) if both else chance)
    if not candidate.grid:
        return None
    if _is_round(requested_bytes, high - requested_bytes) and _odd_part(round(candidate.unit_bytes)) <= _ROUND:
        return None
    return _solved(candidate, low, high)


def _is_made_there(candidate: Candidate, scene: Scene) -> bool:
    """Whether the failing line is the one that makes such a tensor: then a round size is no coincidence.

    transformers ``modeling_*.py``: ``eager_attention_forward`` multiplies queries and keys to ``attn_weights``.
    """
    return candidate.name == "attention-scores" and ("eager_attention" in scene.trace or "attn_weights" in scene.trace)


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


_WIDTHS: Final = (("float32", 4), ("bfloat16", 2))
_SHARDED: Final = frozenset({"zero3", "fsdp", "fsdp2", "hsdp"})
# What Qwen2-VL and its successors allow by default: 12.8 million pixels, one patch per 14 x 14 of them.
_LARGEST_IMAGE_PATCHES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Candidate:
    """``unit_bytes`` x count ** ``power`` bytes. ``counts`` are known counts; ``grid`` is that of an unknown one."""

    name: str
    cause: str
    dtype: str
    unit_bytes: float
    rest: tuple[int, ...] = ()
    """The other dimensions of its shape."""
    counts: tuple[int, ...] = ()
    grid: int = 0
    power: int = 1
    slack: float = 0.0
    """Relative padding that is usual for it (flat shards are padded to whole blocks)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where the failure happened, as far as known: it rules candidates out."""

    phase: str = "unknown"
    trace: str = ""
    allocated_bytes: int | None = None
    made_up: bool = False
    """Whether the shape was made up for a number of parameters."""


def candidates(shape: ModelShape, job: Job, scene: Scene) -> Iterator[Candidate]:
    """What could have been asked for in this phase.

    Of a shape that was made up for a number of parameters only that number is evidence: its logits may be those of
    any vocabulary.
    """
    serving = job.objective == "inference"
    phase = scene.phase
    if scene.made_up:
        if not serving and phase not in ("load", "eval", "generate"):
            yield from _shards(shape, job, scene)
            yield from _buckets(job)
        if not serving and phase in ("forward", "loss", "backward", "unknown"):
            yield from _logits_of_any(job)
        return
    if serving:
        yield from _cache(shape, job)
    if phase not in ("load", "optimizer-init", "optimizer-step", "save"):
        yield from _logits(shape, job, scene)
        yield from _attention(shape, job)
        yield from _layers(shape, job)
        yield from _vision(shape)
    if phase not in ("load", "eval") and not serving and phase != "generate":
        yield from _shards(shape, job, scene)
        yield from _buckets(job)
    yield from _matrices(shape, job, phase)


def _token_counts(job: Job) -> tuple[int, ...]:
    if not job.seq_len or "seq_len" in job.assumed:
        return ()
    batch = job.micro_batch or 1
    pairs = 2 if job.objective in PREFERENCE else 1
    found = [pairs * batch * job.seq_len, pairs * batch * (job.seq_len - 1), batch * job.seq_len]
    if job.completion_len:  # log-probabilities of the answers alone, the prompt's last token with them
        found += [batch * (job.completion_len + 1), batch * job.completion_len]
    return tuple(dict.fromkeys(found))


def _logits(shape: ModelShape, job: Job, scene: Scene) -> Iterator[Candidate]:
    counts = _token_counts(job)
    if counts and "row_l" in scene.trace:  # TRL ``utils.py: selective_log_softmax``, one sample after the other
        counts = tuple(dict.fromkeys((*counts, job.seq_len or 0)))
    vocabulary = shape.dims.vocab
    tp = job.tp or 1
    for split in sorted({1, tp}):
        for dtype, width in (*_WIDTHS, ("float32 and int64", 12)):
            name = {4: "fp32-logits", 2: "logits", 12: "sorted-logits"}[width]
            yield Candidate(name, "logits", dtype, vocabulary / split * width, (vocabulary // split,), counts, 256)


def _both(name: str, cause: str, units: float, rest: tuple[int, ...] = (), **more: Any) -> Iterator[Candidate]:
    """A tensor of so many values in fp32 and in 16 bits."""
    for dtype, width in _WIDTHS:
        yield Candidate(name, cause, dtype, width * units, rest, **more)


def _attention(shape: ModelShape, job: Job) -> Iterator[Candidate]:
    lengths = (job.seq_len,) if job.seq_len and "seq_len" not in job.assumed else ()
    heads = max(shape.dims.heads // (job.tp or 1), 1)
    batch = job.micro_batch or 1
    for dtype, width in _WIDTHS:
        yield Candidate(
            "attention-scores", "attention-scores", dtype, width * heads * batch, (batch, heads), lengths, 1024, power=2
        )
        yield Candidate("attention-mask", "attention-scores", dtype, width, (), lengths, 1024, power=2)


def _layers(shape: ModelShape, job: Job) -> Iterator[Candidate]:
    serving = job.objective == "inference"
    counts = _prefill_counts(shape, job) if serving else _token_counts(job)
    d = shape.dims
    tp = job.tp or 1
    # Engines multiply with the gate and the up projection in one; a row is no longer than it is stated to be.
    widths = [(name, width) for name, width in (("mlp-activation", d.ffn // tp), ("hidden-states", d.hidden))]
    if serving:
        widths.append(("mlp-activation", 2 * d.ffn // tp))
    for dtype, width in _WIDTHS:
        for name, columns in widths:
            grid = 0 if counts and not serving else 4096 if name == "hidden-states" else 1024
            yield Candidate(name, "activations", dtype, columns * width, (columns,), counts, grid)


def _prefill_counts(shape: ModelShape, job: Job) -> tuple[int, ...]:
    """Tokens that an engine takes at once when it warms up: those set, else a whole context."""
    limits = job.serving
    stated = (limits.max_num_batched_tokens, limits.max_model_len) if limits is not None else ()
    return tuple(dict.fromkeys(n for n in (*stated, shape.dims.max_positions) if n))


def _vision(shape: ModelShape) -> Iterator[Candidate]:
    tower = shape.vision
    if tower is None:
        return
    images = tuple(_LARGEST_IMAGE_PATCHES * n for n in (1, 2, 3, 4, 5, 6, 8))
    for dtype, width in _WIDTHS:
        yield Candidate(
            "image-scores", "attention-scores", dtype, width * tower.heads, (tower.heads,), images[:1], 4096, power=2
        )
        for name, units in (("image-qkv", 3 * tower.hidden), ("image-mlp", tower.ffn), ("image-hidden", tower.hidden)):
            yield Candidate(name, "vision-tokens", dtype, width * units, (units,), images, 8192)


def _cache(shape: ModelShape, job: Job) -> Iterator[Candidate]:
    """Keys and values of one sequence of the stated length: all layers in one buffer (llama.cpp), or one layer's."""
    length = (job.serving.max_model_len if job.serving is not None else None) or job.seq_len
    if not length or ("seq_len" in job.assumed and job.serving is None):
        return
    d, tp = shape.dims, job.tp or 1
    rows = max(d.kv_heads // tp, 1) * d.head_dim
    for dtype, width in (("float16", 2), ("int8", 1)):
        for layers in sorted({1, d.layers}):
            for both in (1, 2):
                unit = width * rows * layers * both
                yield Candidate("kv-cache", "kv-cache", dtype, unit, (layers * both, rows), (length,))


def _logits_of_any(job: Job) -> Iterator[Candidate]:
    """Logits of the stated tokens over every vocabulary that is in use, whole and split, for an unknown model."""
    counts = _token_counts(job)
    splits = sorted({1, job.tp or 1})
    for size, split in product(_vocabularies() if counts else (), splits):
        for dtype, width in _WIDTHS:
            name = "fp32-logits" if width == 4 else "logits"
            yield Candidate(name, "logits", dtype, size / split * width, (size // split,), counts)


def _shards(shape: ModelShape, job: Job, scene: Scene) -> Iterator[Candidate]:
    plain = "reducer" in scene.trace or "distributeddataparallel" in scene.trace
    if plain:  # DistributedDataParallel keeps every gradient a second time, in its buckets
        yield from _both("gradient-buckets", "model-states", shape.params, counts=(1,), slack=0.006)
        return
    world = job.dp or job.world or (job.gpus or 0) * (job.nodes or 1)
    for n in sorted({1, world} if world else {1, 2, 4, 8}):
        for dtype, width in _WIDTHS:
            name, cause = ("optimizer-shard", "optimizer-init") if width == 4 else ("gradient-shard", "model-states")
            yield Candidate(name, cause, dtype, width * shape.params / n, (), (1,), slack=0.006)


def _buckets(job: Job) -> Iterator[Candidate]:
    if not (job.sharding or "").startswith("zero"):
        return
    values: list[object] = list(job.buckets.values())  # "auto" among them, whatever the annotation says
    sizes = {int(v) for v in values if isinstance(v, int | float) and v >= 1e6} | {500_000_000}
    for size in sorted(sizes):
        yield from _both("bucket", "zero3-gather", size, counts=(1,))


def _matrices(shape: ModelShape, job: Job, phase: str) -> Iterator[Candidate]:
    d = shape.dims
    sharded = job.sharding in _SHARDED
    loading = phase in ("load", "engine-init") or job.objective == "inference"
    cause = "weights-load" if loading else "zero3-gather" if sharded else "model-states"
    tp = job.tp or 1
    seen: set[int] = set()
    matrices = [("embedding", d.vocab, d.embed_width)]
    for layer in shape.layers:
        matrices += [(m.name, m.outputs * m.count, m.inputs) for m in layer.linears if m.inputs * m.outputs >= 1 << 22]
    for name, rows, columns in matrices:
        size = rows * columns
        for split in sorted({1, tp}):
            if size // split in seen:
                continue
            seen.add(size // split)
            yield from _both(f"weight {name}", cause, size / split, (rows // split, columns), counts=(1,))
