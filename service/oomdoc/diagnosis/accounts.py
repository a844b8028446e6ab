"""Sums that prove an engine's part in a failure: its cache, its share of the card, its weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from oomdoc.diagnosis.forms import most_of
from oomdoc.diagnosis.result import CauseFinding
from oomdoc.diagnosis.view import View, ranks_on_one_gpu
from oomdoc.evidence import Message, Signal, Span, say
from oomkb.catalog import gpus
from oomkb.dataclass import dataclass
from oomkb.units import GIB

WEIGHT_BYTES: Final = 2
TUNES: Final = frozenset(
    {"do_autotuning", "benchmark_in_current_process", "autotune_to_one_config", "benchmark_all_configs"}
)
"""Functions in which Inductor tries kernels: torch ``_inductor/select_algorithm.py`` and ``triton_heuristics.py``."""


@dataclass(frozen=True, slots=True)
class Account:
    """What a sum says of the cause."""

    cause: str
    why: Message
    span: Span


def account_of(
    view: View, cause: str, words: str, values: Mapping[str, Any], span: Span | None = None
) -> Iterator[Account]:
    """A cause with its sum, at a line that shows it or at that of the failure."""
    if span is None and view.failure is not None:
        span = view.failure.signal.span
    if span is not None:
        yield Account(cause, say(f"account.{words}", **values), span)


def last_signal(view: View, *names: str) -> Signal | None:
    """The last signal of one of these names."""
    return next(iter(reversed(list(view.evidence.find(*names)))), None)


_LEAST_STATES: Final = 4
"""Bytes per parameter of a weight and its gradient in 16 bits."""
ALMOST: Final = 0.93
"""Share of a card that weights may take so that nothing which is computed fits beside them."""
FAR_FROM_FULL: Final = 0.85
EQUAL: Final = 0.01
"""Part by which two sizes of one thing may differ."""


def _whole_on_a_card(view: View) -> bool:
    """Whether a named model is trained with all of its weights on one card, past loading and before saving."""
    job = view.job
    split = job.sharding not in (None, "none", "ddp") or job.offload or (job.tp or 1) * (job.pp or 1) > 1
    named = view.is_stated("model") or view.is_stated("params_b")
    return named and not split and view.phase not in ("load", "eval", "save")


def states_alone(view: View) -> Iterator[Account]:
    """Weights and gradients in 16 bits, whole on one card, are more than the card: no other setting changes that."""
    failure, capacity = view.failure, view.bytes_of("capacity")
    if failure is None or failure.kind != "device" or not capacity or view.estimate is None or view.serving:
        return
    if view.stated("method") != "full" or not _whole_on_a_card(view):
        return
    least = _LEAST_STATES * view.estimate.params
    loaded = (view.bytes_of("allocated") or capacity) >= least / 2  # else they are split, or not those of this model
    if least > capacity and loaded:
        yield from account_of(view, "model-states", "states-alone", {"states_bytes": least, "capacity_bytes": capacity})


def states_created(view: View) -> Iterator[Account]:
    """The failing line makes the optimizer's states, and with them a card holds more than it has.

    torch ``optim/adamw.py``, TransformerEngine and apex ``fused_adam.py``, DeepSpeed ``zero/stage_1_and_2.py``,
    bitsandbytes ``optim/optimizer.py``.
    """
    capacity, states = view.bytes_of("capacity"), view.state_bytes
    if view.failure is None or not capacity or states is None or states <= capacity or view.serving:
        return
    innermost = view.trace.rpartition("\n")[2]
    if view.phase in ("optimizer-init", "optimizer-step") and any(name in innermost for name in _MAKES_STATES):
        yield from account_of(view, "optimizer-init", "states", {"states_bytes": states, "capacity_bytes": capacity})


_MAKES_STATES: Final = ("exp_avg", "_init_group", "initialize_optimizer_states", "init_state")


def states_of_a_rank(view: View) -> Iterator[Account]:
    """What each rank of a model that is split over several keeps of its part, whole, is more than the card."""
    failure, capacity, job, states = view.failure, view.bytes_of("capacity"), view.job, view.state_bytes
    if failure is None or failure.kind != "device" or not capacity or states is None or not view.evidence.documents:
        return
    split = (job.tp or 1) * (job.pp or 1) > 1 and not (job.ep or 1) > 1 and job.sharding in (None, "none", "ddp")
    if not split or job.method != "full" or job.offload or view.phase in ("load", "eval", "save"):
        return
    filled = (view.bytes_of("allocated") or 0) >= FAR_FROM_FULL * capacity
    if states >= _PLAINLY_MORE * capacity and filled:
        sizes = {"states_bytes": states, "capacity_bytes": capacity}
        yield from account_of(view, "model-states", "states-of-rank", sizes)


_PLAINLY_MORE: Final = 1.25
"""Of a card: states that the arithmetic has at so much are more than it, however little it may be off."""


def frozen_alone(view: View) -> Iterator[Account]:
    """The weights of a model with adapters, whole on one card, leave no room for anything that is computed."""
    capacity, job, held = view.bytes_of("capacity"), view.job, view.bytes_of("allocated")
    if view.failure is None or not capacity or view.serving or not _whole_on_a_card(view):
        return
    if job.method not in ("lora", "freeze") or job.rollout is not None:
        return
    if view.weight_bytes >= ALMOST * capacity and (held or capacity) >= ALMOST * view.weight_bytes:
        sizes = {"weight_bytes": view.weight_bytes, "capacity_bytes": capacity}
        yield from account_of(view, "model-states", "frozen-alone", sizes)


def with_states(view: View, causes: tuple[CauseFinding, ...]) -> tuple[CauseFinding, ...]:
    """With the sum of the states among the first cause's reasons, where they are more than the card has."""
    states, capacity = view.state_bytes, view.bytes_of("capacity")
    if not causes or causes[0].cause not in _OF_STATES or not states or not capacity or states <= capacity:
        return causes
    first, said = causes[0], say("account.states", states_bytes=states, capacity_bytes=capacity)
    if any(why.key.startswith("account.") for why in first.why[:1]):
        return causes
    others = (why for why in first.why if why.key != "feature.states")
    return (replace(first, why=(said, *others)), *causes[1:])


