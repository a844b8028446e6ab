"""A run in a few words: its model, method, cards, and what was assumed of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.diagnosis.result import Change
from oomdoc.messages import Message, say
from oomkb.memory.job import Job
from oomkb.memory.states import GGUF_BYTES

_DECIDING: Final = ("method", "sharding", "optimizer", "quant", "grad_ckpt", "micro_batch", "seq_len", "param_dtype")
"""Assumed fields that are named, those that decide most first."""
_SERVED: Final = ("framework", "quant", "serving.max_model_len", "tp")
_NAMED: Final = 5


def run_of(job: Job) -> Message:
    """The run in a few words: the model, how it is trained or served, its batch and length."""
    name = model_of(job)
    if job.objective == "inference":
        length = job.get("serving.max_model_len") or job.seq_len or 0
        served = {"model": name, "format": _format(job), "length": f"{length:,}"}
        count = job.get("serving.concurrency") or 1
        if count > 1:
            return say("answer.serving-together", count=count, **served)
        return say("answer.serving" if length else "answer.serving-plain", **served)
    values = {"model": name, "batch": job.micro_batch or 1, "length": f"{job.seq_len or 0:,}"}
    return say("answer.training", method=say(f"answer.method-{_method(job)}"), **values)


def model_of(job: Job) -> str | Message:
    """The model by its name, its size, or the architecture that its configuration describes."""
    if isinstance(job.model, str):
        return job.model.rpartition("/")[2]
    if job.params_b:
        return _of_size(job.params_b)
    kind = (job.model or {}).get("model_type")
    return say("answer.model-described", kind=kind) if kind else say("answer.model-unnamed")


def _of_size(billions: float) -> Message:
    size = f"{billions:g}"
    return say("answer.model-of-an" if size[0] == "8" or size in ("11", "18") else "answer.model-of", size=size)


def _method(job: Job) -> str:
    if job.method in ("full", "lora", "qlora"):
        return f"{job.method}-{job.objective}" if job.objective in ("dpo", "grpo", "ppo", "pretrain") else job.method
    return "other"


_SHOWN_FORMATS: Final = {"awq-int4": "int4", "gptq-int4": "int4", "nf4": "4-bit (nf4)", "int4-experts": "int4"}


def _format(job: Job) -> str:
    quant = job.quant if job.quant not in (None, "none") else job.param_dtype or "bf16"
    return str(quant).upper() if quant in GGUF_BYTES else _SHOWN_FORMATS.get(str(quant), str(quant))


def cards_of(job: Job) -> Message:
    """Which cards, and how many of all machines."""
    count = (job.gpus or 1) * (job.nodes or 1)
    if not job.gpu:
        return say("answer.card-of", count=count, size=f"{job.capacity_gib or 0:g}")
    return say("answer.cards-named" if count > 1 else "answer.card-named", count=count, gpu=_singular(job.gpu))


def _singular(name: str) -> str:
    return name[:-1] if name.endswith("s") and name[-2:-1].isdigit() else name


def assumed_of(job: Job) -> Iterator[Message]:
    """The assumptions that decide, in words."""
    names = _SERVED if job.objective == "inference" else _DECIDING
    shown = 0
    for name in names:
        value = job.get(name)
        quiet = value in (None, "none", "ddp", "adamw") or (name in ("tp",) and value == 1)
        if name not in job.assumed or quiet or shown >= _NAMED:
            continue
        if name == "param_dtype" and not (value == "fp32" and job.autocast in ("bf16", "fp16")):
            continue
        shown += 1
        word = name.rpartition(".")[2].replace("_", "-") + ("-off" if value is False else "")
        yield say(f"answer.assumed-{word}", value=_shown(name, job))


def _shown(name: str, job: Job) -> Any:
    value = job.get(name)
    if name == "method":
        return say(f"answer.method-{_method(job)}")
    if name == "quant":
        return _format(job)
    if name == "param_dtype":
        return job.autocast
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value


def step_of(change: Change) -> Message | str:
    """One change of a plan as a sentence says it: its instruction, else key and new value."""
    return change.instruction if change.instruction is not None else f"{change.key} → {_value_in_words(change.new)}"


def _value_in_words(value: object) -> str:
    """As people write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
