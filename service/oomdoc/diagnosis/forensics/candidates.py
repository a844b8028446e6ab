"""The tensors that a step allocates, as sizes to compare a request with.

A :class:`Candidate` either has a known size, or one unknown count (tokens, a sequence's length) that the request is
solved for; such a solution counts for something only where it lies on a coarse grid, because people choose round
numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.job import Job
from oomkb.memory.setting import PREFERENCE
from oomkb.memory.shape import ModelShape

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

    Of a shape that was made up for a number of parameters only that number is evidence.
    """
    serving = job.objective == "inference"
    phase = scene.phase
    if scene.made_up:
        if not serving and phase not in ("load", "eval", "generate"):
            yield from _shards(shape, job, scene)
            yield from _buckets(job)
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
    found = (pairs * batch * job.seq_len, pairs * batch * (job.seq_len - 1), batch * job.seq_len)
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


def vocabulary_candidates(job: Job, vocabularies: Iterable[int]) -> Iterator[Candidate]:
    """Logits of the stated tokens over every vocabulary that is in use, where the model is not known."""
    counts = _token_counts(job)
    for size in vocabularies if counts else ():
        for dtype, width in _WIDTHS:
            yield Candidate("fp32-logits" if width == 4 else "logits", "logits", dtype, size * width, (size,), counts)


def _shards(shape: ModelShape, job: Job, scene: Scene) -> Iterator[Candidate]:
    plain = "reducer" in scene.trace or "distributeddataparallel" in scene.trace
    if plain:  # DistributedDataParallel keeps every gradient a second time, in its buckets
        for dtype, width in _WIDTHS:
            yield Candidate("gradient-buckets", "model-states", dtype, width * shape.params, (), (1,), slack=0.006)
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
        for dtype, width in _WIDTHS:
            yield Candidate("bucket", "zero3-gather", dtype, width * size, (), (1,))


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
            for dtype, width in _WIDTHS:
                yield Candidate(f"weight {name}", cause, dtype, width * size / split, (rows // split, columns), (1,))