_OF_STATES: Final = frozenset({"model-states", "optimizer-init"})


_MIN_ENGINE_PART: Final = 0.3
"""Share of the card from which another process may be a rollout engine."""
_MIN_ENGINE_SHARE: Final = 0.5
"""Share of what was held that is most of it."""
_CACHE_MAKERS: Final = (
    *("_allocate_kv_cache", "allocate_gpu_cache", "memory_pool.py _create_buffers"),
    "transformers/cache_utils.py update",
)
"""Functions that allocate an engine's KV cache: vLLM 0.2-0.11 ``worker/cache_engine.py``,
``v1/worker/gpu_model_runner.py`` and vllm-ascend's ``worker/model_runner_v1.py``; LMDeploy 0.6-0.9
``pytorch/engine/cache_engine.py``; SGLang 0.3-0.5 ``mem_cache/memory_pool.py``; in a script
transformers 4.36-4.57 ``cache_utils.py``, ``DynamicCache.update``.
"""


def refused_cache(view: View) -> Iterator[Account]:
    """The buffer that was refused is the one for the KV cache, by the engine's own next line."""
    if view.failure is not None and view.failure.signal.name == "ggml-cache-refused":
        yield from account_of(view, "kv-cache", "cache-refused", {"cache_bytes": view.failure.requested_bytes or 0})


def cache_of_context(view: View) -> Iterator[Account]:
    """The buffer that was refused has the size of the cache for the context that is stated."""
    wanted, shape, serving = view.bytes_of("requested"), view.shape, view.job.serving
    if view.failure is None or not wanted or shape is None or not view.serving or serving is None:
        return
    each = (
        shape.dims.layers
        * shape.dims.kv_elements_per_token
        * CACHE_BYTES.get(str(serving.kv_dtype), float(WEIGHT_BYTES))
    )
    for length in (serving.max_model_len, view.job.seq_len):
        if length and abs(wanted - length * each) <= EQUAL * wanted:
            sizes = {"cache_bytes": wanted, "tokens": length, "each": f"{each / 1024:,.0f} KiB"}
            yield from account_of(view, "kv-cache", "cache-of-context", sizes)
            return


