"""What a server holds: its weights, its cache, its graphs, its share of the card."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Variant, remedy
from oomdoc.diagnosis.fixes.hardware import has_cuda
from oomdoc.evidence import say
from oomkb.frameworks import has, supports
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job
from oomkb.memory.serving import largest_max_model_len, served_length
from oomkb.memory.setting import resolve_setting
from oomkb.memory.states import GGUF_BYTES

OUTSIDE: Final = frozenset(
    {"logits", "activations", "attention-scores", "cuda-graph", "vision-tokens", "other-process"}
)
"""Causes that take memory beside a server's pool."""
_HIGHEST: Final = 0.95
_LOWEST: Final = 0.5
_TOKENS: Final = "serving.max_num_batched_tokens"
_FILES: Final = {
    **{"q8_0": 0.8, "q6_k": 0.9, "q5_k_m": 1.0, "q4_k_m": 1.1, "iq4_xs": 1.3, "q3_k_m": 2.2, "iq3_xxs": 3.2},
    **{"q2_k": 4.0, "iq2_xs": 5.5},
}
"""Files of llama.cpp, the largest first, and what each costs: below four bits answers get visibly worse."""


@remedy("same-numbers", "serving", reduces=("activations",))
def serving_batched_tokens(job: Job, context: Context) -> Iterator[Variant]:
    """Fewer tokens per forward pass: chunked prefill in smaller pieces, a lower activation peak."""
    now = job.get(_TOKENS)
    if now is None or not context.has(_TOKENS) or context.causes[:1] == ("cuda-graph",):
        return  # no prompt has been computed yet when graphs are captured
    # Without chunks a whole prompt has to fit into one pass, or the engine refuses to start.
    least = 0 if context.has("chunked") else job.prompt_len or job.get("serving.max_model_len") or 0
    for tokens in (512, 256, 128) if context.has("spills") else sorted({least, 8192, 4096, 2048}, reverse=True):
        if max(least, 1) <= tokens < now:
            yield Variant(fields={_TOKENS: tokens}, effort=0.5)


@remedy("same-numbers", "serving", reduces=("graph", "CUDA graphs"))
def serving_graphs(job: Job, context: Context) -> Iterator[Variant]:
    """CUDA graphs for small batches only: most of the speed, a part of what the captured graphs hold."""
    if job.get("serving.cuda_graphs") is False or not context.has("serving.graph_batch"):
        return
    now = job.get("serving.graph_batch") or job.get("serving.max_num_seqs")
    for rank, size in enumerate((64, 32, 16, 8)):
        if now is None or size < now:
            yield Variant(fields={"serving.graph_batch": size}, effort=0.4 + 0.1 * rank)


@remedy("changed-numerics", "serving", reduces=("kv",))
def serving_kv_dtype(job: Job, context: Context) -> Iterator[Variant]:
    """An 8-bit KV cache: half the bytes per token, where the hardware has fp8; int8 where that is what the engine has
    (LMDeploy ``docs/en/quantization/kv_quant.md``); llama.cpp's own blocks on any card.
    """
    if job.get("serving.kv_dtype") not in (None, "auto", "bf16", "fp16", "bfloat16", "float16"):
        return
    if context.has("spills"):
        line = line_of(context.framework, "kv-q8_0")
        how = (say("fixes.serving-kv-dtype.how", line=line),) if line else ()
        yield Variant(fields={"serving.kv_dtype": "q8_0"}, effort=0.5, notes=how)
    elif context.has("serving.kv_dtype") and context.device is not None:
        has_word = partial(supports, context.framework, "serving.kv_dtype")
        whole = has_word("int8") and not has_word("fp8")
        if whole or context.can("fp8"):
            yield Variant(fields={"serving.kv_dtype": "int8" if whole else "fp8"}, effort=0.5)


