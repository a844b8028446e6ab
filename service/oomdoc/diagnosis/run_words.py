"""A run in a few words: its model, method, cards, and what was assumed of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from oomdoc.diagnosis.fixes._remedy import as_written
from oomdoc.diagnosis.result import IMPLIED, Change
from oomdoc.diagnosis.throughput import active_params
from oomdoc.evidence import Message, say
from oomdoc.intake.worded import Alternative
from oomkb.errors import OomdocError
from oomkb.kept import compiled
from oomkb.memory.estimate import Estimate
from oomkb.memory.images import USUAL_PIXELS
from oomkb.memory.job import Job
from oomkb.memory.states import GGUF_BYTES
from oomkb.pricing import device_of, shape_of

_DECIDING: Final = (
    *("method", "sharding", "optimizer", "quant", "grad_ckpt", "fused_ce", "micro_batch", "seq_len", "param_dtype"),
)
"""Assumed fields that are named, those that decide most first."""
_SERVED: Final = ("framework", "quant", "param_dtype", "serving.max_model_len", "tp")
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


def experts_held(job: Job) -> Message | None:
    """Why a mixture takes all its weights, however few of them compute a token; nothing for a model without experts."""
    try:
        shape = shape_of(job)
    except OomdocError:
        return None
    if not shape.expert_params:
        return None
    key = "answer.experts-held" if job.objective == "inference" else "answer.experts-trained"
    return say(key, params=f"{shape.params / 1e9:.3g}", active=f"{active_params(shape) / 1e9:.2g}")


def image_tokens(job: Job, estimate: Estimate) -> Iterator[Message]:
    """Tokens of the images of one sample or request, where their number or size is stated."""
    if estimate.image_tokens:
        count, pixels = job.images or 1, f"{job.max_pixels or USUAL_PIXELS:,}"
        tokens = f"{estimate.image_tokens:,}"
        key = "answer.image-tokens" if count > 1 else "answer.image-tokens-one"
        yield say(key, tokens=tokens, count=count, pixels=pixels, model=model_of(job))


def shared_of(job: Job, compared: frozenset[str]) -> list[Message | str]:
    """What is the same in all of the compared runs: the run in a few words without what they differ in."""
    serves = job.objective == "inference"
    parts: list[Message | str] = []
    if compared.isdisjoint({"model", "params_b", "method", "objective"}):
        how = "answer.runs-serving" if serves else "answer.runs-training"
        parts.append(say(how, method=say(f"answer.method-{_method(job)}"), model=model_of(job)))
    elif not compared & {"model", "params_b"}:
        parts.append(model_of(job))
    elif not serves and not compared & {"method", "objective"}:
        parts.append(say(f"answer.method-{_method(job)}"))
    if serves and "quant" not in compared:
        parts.append(_format(job))
    if not serves and "micro_batch" not in compared:
        parts.append(say("answer.named-micro-batch", value=job.micro_batch or 1))
    count, length = job.get("serving.concurrency") or 1, job.get("serving.max_model_len") or job.seq_len
    if serves and count > 1 and "serving.concurrency" not in compared:
        parts.append(say("answer.named-concurrency", value=count))
    if length and compared.isdisjoint({"seq_len", "serving.max_model_len"}):
        parts.append(say("answer.named-seq-len", value=f"{length:,}"))
    if "gpu" in compared or "capacity_gib" in compared or not (job.gpu or job.capacity_gib):
        return parts
    alone = not compared.isdisjoint({"gpus", "nodes"})
    return [*parts, (_singular(job.gpu) if job.gpu else f"{job.capacity_gib:g} GiB") if alone else cards_of(job)]


def model_of(job: Job) -> str | Message:
    """The model by its name, its size, or the architecture that its configuration describes."""
    if isinstance(job.model, str):
        return job.model.rpartition("/")[2]
    if job.params_b:
        size = f"{job.params_b:g}"
        return say("answer.model-of-an" if size[0] == "8" or size in ("11", "18") else "answer.model-of", size=size)
    kind = (job.model or {}).get("model_type")
    return say("answer.model-described", kind=kind) if kind else say("answer.model-unnamed")


def _method(job: Job) -> str:
    if job.method == "lora" and job.quant == "int8" and job.objective in (None, "sft"):
        return "lora-int8"
    if job.method in ("full", "lora", "qlora"):
        return f"{job.method}-{job.objective}" if job.objective in ("dpo", "grpo", "ppo", "pretrain") else job.method
    return "other"


_SHOWN_FORMATS: Final = {
    "awq-int4": "int4",
    "gptq-int4": "int4",
    "gptq-int8": "int8",
    "nf4": "4-bit (nf4)",
    "int4-experts": "int4",
}


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


def assumed_of(job: Job, compared: Collection[str] = ()) -> Iterator[Message]:
    """The assumptions that decide, in words.

    :param compared: fields of which the question names several values.
    """
    names = _SERVED if job.objective == "inference" else _DECIDING
    shown = 0
    for name in names:
        value = job.get(name)
        quiet = value in (None, "none", "ddp", "adamw") or (name == "tp" and (value == 1 or "gpus" in compared))
        quiet = quiet or (name == "quant" and job.method == "qlora")  # as QLoRA stores them
        # A loss without whole logits is one that recent releases choose: no assumption where the release is stated.
        quiet = quiet or (name == "fused_ce" and (not value or job.framework in (None, *job.versions)))
        if name not in job.assumed or job.assumed[name].why == IMPLIED or quiet or shown >= _NAMED or name in compared:
            continue
        if name == "param_dtype" and not (value == "fp32" and job.autocast in ("bf16", "fp16")) and value != "fp16":
            continue
        shown += 1
        word = name.rpartition(".")[2].replace("_", "-") + ("-off" if value is False else "")
        if (name, value) == ("param_dtype", "fp16"):
            device = device_of(job)
            word = "half" if device is not None and not device.can("bf16") else "half-usual"
        yield say(f"answer.assumed-{word}", value=_shown(name, job))


def _shown(name: str, job: Job) -> Any:
    value = job.get(name)
    if name == "method":
        return say(f"answer.method-{_method(job)}")
    if name == "quant":
        return _format(job)
    if name == "param_dtype":
        return _singular(job.gpu or "") if value == "fp16" else job.autocast
    if name == "fused_ce":
        return job.framework
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value


_COUNTED: Final = frozenset({"gpus", "nodes", "micro_batch", "seq_len", "serving.concurrency", "capacity_gib"})
"""Fields of which a number is named with what it counts."""


def of_usual_sizes(job: Job) -> Iterator[Message]:
    """What stands above the table over the sizes of models, where none is named."""
    shared = job.sharding is not None and "sharding" not in job.assumed
    if (job.gpus or 1) > 1 and not shared and job.objective != "inference":
        yield say("answer.several-split")
    yield say("answer.card-alone", cards=cards_of(job)) if job.has_card else say("answer.sizes-alone")


def names_of(side: Alternative) -> list[Message | str]:
    """What a question sets against something else, as it is called: ``8 GPUs``, ``LoRA``, ``packing on``."""
    if side.parts:
        return [name for part in side.parts for name in names_of(part)]
    if side.value in ("on", "off"):
        return [say(f"answer.named-{side.value}", name=side.name)]
    field = next(iter(side.fields))
    field = "seq_len" if field == "serving.max_model_len" else field
    if not side.value or field not in _COUNTED:
        return [side.name]
    word = field.rpartition(".")[2].replace("_", "-")
    one = field in ("gpus", "nodes") and side.fields[field] == 1
    sized = _WITH_UNIT.fullmatch(side.value)  # the words name the unit
    return [say(f"answer.named-{word}{'-one' if one else ''}", value=sized[1] if sized else side.value)]


_WITH_UNIT: Final = compiled(r"([\d.,]+) ?[A-Za-z]{2,}")


def step_of(change: Change) -> Message | str:
    """One change of a plan as a sentence says it: its instruction, else key and new value."""
    if change.instruction is not None:
        return change.instruction
    several = isinstance(change.new, list | tuple)
    return f"{change.key} → {', '.join(map(str, change.new)) if several else as_written(change.new)}"
