"""The analytic terms beside the traced ones, and the text of an issue where they disagree."""

from __future__ import annotations

import json
from typing import Any, Final

from oomdoc.messages import Message
from oomdoc.tracing.traceable import Traceable, traceable
from oomkb.dataclass import dataclass
from oomkb.errors import CatalogError, InputError, OomdocError
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB

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
            "issue": None if self.agrees else self.issue(),
        }

    def notes(self) -> tuple[Message, ...]:
        """What was set aside to make the job one that can be played."""
        return self.traceable.notes

    def issue(self) -> str:
        """A ready-made issue: what differs, the job, the row for the tests' data."""
        worst = max(self.rows, key=lambda row: abs(row.difference) if not row.agrees else -1.0)
        kind = str(self.traceable.document["model"].get("model_type", "model"))
        head = (
            f"Memory model: {kind}, {worst.name} estimated {worst.estimated_gib:.3f} GiB, traced {worst.traced_gib:.3f}"
        )
        table = ["| what | estimated GiB | traced GiB | difference |", "|---|---|---|---|"]
        table += [f"| {r.name} | {r.estimated_gib:.4f} | {r.traced_gib:.4f} | {r.difference:+.2%} |" for r in self.rows]
        params = f"Parameters: {self.estimate.params:,} estimated, {self.params:,} traced."
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        row = {"id": f"{kind}-reported", "job": self.traceable.document, "measured": self.measured}
        return "\n".join(
            [
                f"# {head}",
                "",
                *table,
                "",
                params,
                f"Versions: {versions}",
                "",
                "Row for `tests/kb/memory/data/traces.jsonl`:",
                "",
                "```json",
                json.dumps(row, ensure_ascii=False),
                "```",
                "",
            ]
        )


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
