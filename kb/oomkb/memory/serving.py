"""Inference: weights, key/value cache, the largest batch's activations, CUDA graphs, and what engines reserve.

What an engine does with its share is in :mod:`oomkb.memory.engines`, what a sequence keeps in
:mod:`oomkb.memory.cache`. An engine takes the share of the card it was given whatever it serves, so what decides
whether it starts is not the size of the process but whether one request of ``max_model_len`` finds its cache.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.errors import Note, note
from oomkb.memory import engines
from oomkb.memory.activations import step_of
from oomkb.memory.cache import Pages, cache_bytes, cache_of, element_bytes
from oomkb.memory.device import Device, capacity_bytes_of
from oomkb.memory.estimate import Served
from oomkb.memory.extra_models import extra_shape
from oomkb.memory.job import ExtraModel, Job
from oomkb.memory.overhead import normal
from oomkb.memory.ranks import replicated, stated_count
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape
from oomkb.memory.states import GGUF_BYTES, QUANT_BYTES, layers_and_output, weight_bytes
from oomkb.units import GIB

Shapes = Mapping[str, ModelShape]
"""Shapes of other models by the name a job uses for them."""
_HEADS: Final = ("eagle", "mtp", "nextn", "medusa", "hydra")
_STEP: Final = 16
"""Tokens of a block of the cache: lengths are given in whole blocks."""
_USUAL_LENGTH: Final = 2048
"""Tokens of a sequence that a script generates where none are stated, as for training (``setting.py``)."""
_TAKEN_LENGTH: Final = 8192
"""Tokens of a server's request where no length is stated, no more than the model's own context."""
_SPECULATED: Final = 3
"""Tokens that a head speculates where nothing is said."""
# How closely the parts are known, relative to themselves (published start-up figures, tests/kb/memory/data).
_WEIGHTS_SIGMA: Final = 0.02
_ACTIVATIONS_SIGMA: Final = 0.2
_OUTSIDE_SIGMA_BYTES: Final = 0.25 * GIB
_GRAPHS_SIGMA: Final = 0.4
_CARD_SIGMA: Final = 0.02
"""How closely a process keeps to its share of the card, graphs and context included."""


def _draft_bytes(
    s: Setting, shape: ModelShape, shapes: Shapes, kv_dtype: str | None, tokens: float
) -> tuple[float, float, int]:
    """(weights on one GPU, cache of one sequence, heads on the target, which cache as one of its layers does).

    All models of the role ``draft``: vLLM and SGLang load them on the same GPUs, and their layers cache every token.

    A head of the EAGLE or multi-token kind is one decoder layer of the target's sizes with a projection of two hidden
    states (arXiv 2401.15077); embedding and output head are the target's own.
    """
    weights, cache, heads = 0.0, 0.0, 0
    for extra in s.job.extra_models or ():
        if extra.role != "draft" or extra.offload:
            continue
        other = _shape(extra, shapes)
        if other is None:
            heads += 1
            layer = max(shape.layers, key=lambda found: found.params)
            d = shape.dims
            weights += (layer.params + 2 * d.hidden * d.hidden) * 2.0 / s.tp
            split = 1 if d.kv_lora_rank else min(s.attention_tp, d.kv_heads)
            cache += d.kv_elements_per_token / split * element_bytes(s, kv_dtype) * tokens
        else:
            weights += other.params * 2.0 / s.tp
            cache += cache_bytes(s, other, kv_dtype, tokens)
    return weights, cache, heads


def _shape(extra: ExtraModel, shapes: Shapes) -> ModelShape | None:
    """The draft's own shape; ``None`` for a head on the target."""
    if isinstance(extra.model, str) and any(word in extra.model.lower() for word in _HEADS):
        return None
    return extra_shape(extra, shapes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingBytes(Served):
    """What one GPU of an inference engine holds."""

    weights: float
    activations: float
    graphs: float
    outside: float = 0.0
    """Outside of torch: context, communication."""
    budget: float = 0.0
    """What the engine's rule leaves to the cache; below zero where weights and activations exceed its share."""
    spread: float = 0.0
    """How closely the size of the process is known, one sigma."""
    drafts: float = 0.0
    """Weights of a draft model."""
    host: float = 0.0
    """Weights and cache of layers that lie in host memory."""
    by_engine: bool = True
    warnings: tuple[Note, ...] = ()

    @property
    def allocated(self) -> float:
        """All of it but what lies outside of torch."""
        return self.weights + self.drafts + self.cache_bytes + self.activations + self.graphs

    @property
    def process(self) -> float:
        """What the process takes of the card."""
        return self.allocated + self.outside

    @property
    def cache_spread(self) -> float:
        """How closely what is left to the cache is known, one sigma: of a share of the rest, that share of it."""
        rest = _WEIGHTS_SIGMA * self.weights + _ACTIVATIONS_SIGMA * self.activations + _OUTSIDE_SIGMA_BYTES
        return rest * self.budget / self.shared_bytes if self.of_the_rest and self.shared_bytes else rest


def served_length(job: Job, shape: ModelShape) -> int:
    """The ``max_model_len`` of a server, stated or taken."""
    stated = job.get("serving.max_model_len") or job.seq_len
    return stated or min(shape.dims.max_positions or _TAKEN_LENGTH, _TAKEN_LENGTH)


def serving_bytes(
    s: Setting, shape: ModelShape, device: Device | None, shapes: Shapes | None = None, *, length: int | None = None
) -> ServingBytes:
    """Weights, pool and activations of an engine, or of a plain ``generate`` call.

    :param length: price this ``max_model_len`` instead of the job's.
    """
    job = s.job
    engine = engines.engine_of(job, s, device)
    if engine is None:
        return _generate(s, shape)
    if engine.name == "vllm" and replicated(job):
        # docs, ``serving/data_parallel_deployment``: "expert layers form a group of size DP x TP"
        s = replace(s, etp=s.etp * s.dp)
    want = job.serving
    length = length or served_length(job, shape)
    kv_dtype = want.kv_dtype if want else None
    tokens, requests = _batch(job, engine, length, device)
    ahead = 0.0 if engine.first else float(tokens)
    drafts, draft_cache, heads = _draft_bytes(s, shape, shapes or {}, kv_dtype, length)
    cache = cache_of(
        s,
        shape,
        kv_dtype,
        ahead=ahead,
        pages=_pages(job, engine, heads=heads),
        kept=engine.window_share,
        spread=engine.rule == "exact",
    )
    whole = cache.bytes_at(length)
    share_held, cached, moved = _placement(engine, s, shape)
    cache = cache.part(cached)
    at_once = (want.concurrency if want else None) or 1
    needed = at_once * (cache.bytes_at(length) + draft_cache)
    measured, context = engines.outside_bytes(engine, s, device)
    weights = weight_bytes(s, shape, float(min(s.param_bytes, 4))) + engines.padding_bytes(engine, s, shape, device)
    held = ServingBytes(
        weights=weights * share_held,
        drafts=drafts,
        activations=engines.profile_bytes(engine, s, shape, tokens=tokens, requests=requests),
        graphs=engines.graph_bytes(job, s, shape, requests=requests),
        cache_bytes=needed,
        needed_bytes=needed,
        length=length,
        outside=measured + context,
        at_once=at_once,
        of_the_rest=engine.of_the_rest,
        host=moved + at_once * whole * (1 - cached) * s.pp,
    )
    capacity = capacity_bytes_of(job, device)
    if capacity is None:
        return held
    pictures = shape.vision is not None
    sizes = {"measured": measured, "context": context, "tokens": tokens}
    shared, budget = _budget(job, engine, s, held, capacity, pictures=pictures, **sizes)
    share = needed / (needed - at_once * draft_cache) if needed > at_once * draft_cache else 1.0
    largest = cache.longest(max(0.0, budget) / share / at_once)
    pool = min(needed, budget) if engine.rule == "exact" else budget
    held = replace(held, budget=budget, shared_bytes=shared, cache_bytes=max(0.0, pool), largest_length=largest)
    held = replace(held, spread=_spread(engine, held))
    return replace(held, warnings=_short(held)) if budget < needed else held


def _placement(engine: engines.Engine, s: Setting, shape: ModelShape) -> tuple[float, float, float]:
    """(share of the weights that lies on the cards, share of the cache, bytes of weights in host memory).

    The last layers are on the cards, the output counts as one of them; experts are moved from the first layers.

    llama.cpp of 2026: ``i_gpu_start = max(n_layer + 1 - n_gpu_layers, 0)`` (``src/llama-model.cpp``); ``--n-cpu-moe``
    keeps the experts of the first layers in host memory (``common/arg.cpp``).
    """
    want, layers = s.job.serving, shape.layer_count
    if want is None or engine.rule != "exact" or (want.gpu_layers is None and want.cpu_expert_layers is None):
        return 1.0, 1.0, 0.0
    whole = weight_bytes(replace(s, pp=1), shape, float(min(s.param_bytes, 2)))
    each = GGUF_BYTES.get(s.quant) or QUANT_BYTES.get(s.quant) or float(min(s.param_bytes, 2))
    output = min(whole, layers_and_output(s, shape, each)[1])
    body = whole - output
    slots = layers + 1 if want.gpu_layers is None else min(want.gpu_layers, layers + 1)
    on = max(0, slots - 1)
    moved = max(0, min(want.cpu_expert_layers or 0, layers) - (layers - on))
    held = on / layers * body + (output if slots else 0.0) - moved * shape.expert_params * each / layers
    return held / whole, on / layers, whole - held


def _pages(job: Job, engine: engines.Engine, *, heads: int) -> Pages | None:
    if engine.name != "vllm" or engine.first:
        return None
    speculated = stated_count(job, "num_speculative_tokens") or _SPECULATED
    return Pages(2 + speculated if heads else 1, heads)


def _generate(s: Setting, shape: ModelShape) -> ServingBytes:
    """A ``generate`` call: a cache as long as the sequences are, all of them at once, after one pass over the prompts.

    The cache grows with the sequences and no engine reserves the model's whole context, so where no length is stated
    a usual one is taken.
    """
    job = s.job
    length = job.seq_len or min(shape.dims.max_positions or _USUAL_LENGTH, _USUAL_LENGTH)
    needed = cache_bytes(s, shape, None, length)
    prompt = min(length, job.prompt_len or max(1, length - (job.completion_len or 0)))
    activations = step_of(s, shape).peak("forward", float(s.batch * prompt), float(s.batch * prompt**2))[0]
    return ServingBytes(
        weights=weight_bytes(s, shape, float(s.param_bytes)),
        activations=activations + s.batch * shape.dims.vocab / s.tp * 10,
        graphs=0.0,
        cache_bytes=needed * s.batch,
        needed_bytes=needed,
        length=length,
        by_engine=False,
    )


def _batch(job: Job, engine: engines.Engine, length: int, device: Device | None) -> tuple[int, int]:
    """(tokens, requests) of the largest batch."""
    want, capacity = job.serving, capacity_bytes_of(job, device)
    large = capacity is not None and capacity >= 70 * GIB
    requests = (want.max_num_seqs if want else None) or (1024 if large and not engine.first else 256)
    if want and want.max_num_batched_tokens:
        return want.max_num_batched_tokens, requests
    if engine.first:  # the whole prompt at once, up to 32k; longer ones in chunks
        return (max(length, 2048) if length <= 32768 else 2048), requests
    return (8192 if large else 2048), requests


def _budget(
    job: Job,
    engine: engines.Engine,
    s: Setting,
    held: ServingBytes,
    capacity: float,
    *,
    measured: float,
    context: float,
    tokens: float,
    pictures: bool,
) -> tuple[float, float]:
    """What the engine's share is a share of, and what its rule leaves to the cache."""
    want = job.serving
    stated = want.gpu_memory_utilization if want else None
    weights = held.weights + held.drafts
    if engine.rule == "static":
        share = stated or engines.static_share(capacity, tokens, tp=s.tp, pp=s.pp, graphs=held.graphs > 0)
        if pictures and engine.version < (0, 5):
            share *= 0.95  # SGLang 0.4.4 ``model_runner.py``: "Automatically reduce --mem-fraction-static"
        shared = capacity - context - measured
        return shared, shared * share - weights
    if engine.of_the_rest:
        batch = held.activations if engine.rule == "profiled" else 0.0
        shared = max(0.0, capacity - context - measured - weights - batch)
        return shared, shared * (stated or 0.9)
    if engine.rule == "exact":
        return capacity, capacity - weights - held.activations - measured - context
    graphs = held.graphs if engine.name == "vllm" and engine.version >= (0, 21) else 0.0
    return capacity, capacity * (stated or 0.9) - weights - held.activations - measured - graphs


def _spread(engine: engines.Engine, held: ServingBytes) -> float:
    """A share of the card is kept to; where it is one of the rest, the rest takes up what the weights are off by."""
    if engine.of_the_rest:
        batch = 0.0 if engine.rule == "profiled" else _ACTIVATIONS_SIGMA * held.activations
        return batch + _GRAPHS_SIGMA * held.graphs + _OUTSIDE_SIGMA_BYTES
    return _CARD_SIGMA * held.process


def _short(held: ServingBytes) -> tuple[Note, ...]:
    most = max(0, (held.largest_length or 0) // _STEP * _STEP)
    if not most:
        weights = held.weights + held.drafts
        return (note("estimate.no-cache", weights_bytes=weights, needed_bytes=held.needed_bytes, length=held.length),)
    sizes = {"length": held.length, "needed_bytes": held.needed_bytes, "left_bytes": held.cache_bytes}
    if held.at_once > 1:
        together = int(held.at_once * held.cache_bytes / held.needed_bytes)
        return (note("estimate.short-cache-together", count=held.at_once, together=together, **sizes),)
    return (note("estimate.short-cache", most=most, **sizes),)


def largest_max_model_len(
    s: Setting, shape: ModelShape, device: Device | None, shapes: Shapes | None = None
) -> int | None:
    """The longest ``max_model_len`` with which the engine starts, in whole blocks; ``None`` where no card is known.

    Where the profiling batch grows with the length (vLLM before 0.8), pool and need are weighed anew at each length.
    """
    found = serving_bytes(s, shape, device, shapes)
    if found.largest_length is None:
        return None
    engine = engines.engine_of(s.job, s, device)
    if engine is None or not engine.first:
        return found.largest_length // _STEP * _STEP

    def short(blocks: int) -> bool:
        at = serving_bytes(s, shape, device, shapes, length=blocks * _STEP)
        return at.needed_bytes > at.budget

    most = max(1, (shape.dims.max_positions or 32768) // _STEP)
    return bisect_left(range(1, most + 1), True, key=short) * _STEP


def start_probability(found: ServingBytes, process: float, room: float) -> float:
    """The probability that one request of the longest length finds its cache, and that the process fits ``room``.

    What is uncertain is how much loading and profiling leave to the cache, not how much of the card the engine takes.
    """
    starts = found.cache_bytes > 0 or not found.needed_bytes
    cache = normal((found.budget - found.needed_bytes) / max(found.cache_spread, 1.0)) if starts else 0.0
    card = normal((room - process) / max(found.spread, 1.0))
    return round(min(cache, card), 4)
