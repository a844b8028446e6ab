"""Which part of a job can be played on a CPU without weights, and what has to be set aside for it."""

from __future__ import annotations

from typing import Any, Final

from oomdoc.messages import Message, say
from oomkb.catalog import models
from oomkb.dataclass import dataclass
from oomkb.errors import JobError
from oomkb.frameworks import complete
from oomkb.memory.job import Job
from oomkb.pricing import shape_of

_KEPT: Final = (
    "objective", "method", "lora", "param_dtype", "autocast", "optimizer", "optimizer_impl", "micro_batch", "seq_len",
    "grad_ckpt", "attention", "sharding", "world", "reshard_after_forward",
)  # fmt: skip
"""The fields that a trace plays; what has been said of others is set aside."""
_OPTIMIZERS: Final = ("adamw", "sgd", "sgd_momentum", "adagrad", "rmsprop", "adafactor")
_SPLIT: Final = ("tp", "pp", "cp", "sp", "ep")
_OFF: Final = (None, False, 1, "none", (), "")


@dataclass(frozen=True, slots=True)
class Traceable:
    """A job that can be traced: its plain document, the same as a :class:`Job`, and what was changed to get there."""

    document: dict[str, Any]
    job: Job
    notes: tuple[Message, ...]


def traceable(job: Job) -> Traceable:
    """The job with its model as a config, on one GPU of no name, with only what a trace can play.

    :raises JobError: for serving, for an objective without a plain step, and where the model is not known.
    """
    completed = complete(job)
    _refuse(completed)
    changes: dict[str, Any] = {name: getattr(completed, name) for name in _KEPT}
    notes: list[Message] = []

    def instead(field: str, value: Any) -> None:
        notes.append(say("trace.instead", field=field, old=str(completed.get(field)), new=str(value)))
        changes[field] = value

    if completed.attention not in (None, "eager", "sdpa"):
        instead("attention", "sdpa")
    if completed.optimizer not in (None, *_OPTIMIZERS):
        instead("optimizer", "adamw")
    if completed.grad_ckpt == "selective":
        instead("grad_ckpt", True)
    if completed.method == "qlora":
        instead("method", "lora")
    if completed.objective == "pretrain":
        changes["objective"] = "sft"
    if completed.sharding not in _OFF and completed.sharding != "fsdp2":
        instead("sharding", "none")
    if changes["sharding"] != "fsdp2":
        changes["world"] = 1
        changes["reshard_after_forward"] = None
    for field in (*_SPLIT, "quant", "offload", "fused_ce", "packing", "compile", "rollout"):
        if completed.get(field) not in _OFF:
            notes.append(say("trace.set-aside", field=field, value=str(completed.get(field))))
    document = {k: v for k, v in Job(**changes).document().items() if v is not None}
    document["model"] = _config(completed)
    return Traceable(document, Job.from_document(document), tuple(notes))


def _refuse(job: Job) -> None:
    if job.objective not in (None, "sft", "pretrain", "dpo"):
        raise JobError(
            f"the step of {job.objective!r} cannot be traced", where="objective", hint="sft, pretrain and dpo can"
        )
    if job.method not in (None, "full", "lora", "qlora"):
        raise JobError(f"{job.method!r} cannot be traced", where="method", hint="full, lora and qlora can")
    for name in ("micro_batch", "seq_len"):
        if getattr(job, name) is None:
            raise JobError("a trace needs it", where=name, hint=f"for example --set {name}=1")


def _config(job: Job) -> dict[str, Any]:
    shape_of(job)  # refuses an unknown model with its hint
    if job.model is None:
        raise JobError("a trace needs a model, not only its size", where="model", hint="a hub id or a config.json")
    if isinstance(job.model, str):
        entry = models.find(job.model)
        if entry is None:
            raise JobError(
                f"{job.model!r} is not in the model catalogue",
                where="model",
                hint="give its config.json as an object, or add it with `oomdoc model add config.json`",
            )
        return dict(entry.config)
    return dict(job.model)
