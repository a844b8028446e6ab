"""What else has to be said, with figures: what common advice would not do here, and what the machine cannot do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from oomdoc.diagnosis.fixes._remedy import as_written
from oomdoc.diagnosis.forms import needed_of
from oomdoc.diagnosis.planning.spelling import spelled
from oomdoc.diagnosis.regressions import one_per_package, range_of
from oomdoc.diagnosis.result import CauseFinding, Conflict
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Message, say
from oomkb.catalog import gpus
from oomkb.errors import OomdocError
from oomkb.frameworks import has
from oomkb.memory.job import Job
from oomkb.memory.setting import PREFERENCE
from oomkb.pricing import price
from oomkb.records.versions import is_near

_MIN_PROBABILITY: Final = 0.15
_SHARDING: Final = frozenset({"zero1", "zero2", "zero3", "fsdp", "fsdp2"})


def advice_for(view: View, stated: Job, causes: Sequence[CauseFinding]) -> tuple[Message, ...]:
    """The sentences, most important first."""
    likely = {c.cause for c in causes[:3] if c.probability >= _MIN_PROBABILITY} | {c.cause for c in causes[:1]}
    found: list[Message] = []
    if likely & {"logits", "activations"}:
        found += [*_pairs(view), *_small_lora(view, stated)]
    found += [*uneven_heads(view), *_one_process(view), *_engine_share(view)]
    if "version-regression" in likely:
        found += _regression(view)
    return (*found, *_hardware(view))


_INSTEAD: Final = {"flash2": "sdpa", "flash3": "sdpa", "bf16": "fp16"}
_NAMES: Final = {"bf16": "bf16", "flash2": "FlashAttention-2", "flash3": "FlashAttention-3"}


def unsupported(view: View) -> tuple[Conflict, ...]:
    """What the settings ask for and the card cannot do, with the setting that it can."""
    device = gpus.find(view.job.gpu) if view.job.gpu else None
    if device is None:
        return ()
    found = []
    for field in ("attention", "autocast"):
        asked = view.stated(field)
        if asked not in _INSTEAD or device.can(asked):
            continue
        instead = _INSTEAD[asked]
        keys = spelled(view.job.framework, field, instead) or ((field, instead),)
        setting = f"{keys[0][0]}: {as_written(keys[0][1])}"
        why = say("advice.unsupported", gpu=device.name, what=_NAMES[asked], setting=setting)
        found.append(Conflict(field, asked, instead, why))
    return tuple(found)


def uneven_heads(view: View) -> Iterator[Message]:
    """Sequence parallelism in Ulysses' manner hands every rank whole heads: its size must divide their number.

    Jacobs et al. 2023 (arXiv 2309.14509), section 3; DeepSpeed ``sequence/layer.py``. Megatron's splits other things.
    """
    size, shape = view.stated("sp") or 1, view.shape
    if shape is None or not isinstance(size, int) or has(view.job.framework, "sp.megatron"):
        return
    heads = shape.dims.heads
    if size > 1 and heads % size:
        fits = max(n for n in range(1, size) if heads % n == 0 and size % n == 0)
        yield say("advice.uneven-heads", size=size, heads=heads, fits=fits)


def _pairs(view: View) -> Iterator[Message]:
    """Chosen and rejected are one batch: the tokens double, and nothing that shards weights helps."""
    job, shape = view.job, view.shape
    if job.objective not in PREFERENCE or shape is None or not view.stated("seq_len") or job.fused_ce:
        return
    length, words = job.seq_len or 0, shape.dims.vocab
    copy = 2 * (job.micro_batch or 1) * length * words * 4
    yield say("advice.pairs", length=f"{length:,}", vocabulary=f"{words:,}", copy_bytes=copy)


def _small_lora(view: View, stated: Job) -> Iterator[Message]:
    """LoRA is the usual first advice; where it would not fit, that has to be said."""
    capacity = view.bytes_of("capacity")
    if view.job.method != "full" or not view.training or not capacity or (view.fullness or 0) < 1:
        return
    try:
        peak = needed_of(price(stated.with_fields({"method": "lora", "lora": {"r": 16}})).estimate)
    except OomdocError:
        return
    if peak > capacity:
        yield say("advice.rank16", peak_bytes=peak, capacity_bytes=capacity)


def _one_process(view: View) -> Iterator[Message]:
    visible, sharding = view.evidence.value("gpu_count"), view.job.sharding
    if view.ranks == 1 and isinstance(visible, int) and visible > 1 and sharding in _SHARDING:
        yield say("advice.one-process", visible=visible, sharding=sharding)


def one_replica(view: View) -> Iterator[Message]:
    """That parallelism takes all cards for one replica, so that nothing is left to divide optimizer states over."""
    job = view.job
    tp, pp = job.tp or 1, job.pp or 1
    if view.ranks == tp * pp > 1 and (job.cp or 1) == 1 and job.sharding in _SHARDING_STATES:
        yield say("advice.one-replica", sharding=job.sharding, tp=tp, pp=pp, ranks=view.ranks)


def last_stage(view: View, causes: Sequence[CauseFinding]) -> Iterator[Message]:
    """That one pipeline stage alone has the output layer and the loss, so that its cards fill first.

    Megatron-Core 0.12 ``parallel_state.py``: ranks are ordered by tensor, context, data, pipeline parallelism.
    """
    stages, ranks = view.job.pp or 1, view.ranks or 1
    if stages > 1 and ranks % stages == 0 and causes and causes[0].cause == "logits" and view.phase == "loss":
        each = ranks // stages
        words = "last-stage" if each > 1 else "last-stage-alone"
        yield say(f"advice.{words}", stages=stages, first=ranks - each, last=ranks - 1)


_SHARDING_STATES: Final = frozenset({"zero1", "distributed-optimizer"})
"""What is divided over replicas alone, beside tensor and pipeline parallelism."""


def _engine_share(view: View) -> Iterator[Message]:
    """What a colocated engine leaves, against the weights that the trainer needs for itself."""
    rollout, capacity = view.job.rollout, view.bytes_of("capacity")
    share = rollout.gpu_memory_utilization if rollout is not None else None
    if share is None or not capacity or view.shape is None or view.serving:
        return
    if rollout is not None and rollout.colocated is False:
        return
    left = (1 - share) * capacity
    if view.weight_bytes > left:
        yield say(
            "advice.engine-share",
            share_bytes=share * capacity,
            capacity_bytes=capacity,
            left_bytes=left,
            weights_bytes=view.weight_bytes,
        )


def _regression(view: View) -> Iterator[Message]:
    """Known ranges: the stated version's, else those to check."""
    for found in one_per_package(view.advisories or view.suspects)[:2]:
        if found.version:
            yield say("advice.regression", package=found.package, version=found.version, range=range_of(found))
        else:
            yield say("advice.regression-ask", package=found.package, range=range_of(found))
        if found.good and (not found.version or is_near(found.version, found.good)):
            yield say("advice.last-good", package=found.package, good=found.good)


def _hardware(view: View) -> Iterator[Message]:
    """What the card rules out, so that nobody proposes it."""
    device = gpus.find(view.job.gpu) if view.job.gpu else None
    if device is None:
        return
    missing = [word for word in ("bf16", "flash2") if not device.can(word)]
    if missing:
        yield say("advice.hardware", gpu=device.name, missing=[_NAMES[m] for m in missing])
