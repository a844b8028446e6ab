"""Figures for advice: what a step saves that no setting of the job says, and on what that depends.

What cannot be said: a leak's size per step, what another version needs, host memory that a container lacks. Where a job
cannot be priced, the settings that answer its cause are instructions without a figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from oomdoc.diagnosis.fixes import REMEDIES, Context, Variant
from oomdoc.diagnosis.fixes._remedy import as_written, is_lora, is_serving, world_size
from oomdoc.diagnosis.fixes.serving import OUTSIDE
from oomdoc.diagnosis.forms import host_is_short, needed_of
from oomdoc.diagnosis.planning.changes import worded, words_for
from oomdoc.diagnosis.planning.moves import variants_on
from oomdoc.diagnosis.planning.prices import Prices
from oomdoc.diagnosis.planning.spelling import has_keys
from oomdoc.evidence import Message, say
from oomkb.dataclass import dataclass
from oomkb.frameworks import complete
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job

_MAX_SAMPLES = 512
_GRAIN = 128
_MAX_LENGTH = 1 << 20
_MIN_PROBABILITY = 0.5


def largest(prices: Prices, wanted: float) -> dict[str, int]:
    """By job field; 0 where not even the smallest fits, absent where the field is not one of the job's."""
    if prices.capacity_bytes is None:
        return {}
    if is_serving(prices.job):
        length = prices.job.get("serving.max_model_len")
        if length is None:
            return {}
        longest = prices.shape.dims.max_positions or _MAX_LENGTH
        return {"serving.max_model_len": _most(prices, "serving.max_model_len", longest, wanted, 1024)}
    out = {}
    if prices.job.micro_batch is not None:
        out["micro_batch"] = _most(prices, "micro_batch", _MAX_SAMPLES, wanted, 1)
    if prices.job.seq_len is not None and not prices.job.completion_len:
        longest = max(prices.job.seq_len, prices.shape.dims.max_positions or 32768)
        out["seq_len"] = _most(prices, "seq_len", min(longest, _MAX_LENGTH), wanted, _GRAIN)
    return out