@remedy("same-numbers", "serving", reduces=("kv", "activations"))
def serving_length(job: Job, context: Context) -> Iterator[Variant]:
    """The longest request a server accepts: one request of this length must fit into the KV cache."""
    if not context.has("serving.max_model_len"):
        return
    now = _accepted(job, context)
    lengths = {131072, 65536, 49152, 32768, 24576, 16384, 12288, 8192, 4096, 2048}
    if context.has("spills"):  # what it prints of its cache tells no length
        lengths |= {28672, 20480, 14336, 10240}
    held = _held(job, context)
    if held is not None and 256 <= held < now:
        lengths.add(held)  # longer ones for what makes room besides
    said = context.facts.get("engine_max_model_len")
    notes = (say("fixes.serving-length.engine", length=f"{int(said):,}"),) if said else ()
    whole = not context.has("chunked") and _TOKENS not in job.assumed
    slots = job.get("serving.max_num_seqs") or 1 if line_of(context.framework, "slots") else 1
    # What the cache holds as it is comes first: it is the one where no other change can be priced.
    for length in sorted((n for n in lengths if n < now), key=lambda n: (n != held, -n)):
        values = {"count": slots, "each": f"{length // slots:,}", "length": f"{length:,}"}
        shared = (say("fixes.serving-length.slots", **values),) if slots > 1 else ()
        fields = {"serving.max_model_len": length}
        if whole and (job.get(_TOKENS) or 0) > length:
            fields[_TOKENS] = length
        if (job.prompt_len or 0) >= length:  # the prompt's own limit goes down with it, the answer keeps its room
            fields["prompt_len"] = length - min(length // 2, max(1, now - (job.prompt_len or 0)))
        yield Variant(fields=fields, effort=0.1 + 0.3 * math.log2(now / length), notes=(*notes, *shared))


def _accepted(job: Job, context: Context) -> int:
    """The length that is stated, else the one that the model of what a server holds takes; 0 for an unknown model."""
    stated = job.get("serving.max_model_len")
    return stated or (served_length(job, context.shape) if context.shape is not None else 0)


def _held(job: Job, context: Context) -> int | None:
    """The longest request that the cache holds, in steps of 256: as the engine says, else as computed."""
    said = context.facts.get("engine_max_model_len")
    if said:
        return int(said * 0.98) // 256 * 256
    if context.shape is None or context.device is None:
        beside = context.facts.get("length_beside_weights")
        return None if beside is None else beside // 256 * 256
    found = largest_max_model_len(resolve_setting(job, context.shape), context.shape, context.device)
    return None if found is None else int(found * 0.95) // 256 * 256


@remedy("changed-numerics", "serving", reduces=("weights",))
def serving_quant(job: Job, context: Context) -> Iterator[Variant]:
    """Quantised weights: FP8 where the hardware multiplies it, else a 4-bit checkpoint (AWQ or GPTQ) of the same model;
    of llama.cpp's files the next smaller one; in a script of its own, bitsandbytes while the weights are loaded.
    """
    if context.has("spills"):
        yield from _smaller_files(job, context)
        return
    if context.device is None:
        return
    own_loading = context.script and context.has("qlora")
    if own_loading and job.quant == "int8":
        yield Variant(fields={"quant": "nf4"}, effort=0.8)
    if job.quant not in (None, "none"):
        return
    if own_loading:
        yield Variant(fields={"quant": "int8"}, effort=0.8)
        yield Variant(fields={"quant": "nf4"}, effort=1.0)
    if not context.has("serving.quant"):
        return
    if context.can("fp8"):
        on_load = context.has("quant-on-load") and _holds_whole_weights(job, context)
        how = () if on_load else (say("fixes.serving-quant.how-fp8"),)
        yield Variant(fields={"quant": "fp8"}, effort=0.8, notes=how)
    if has_cuda(context.device):
        yield Variant(fields={"quant": "awq-int4"}, effort=1.5, notes=(say("fixes.serving-quant.how"),))


def _holds_whole_weights(job: Job, context: Context) -> bool:
    """Whether a card holds its part of the 16-bit weights, which are loaded whole before they are quantised
    (vLLM ``model_loader/base_loader.py``, ``process_weights_after_loading``).
    """
    if context.shape is None or context.device is None:
        return True
    part = 2.0 * context.shape.params / ((job.tp or 1) * (job.pp or 1))
    return part <= _WEIGHTS_OF_CARD * context.device.capacity_bytes


_WEIGHTS_OF_CARD: Final = 0.95
"""Share of a card that weights alone may take while they are loaded."""


def _smaller_files(job: Job, context: Context) -> Iterator[Variant]:
    here = GGUF_BYTES.get(job.quant or "none", math.inf if job.quant in (None, "none") else 0.0)
    published = context.line("files", " ".join(_FILES)).split()
    for name, effort in _FILES.items():
        if GGUF_BYTES[name] < 0.95 * here and name in published:
            how = say("fixes.serving-quant.how-file", name=name.upper())
            yield Variant(fields={"quant": name}, effort=effort, notes=(how,))


@remedy("same-numbers", "serving")
def serving_utilization(job: Job, context: Context) -> Iterator[Variant]:
    """The share of the GPU that a server takes: up when the KV cache has no room, down when something else needs the
    rest.

    vLLM's ``--gpu-memory-utilization`` counts weights, activations and KV cache; SGLang's ``--mem-fraction-static``
    weights and KV cache only. CUDA context, graphs and other processes live outside it.
    """
    now = job.get("serving.gpu_memory_utilization")
    if now is None or not context.has("serving.utilization"):
        return
    missing = _missing_share(context)
    for less in (0.05, 0.1, 0.15, 0.2, 0.3) if not missing else ():
        if now - less >= _LOWEST:
            yield Variant(fields={"serving.gpu_memory_utilization": round(now - less, 2)}, effort=0.3 + less)
    # Raising it makes room for the KV cache where the weights leave too little of the share; what failed outside of
    # the share has less room then.
    for higher in (0.9, _HIGHEST) if OUTSIDE.isdisjoint(context.causes[:1]) else ():
        if higher > now and higher - now >= missing:
            yield Variant(fields={"serving.gpu_memory_utilization": higher}, effort=0.3)


def _missing_share(context: Context) -> float:
    """The share of the card by which the engine itself says that its cache is too small; 0 where it says nothing."""
    missing = context.facts.get("engine_cache_missing_bytes")
    if not missing or context.device is None or not context.device.capacity_bytes:
        return 0.0
    return float(missing) / float(context.device.capacity_bytes)


@remedy("same-numbers", "rl", reduces=("rollout", "engine", "kv"))
def rollout_sleep(job: Job, context: Context) -> Iterator[Variant]:
    """The generation engine sleeps while training: weights and KV cache are given back between rollouts."""
    rollout = job.rollout
    if rollout is None or rollout.sleep or rollout.colocated is False or not context.has("rollout.sleep"):
        return
    if rollout.engine is None or has(rollout.engine, "sleep"):
        yield Variant(fields={"rollout.sleep": True}, effort=0.5)
