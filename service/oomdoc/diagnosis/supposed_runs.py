"""What a question beside a failure supposes: another form of the run that failed, priced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.diagnosis.answering import decisive
from oomdoc.diagnosis.comparing import Plain
from oomdoc.diagnosis.forms import machines_of, needed_of, price_form, verdict_on
from oomdoc.diagnosis.planned import chosen_run
from oomdoc.diagnosis.result import Verdict
from oomdoc.diagnosis.run_words import assumed_of
from oomdoc.evidence import Evidence, Message, Supposed, say
from oomdoc.intake.asked import NOTHING_ASKED, asked_of, asks_need
from oomdoc.intake.configs import to_job
from oomdoc.intake.quantities.facts import is_of_all_cards
from oomkb.errors import ARITHMETIC_ERRORS, OomdocError
from oomkb.memory.job import Job
from oomkb.pricing import Priced, device_of, price
from oomkb.units import GIB

_FIELDS: Final = (
    *("gpus", "nodes", "gpu", "capacity_gib", "model", "params_b", "method", "quant", "param_dtype", "sharding"),
    *("offload", "tp", "pp", "micro_batch", "grad_accum", "seq_len", "grad_ckpt", "attention", "optimizer", "lora.r"),
    *("packing", "fused_ce", "serving.max_model_len", "serving.kv_dtype", "serving.gpu_memory_utilization"),
)
"""What another form of a run may have."""
_MAX_ANSWERS: Final = 2
ENOUGH: Final = "answer.enough"
"""The message of :func:`enough_memory`."""


def answers_to(evidence: Evidence, job: Job, verdict: Verdict) -> Iterator[Message]:
    """Yes or no and the figure, for each question that supposes a run of known size.

    :param job: the failed run, with what its figures imply.
    :param verdict: what ran out: where it was host memory, a change that moves none of it is no remedy.
    """
    for asked in evidence.supposed[:_MAX_ANSWERS]:
        changed = _changed(asked, job)
        if not changed:
            continue
        other = job.with_fields(changed)
        try:
            priced = price(other)
        except (OomdocError, *ARITHMETIC_ERRORS):
            continue
        if verdict == "host-oom" and _same_on_host(job, priced):
            yield say("answer.not-of-host", settings=sorted(changed))
            continue
        yield say("answer.supposed", answer=decisive(Plain(other, priced.job, priced.estimate, careful=False)))
        if assumed := list(assumed_of(priced.job)):
            yield say("answer.assumed", assumed=assumed)
        yield from _with_checkpointing(other, priced)


def enough_memory(evidence: Evidence, job: Job, verdict: Verdict) -> Iterator[Message]:
    """What the run takes as a careful person starts it, where that is asked beside a failure.

    Of a run that failed for another reason than memory, whether its card is enough; of one that is only told to have
    run out of it, what it takes.
    """
    asked, outcome = asked_of(evidence), evidence.outcome
    told = outcome is not None and outcome.kind == "said" and not evidence.documents
    if verdict == "not-oom":
        wanted, key = bool(asked.questions) and asked.of_memory, ENOUGH
    else:
        wanted, key = told and verdict == "device-oom" and asks_need(evidence), "answer.careful"
    named = job.gpu is not None or verdict != "not-oom"  # a size beside a full disk is no card's
    if not (wanted and named and job.has_model and job.has_card):
        return
    try:
        run = chosen_run(job, NOTHING_ASKED)
        priced = price(run, careful=True)
    except (OomdocError, *ARITHMETIC_ERRORS):
        return
    yield say(key, answer=decisive(Plain(run, priced.job, priced.estimate, careful=True)))


def _same_on_host(job: Job, other: Priced) -> bool:
    """Whether another form of a run takes as much host memory as the failed one."""
    failed = price_form(job, {}, careful=False)
    return failed is not None and abs(failed.estimate.host_bytes - other.estimate.host_bytes) < GIB


def _with_checkpointing(job: Job, priced: Priced) -> Iterator[Message]:
    """That it would fit with gradient checkpointing, where nobody says whether that is on."""
    if "grad_ckpt" not in priced.job.assumed or priced.job.grad_ckpt or verdict_on(priced.estimate) == "fits":
        return
    with_it = price_form(job, {"grad_ckpt": True}, careful=False)
    if with_it is not None and verdict_on(with_it.estimate) == "fits":
        yield say("answer.supposed-checkpointing", needed_bytes=needed_of(with_it.estimate))


def _changed(asked: Supposed, job: Job) -> dict[str, Any]:
    """The fields in which the supposed run differs from the failed one."""
    stated = to_job(asked.facts, job.framework, job.versions)
    named = {**asked.settings, **{name: stated.get(name) for name in _FIELDS if stated.get(name) is not None}}
    size = named.get("params_b")
    if size is not None and "model" not in named and size != job.params_b and job.model is not None:
        return {}  # another model, of which only the size is known
    changed = {
        n: v for n, v in named.items() if n in _FIELDS and v != job.get(n) and (n != "params_b" or "model" in named)
    }
    device, size_gib = device_of(job), changed.get("capacity_gib")
    if device is not None and size_gib and is_of_all_cards(size_gib, job.gpus or 1, device.capacity_bytes):
        del changed["capacity_gib"]  # what the cards hold together is none's
    if "gpu" in changed and "capacity_gib" not in named:
        changed["capacity_gib"] = None
    if "gpus" in changed:
        changed |= {"world": None, "dp": None, "nodes": changed.get("nodes"), **machines_of(changed["gpus"])}
    return changed