def _most(prices: Prices, field: str, highest: int, wanted: float, grain: int) -> int:
    """No less than the job's own value where that fits: a smaller batch in more steps of accumulation may take more."""
    own = prices.job.get(field) or 0
    own = own if prices.base.probability >= wanted else 0

    def fits(steps: int) -> bool:
        price = prices.of({field: steps * grain}) if steps * grain > own else prices.base
        return price is not None and price.probability >= wanted

    return max(own, most_steps(fits, max(1, highest // grain)) * grain)


def most_steps(fits: Callable[[int], bool], highest: int) -> int:
    """The largest number up to ``highest`` for which ``fits`` holds, taken to hold below it; doubling, then halving."""
    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= highest and fits(high):
        low, high = high, high * 2
    high = min(high, highest + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def largest_of(job: Job, *, careful: bool, wanted: float) -> dict[str, int]:
    """As :func:`largest`, for a job as it is stated."""
    return largest(Prices(job, careful=careful), wanted)


def most_requests(job: Job, *, careful: bool, wanted: float) -> int:
    """How many requests at once fit beside the weights, where the engine holds a cache for each and no pool."""
    return _most(Prices(job, careful=careful), "serving.concurrency", _MAX_SAMPLES, wanted, 1)


def need_with(job: Job, fields: Mapping[str, Any], *, careful: bool) -> tuple[float | None, bool | None]:
    """What the job needs with these fields set, in bytes, and whether that fits; nothing for an impossible run."""
    price = Prices(job, careful=careful).of(fields)
    if price is None:
        return None, None
    fits = price.probability >= _MIN_PROBABILITY and not host_is_short(price.job, price.estimate)
    return needed_of(price.estimate), fits


_EVAL_BATCH: Final = 8
"""``per_device_eval_batch_size`` where nothing is stated (transformers 4.28-5.23)."""
_FP32: Final = 4
_LOSS_BYTES: Final = 10
"""Bytes per word and token while a batch's loss is computed: 16-bit logits, an fp32 copy, its log-softmax."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """What one step saves on the job as it is, and a sentence with figures; the step itself, where they change it."""

    saves_bytes: int = 0
    note: Message | None = None
    instruction: Message | None = None


def quantity(name: str, variant: Variant, prices: Prices, context: Context, wanted: float) -> Quantity:
    """The figures of a remedy without job fields; none where arithmetic has nothing to say."""
    held = {"allocator": context.reserved_unallocated_bytes, "kill-processes": context.other_process_bytes}
    found = _FIGURES.get(name)
    return found(variant, prices, context, wanted) if found is not None else Quantity(round(held.get(name) or 0))


def _packing(variant: Variant, prices: Prices, context: Context, wanted: float) -> Quantity:
    length = prices.job.seq_len
    half = prices.of({"seq_len": length // 2}) if length else None
    if half is None:
        return Quantity()
    now, then = prices.base.estimate.process_bytes, half.estimate.process_bytes
    return Quantity(
        note=say("fixes.figure.packing", batch=prices.job.micro_batch or 1, now_bytes=now, half_bytes=then)
        if then < now
        else None
    )


def _logits(variant: Variant, prices: Prices, context: Context, wanted: float) -> Quantity:
    saved = [_without(prices.base.estimate, "logits", share) for share in (0.5, 0.9)]
    if saved[0] <= 0:
        return Quantity()
    return Quantity(note=say("fixes.figure.logits-to-keep", half_bytes=saved[0], most_bytes=saved[1]))


def _without(estimate: Estimate, prefix: str, share: float) -> float:
    """How much lower the peak is when a share of the terms of this name is gone."""
    totals = [
        phase.total_bytes - share * sum(v for n, v in phase.terms_bytes.items() if n.startswith(prefix))
        for phase in estimate.phases.values()
    ]
    return estimate.allocated_bytes - max(totals, default=estimate.allocated_bytes)


_DECIDE_LENGTH: Final = frozenset({"micro_batch", "grad_ckpt"})
_LEAST_CUT: Final = 0.25
"""Of the limit: the shortest length that samples are told to be cut to on assumptions."""


def _worst_batch(variant: Variant, prices: Prices, context: Context, wanted: float) -> Quantity:
    length, longest = prices.job.seq_len, largest(prices, wanted).get("seq_len", 0)
    if not length or not longest or longest >= length or variant.instruction is None:
        return Quantity()
    if not _DECIDE_LENGTH.isdisjoint(prices.job.assumed) and longest < _LEAST_CUT * length:
        return Quantity()  # so much shorter only because of what nobody stated
    short = prices.of({"seq_len": longest})
    if short is None:
        return Quantity()
    values = variant.instruction.values
    form = str(values.get("form", ""))
    line = form.replace("{length}", str(longest)) or values.get("line", "")
    need = prices.base.estimate.process_bytes
    return Quantity(
        note=say("fixes.figure.longest", longest=f"{longest:,}", length=f"{length:,}", now_bytes=need),
        saves_bytes=round(need - short.estimate.process_bytes) if form else 0,
        instruction=replace(variant.instruction, values={**values, "line": line}),
    )


def _evaluation(variant: Variant, prices: Prices, context: Context, wanted: float) -> Quantity:
    job, words = prices.job, prices.shape.dims.vocab / (prices.job.tp or 1)
    batch = _EVAL_BATCH if job.eval_micro_batch is None else job.eval_micro_batch
    if not job.seq_len or prices.capacity_bytes is None or "save" not in prices.base.estimate.phases:
        return Quantity()
    each = batch * job.seq_len * words * _FP32
    room = prices.room_bytes - prices.base.estimate.phases["save"].total_bytes
    if variant.instruction is not None and variant.instruction.key == "fixes.evaluation.how":
        working = (batch - 1) * job.seq_len * words * _LOSS_BYTES
        note = say("fixes.figure.evaluation", batch=batch, each_bytes=each, count=max(0, int(room // each)))
        return Quantity(saves_bytes=round(working), note=note)
    return Quantity(saves_bytes=round(each))


def _saving(variant: Variant, prices: Prices, context: Context, wanted: float) -> Quantity:
    job, estimate = prices.job, prices.base.estimate
    ranks = world_size(job)
    if ranks < 2 or variant.instruction is None or not variant.instruction.key.endswith(".how"):
        return Quantity()
    whole = prices.shape.params * (4.0 if job.param_dtype == "fp32" else 2.0)
    free = max(0.0, prices.room_bytes - estimate.phases["save"].total_bytes) if "save" in estimate.phases else 0.0
    note = say("fixes.figure.save", whole_bytes=whole, part_bytes=whole / ranks, free_bytes=free)
    return Quantity(saves_bytes=round(whole * (1 - 1 / ranks)), note=note)


_Figure = Callable[[Variant, Prices, Context, float], Quantity]
_FIGURES: Final[Mapping[str, _Figure]] = {
    "evaluation": _evaluation,
    "logits-to-keep": _logits,
    "packing": _packing,
    "save-settings": _saving,
    "worst-batch-first": _worst_batch,
}


def lowest_share(prices: Prices, context: Context) -> Iterator[Message]:
    """How far the share of a server can go down where something beside its pool found no room."""
    served, share = prices.base.estimate.served, prices.job.get("serving.gpu_memory_utilization")
    outside = context.causes[:1] and context.causes[0] in OUTSIDE and context.has("serving.utilization")
    if not outside or served is None or not share or prices.capacity_bytes is None or not served.starts:
        return
    lowest = math.ceil(100 * (share - (served.cache_bytes - served.needed_bytes) / served.shared_bytes)) / 100
    key = worded(prices.job, prices.job, "serving.gpu_memory_utilization", share)[0][0]
    yield say("fixes.note.lowest-share", key=key, lowest=f"{lowest:.2f}", length=f"{served.length:,}")


ANSWERS: Final[Mapping[str, tuple[str, ...]]] = {
    "logits": ("fused-ce", "log-prob-batch", "micro-batch", "micro-tokens", "seq-len", "completion-len"),
    "activations": ("grad-ckpt", "micro-batch", "micro-tokens", "attention", "seq-len", "completion-len"),
    "attention-scores": ("attention", "micro-batch", "seq-len"),
    "model-states": ("zero", "fsdp", "distributed-optimizer", "offload-optimizer", "optimizer-8bit", "lora", "qlora"),
    "optimizer-init": ("optimizer-fused", "zero", "offload-optimizer", "offload-param", "optimizer-8bit", "lora"),
    "weights-load": ("qlora", "zero", "fsdp", "serving-quant", "serving-tensor-parallel"),
    "kv-cache": ("serving-length", "serving-concurrency", "serving-kv-dtype"),
    "rollout-engine": ("rollout-sleep", "rollout-utilization", "rollout-separate"),
    "zero3-gather": ("buckets", "micro-batch"),
    "vision-tokens": ("pixels", "grad-ckpt", "micro-batch"),
    "extra-models": ("reference-precompute", "reference-offload", "reference-adapter", "reference-sharding"),
    "hardware-limit": ("qlora", "zero", "offload-param", "micro-batch"),
    "cuda-graph": ("serving-utilization", "serving-concurrency", "serving-eager"),
}
"""Cause -> remedies in the order practitioners apply them."""
_MAX_OPTIONS: Final = 4


def _written(key: str, old: object, new: object, *, options: bool) -> str:
    """A setting as it is typed: an option of a command, a variable of the environment, or a line of a file."""
    if key.isupper():
        return f"{key}={as_written(new)}"
    if options and key.replace("_", "").isalnum():
        key = f"--{key}"
    if old is not None:
        return f"{key}: {as_written(old)} → {as_written(new)}"
    if key.startswith("--"):
        return key if new is True else f"{key} {as_written(new)}"
    return f"{key}: {as_written(new)}"


def settings_for(job: Job, context: Context) -> Iterator[tuple[str, str, Variant]]:
    """Cause, remedy and an instruction for each setting that answers the most probable cause."""
    cause = context.causes[0] if context.causes else ""
    filled, said, smaller = complete(job), 0, False
    by_name = {r.name: r for r in REMEDIES}
    for name in ANSWERS.get(cause, ()):
        if name == "serving-concurrency" and context.facts.get("engine_max_model_len"):
            continue  # not one request fits
        options = [v for v in variants_on(by_name[name], filled, context) if v.fields]
        options = [v for v in options if v.fields.get("grad_ckpt") != "offload"]  # few programs and releases have it
        # A default that nobody stated (one sample, 2048 tokens) is no setting to advise against.
        options = [
            v for v in options if not (name in ("micro-batch", "seq-len") and set(v.fields) & set(filled.assumed))
        ]
        if smaller and name in ("seq-len", "completion-len"):
            continue  # what is trained on stays whole where fewer samples at once may do
        if not options or said >= _MAX_OPTIONS or (name == "optimizer-8bit" and is_lora(filled)):
            continue  # adapters have next to no optimizer states
        said, smaller = said + 1, smaller or name == "micro-batch"
        field, value = next(iter(options[-1 if name in ("micro-batch", "zero") else 0].fields.items()))
        if cause == "weights-load" and (field, value) in (("sharding", "zero1"), ("sharding", "zero2")):
            continue  # the weights stay whole
        key, old, new = worded(filled, filled, field, value)[0]
        key = context.facts.get("typed", {}).get(field.rpartition(".")[2], key) if new == value else key
        known = None if field in filled.assumed else old
        line = _written(key, known, new, options=bool(context.facts.get("options")))
        if name == "buckets":  # each is a buffer of its own
            all_of_them = options[0].fields.items()
            line = ", ".join(
                _written(worded(filled, filled, f, v)[0][0], None, v, options=False) for f, v in all_of_them
            )
        typed = field.rpartition(".")[2] in context.facts.get("typed", {})
        words = None if typed else words_for(filled, key, known, new, own=has_keys(filled.framework))
        said_as = {"title": say(f"fixes.{name}.title"), "line": line, "old": known, "new": new}
        yield cause, name, Variant(instruction=say(words or "fixes.unpriced.set", **said_as))
