"""The analytic terms beside the traced ones."""

from __future__ import annotations

from typing import Any, Final

from oomdoc.evidence import Message, say
from oomkb.catalog import models
from oomkb.dataclass import dataclass
from oomkb.errors import CatalogError, InputError, JobError, OomdocError
from oomkb.frameworks import complete
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.shape import ModelShape
from oomkb.pricing import shape_of
from oomkb.units import GIB

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


TOLERANCE: Final = 0.04
"""How far the tape may be from a trace of the same step: what its tests hold every family to."""
_SLACK_GIB: Final = 0.02
_PHASES: Final = {"forward": ("forward", "loss"), "backward": ("backward",), "step": ("optimizer-step",)}
"""Phase of a trace -> phases of an estimate: a trace's forward pass ends with the loss."""
_WEIGHTS: Final = ("weights", "adapters", "reference model", "buffers")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure both ways, in GiB. ``name``: ``peak``, ``weights``, ``forward`` ..."""

    name: str
    estimated_gib: float
    traced_gib: float

    @property
    def difference(self) -> float:
        """Estimated over traced, less one; 0 where both are nothing."""
        return self.estimated_gib / self.traced_gib - 1 if self.traced_gib > 0 else float(self.estimated_gib > 0)

    @property
    def agrees(self) -> bool:
        """Whether both are within the tolerance of each other."""
        return abs(self.estimated_gib - self.traced_gib) <= max(TOLERANCE * self.traced_gib, _SLACK_GIB)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A trace beside the estimate of the same step."""

    traceable: Traceable
    estimate: Estimate
    measured: dict[str, Any]
    rows: tuple[Row, ...]
    versions: dict[str, str]

    @property
    def agrees(self) -> bool:
        """Whether peak and phases agree, and the parameters are equal."""
        return all(row.agrees for row in self.rows) and self.estimate.params == self.params

    @property
    def params(self) -> int:
        """The traced model's own parameters; those of adapters are not the model's."""
        adapters = self.measured["trainable"] if self.traceable.job.lora else 0
        return int(self.measured["params"]) - adapters

    def document(self) -> dict[str, Any]:
        """As JSON; sizes in GiB."""
        return {
            "schema": "oomdoc.trace/1",
            "job": self.traceable.document,
            "rows": [
                {
                    "name": row.name,
                    "estimated_gib": round(row.estimated_gib, 4),
                    "traced_gib": round(row.traced_gib, 4),
                    "difference": round(row.difference, 4),
                    "agrees": row.agrees,
                }
                for row in self.rows
            ],
            "terms": {
                name: {term: round(size / GIB, 4) for term, size in phase.terms_bytes.items()}
                for name, phase in self.estimate.phases.items()
                if name in ("forward", "loss", "backward", "optimizer-step")
            },
            "params": {"estimated": self.estimate.params, "traced": self.params},
            "tolerance": TOLERANCE,
            "versions": self.versions,
            "agrees": self.agrees,
        }

    def notes(self) -> tuple[Message, ...]:
        """What was set aside to make the job one that can be played."""
        return self.traceable.notes


def compare(job: Job) -> Comparison:
    """Trace the step of a job and price the same step.

    :raises InputError: where the extra ``trace`` is not installed.
    :raises JobError: for a job whose step cannot be traced.
    :raises CatalogError: where transformers cannot build the model.
    """
    played = traceable(job)
    try:
        from oomdoc.tracing.running import trace
    except ImportError as error:
        raise InputError(
            f"{error.name} is not installed", where="oomdoc trace", hint="pip install 'oomdoc[trace]'"
        ) from error
    try:
        measured = trace(played.document)
    except OomdocError:
        raise
    except ImportError as error:
        raise InputError(
            f"{error.name} is not installed", where="oomdoc trace", hint="pip install 'oomdoc[trace]'"
        ) from error
    except Exception as error:
        text = f"{type(error).__name__}: {str(error)[:200]}"
        raise CatalogError(
            f"transformers cannot play this step: {text}", where="oomdoc trace", hint="update transformers and peft"
        ) from error
    shape = ModelShape.from_config(played.document["model"])
    priced = estimate(played.job, shape)
    return Comparison(played, priced, measured, _rows(priced, measured), _versions())


def _rows(priced: Estimate, measured: dict[str, Any]) -> tuple[Row, ...]:
    terms = {name: phase.terms_bytes for name, phase in priced.phases.items()}
    fixed = {k: v for k, v in terms["optimizer-step"].items() if k not in ("gradients", "optimizer states")}
    weights = sum(size for name, size in fixed.items() if name in _WEIGHTS)
    rows = [
        Row("peak", priced.allocated_bytes / GIB, measured["allocated_gib"]),
        Row("weights", weights / GIB, measured["static_gib"]),
        Row(
            "optimizer-states",
            terms["optimizer-step"].get("optimizer states", 0.0) / GIB,
            measured["after_step"] - measured["static_gib"],
        ),
    ]
    for name, phases in _PHASES.items():
        estimated = max(priced.phases[p].total_bytes for p in phases if p in priced.phases)
        rows.append(Row(name, estimated / GIB, measured[f"peak_{name}"]))
    return tuple(rows)


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("torch", "transformers", "peft"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