CACHE_BYTES: Final = {"fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "int8": 1.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""Bytes of a cached value; ``ggml-common.h``: 34 and 18 bytes for a block of 32."""


def cache_beyond(view: View) -> Iterator[Account]:
    """A script that generates: without the cache of its batch at the stated length it fits, with it not."""
    estimate, capacity, length = view.estimate, view.bytes_of("capacity"), view.stated("seq_len")
    if estimate is None or not capacity or not length or view.objective != "inference" or view.bytes_of("requested"):
        return
    cache = most_of(estimate, "kv cache")
    if view.phase == "generate" and estimate.process_bytes - cache <= capacity < estimate.process_bytes:
        outcome = view.evidence.outcome
        sizes = {"cache_bytes": cache, "weight_bytes": view.weight_bytes, "capacity_bytes": capacity}
        counts = {"count": view.job.micro_batch or 1, "tokens": int(length)}
        yield from account_of(view, "kv-cache", "cache-beyond", {**sizes, **counts}, outcome.span if outcome else None)


def allocates_cache(view: View) -> Iterator[Account]:
    """What was refused was asked for by the function that allocates the KV cache: the weights are on the card."""
    innermost = " ".join(view.trace.rpartition("\n")[2].split())
    if view.failure is not None and any(name in innermost for name in _CACHE_MAKERS):
        yield from account_of(view, "kv-cache", "allocates-cache", {}, view.failure.frames[-1].span)


def room_taken(view: View) -> Iterator[Account]:
    """The first buffer of weights was refused although an empty card has room for it: something else is on the card."""
    failure, wanted = view.failure, view.bytes_of("requested")
    if failure is None or failure.signal.name != "ggml-alloc-failed" or not wanted or view.bytes_of("other_process"):
        return
    card = gpus.find(str(view.job.gpu)) if view.job.gpu else None
    capacity = view.bytes_of("capacity") or (card.capacity_bytes if card is not None else 0)
    least = card.capacity_interval_bytes[0] if card is not None and card.capacity_interval_bytes else capacity
    if any(s.data.get("what") in ("KV", "compute") for s in view.evidence.find("llama-cpp-buffers")):
        return  # the weights are on the card
    if view.shape is not None and abs(wanted - view.weight_bytes) > _SAME_WEIGHTS * view.weight_bytes:
        return  # not the buffer of the weights, or of a part of them
    if wanted + _LOADER_BYTES > least or capacity - wanted < _ROOM_BYTES:
        return
    if last_signal(view, "llama-cpp-free") is None:
        sizes = {"wanted_bytes": wanted, "capacity_bytes": capacity, "rest_bytes": capacity - wanted - _LOADER_BYTES}
        yield from account_of(view, "other-process", "room-taken", sizes)


_SAME_WEIGHTS: Final = 0.15
"""How far the buffer of the weights may be from what is predicted for a file of that format."""
_LOADER_BYTES: Final = GIB // 2
"""What a process that loads holds beside its buffers: the context of the driver."""
_ROOM_BYTES: Final = 2 * GIB
"""Room beside a refused buffer that no context explains."""


def cache_too_much(view: View) -> Iterator[Account]:
    """Without the cache it would fit, with it not, by the engine's own sum."""
    memory = last_signal(view, "ollama-memory")
    if memory is not None:
        full, cache, free = (memory.data[f"{n}_bytes"] for n in ("full", "kv", "available"))
        if full > free >= full - cache:
            sizes = {"full_bytes": full, "cache_bytes": cache, "free_bytes": free}
            yield from account_of(view, "kv-cache", "cache-sum", sizes, memory.span)
    buffers = {str(s.data.get("what")): s for s in view.evidence.find("llama-cpp-buffers") if s.data.get("size_bytes")}
    cache_buffer, refused = buffers.get("KV"), view.failure
    if refused is not None and refused.signal.name == "ggml-compute-refused" and cache_buffer is not None:
        cache, wanted = cache_buffer.data["size_bytes"], refused.requested_bytes or 0
        if cache > wanted > 0:
            sizes = {"cache_bytes": cache, "compute_bytes": wanted}
            yield from account_of(view, "kv-cache", "cache-beside-compute", sizes, cache_buffer.span)


def engine_beside(view: View) -> Iterator[Account]:
    """A rollout engine that keeps its cache while the same card trains: most of what was held is its."""
    held, rollout = view.bytes_of("allocated"), view.job.rollout
    cache = last_signal(view, "vllm-kv-cache-memory")
    if held is None or cache is None or rollout is None or view.serving:
        return
    if rollout.sleep or rollout.colocated is False or view.shape is None:
        return
    weights = WEIGHT_BYTES * view.shape.params / (rollout.tensor_parallel or 1)
    engine = cache.data["kv_cache_bytes"] + weights
    if _MIN_ENGINE_SHARE * held <= engine <= held:
        sizes = {"engine_bytes": engine, "cache_bytes": cache.data["kv_cache_bytes"], "held_bytes": held}
        yield from account_of(view, "rollout-engine", "engine", sizes, cache.span)


def engine_unnamed(view: View) -> Iterator[Account]:
    """Reinforcement learning with an engine on the trainer's cards: what a process beside the trainer holds is its."""
    failure, capacity = view.failure, view.bytes_of("capacity")
    if failure is None or not failure.other_process_bytes or not capacity or view.objective not in ("grpo", "ppo"):
        return
    rollout = view.job.rollout
    apart = rollout is not None and rollout.colocated is False
    if failure.other_process_bytes >= _MIN_ENGINE_PART * capacity and not apart and not ranks_on_one_gpu(view.evidence):
        sizes = {"others_bytes": failure.other_process_bytes, "capacity_bytes": capacity}
        yield from account_of(view, "rollout-engine", "engine-unnamed", sizes)


def weights_alone(view: View) -> Iterator[Account]:
    """The weights that one card would hold are more than the card, whatever the engine says of its cache."""
    failure, capacity = view.failure, view.bytes_of("capacity")
    # An engine that looks for room for its cache, or warms up, has its weights on the card.
    outcome = view.evidence.outcome
    refused = outcome is not None and outcome.tells_of_shortage
    spread = view.is_stated("tp") and last_signal(view, "sglang-load-end", "vllm-weights") is None
    starting = view.phase in ("load", "unknown") or (view.phase == "engine-init" and (refused or spread))
    if failure is None or failure.kind != "device" or not capacity or not starting:
        return
    if not view.serving and view.phase != "load":
        return  # of what is trained the weights are a part
    if any(sign.name == "activations/calibration" for sign in view.evidence.signs):
        return  # what is quantised passes the card layer by layer
    # Those that are seen to take part: each rank that trains holds its own copy.
    own = view.is_stated("tp") or (not view.serving and (view.ranks or 1) > 1)
    cards = 1 if own else 1 + failure.signal.data.get("device", 0)
    if view.stated("model") is not None and view.weight_bytes > cards * capacity and not view.job.offload:
        sizes = {"weight_bytes": view.weight_bytes, "capacity_bytes": capacity}
        yield from account_of(view, "weights-load", "weights-alone", sizes)


def share_below_weights(view: View) -> Iterator[Account]:
    """The share that an engine may take for weights and cache is less than the weights that it has loaded."""
    before, after = last_signal(view, "sglang-load-begin"), last_signal(view, "sglang-load-end")
    share = view.stated("serving.gpu_memory_utilization")
    if after is None or not share or (before is None and not after.data.get("weights_bytes")):
        return
    free = before.data["free_bytes"] if before is not None else after.data["weights_bytes"] + after.data["free_bytes"]
    weights = after.data.get("weights_bytes") or free - after.data["free_bytes"]
    if share * free < weights:
        sizes = {"given_bytes": share * free, "capacity_bytes": free, "weight_bytes": weights}
        shares = {"share": share, "least": f"{weights / free + 0.01:.2f}"}
        yield from account_of(view, "kv-cache", "share-below-weights", {**shares, **sizes}, after.span)


def warmed_up(view: View) -> Iterator[Account]:
    """VLLM's warm-up makes the fp32 logits of all requests at once; the share that was set leaves no room for them."""
    found, shape = last_signal(view, "vllm-sampler-warmup"), view.shape
    share, most = (view.stated(f"serving.{name}") for name in ("gpu_memory_utilization", "max_num_seqs"))
    requests = (found.data.get("requests") if found is not None else None) or most
    if found is None or shape is None or not requests or not (share or most):
        return
    sizes = {
        "requests": f"{requests:,}",
        "words": f"{shape.dims.vocab:,}",
        "size_bytes": 4 * requests * shape.dims.vocab,
    }
    yield from account_of(view, "kv-cache", "warmed-up", sizes, found.span)


def weights_fill(view: View) -> Iterator[Account]:
    """The weights fit the card and next to nothing does beside them: no share of the rest holds a cache."""
    failure, capacity = view.failure, view.bytes_of("capacity")
    if failure is None or failure.kind != "device" or not capacity or not view.serving or view.job.offload:
        return
    named = view.stated("model") is not None and view.phase in ("load", "engine-init", "unknown")
    if named and _FILLED * capacity <= view.weight_bytes <= capacity:
        sizes = {"weight_bytes": view.weight_bytes, "capacity_bytes": capacity}
        rest = {"rest_bytes": capacity - view.weight_bytes}
        full = view.phase == "unknown" and view.weight_bytes >= _ALL_FILLED * capacity
        cause = "weights-load" if view.phase == "load" or full else "kv-cache"
        yield from account_of(view, cause, "weights-fill", {**sizes, **rest})


_ALL_FILLED: Final = 0.96
"""The same of a card by its name, which has a little less, from which loading alone leaves nothing."""
_FILLED: Final = 0.9
"""Share of the card that weights take so that context, workspace and a cache do not fit beside them."""
