"""Sums that prove an engine's part in a failure: its cache, its share of the card, its weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.accounts import WEIGHT_BYTES, Account, account_of, last_signal
from oomdoc.diagnosis.view import View, ranks_on_one_gpu
from oomkb.catalog import gpus
from oomkb.units import GIB

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
    refused = outcome is not None and outcome.kind == "device"
    spread = view.is_stated("tp") and last_signal(view, "sglang-load-end", "vllm-weights") is None
    starting = view.phase in ("load", "unknown") or (view.phase == "engine-init" and (refused or spread))
    if failure is None or failure.kind != "device" or not capacity or not starting:
        return
    if not view.serving and view.phase != "load":
        return  # of what is trained the weights are a part
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
        cause = "weights-load" if view.phase == "load" else "kv-cache"
        yield from account_of(view, cause, "weights-fill", {**sizes, **rest})


_FILLED: Final = 0.9
"""Share of the card that weights take so that context, workspace and a cache do not fit beside them."""
