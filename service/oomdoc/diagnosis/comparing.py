"""What a question compares, side by side: each alternative as a job of its own, priced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oomdoc.diagnosis.forms import first_that_fits, fits_of, needed_of, price_form, sharded
from oomdoc.intake.alternatives import Alternative
from oomdoc.intake.asked import Asked
from oomkb.dataclass import dataclass
from oomkb.memory.job import Job

_TRAINED_ONLY: Final = frozenset({"micro_batch", "grad_ckpt", "optimizer", "lora.r", "fused_ce"})
"""Fields in which no servers differ."""


def sides_of(job: Job, asked: Asked) -> tuple[Alternative, ...]:
    """What the question compares, as far as this run can differ in it."""
    fields = {name for side in asked.alternatives for name in side.fields}
    if job.objective == "inference":
        return () if fields & _TRAINED_ONLY else tuple(_served_side(side) for side in asked.alternatives)
    if "serving.kv_dtype" in fields:
        return ()
    return asked.alternatives if "quant" not in fields else _trained_sides(job, asked.alternatives)


def _trained_sides(job: Job, sides: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
    """Models of which each is trained over 4-bit or 16-bit weights; a format alone is none of training."""
    method = job.method if job.method in ("full", "lora") else "lora"
    methods = {"nf4": "qlora", "none": method}
    if all("method" in side.fields for side in sides):
        return tuple(Alternative(side.name, {n: v for n, v in side.fields.items() if n != "quant"}) for side in sides)
    if not all("model" in side.fields and side.fields["quant"] in methods for side in sides):
        return ()
    return tuple(
        Alternative(
            side.name,
            {"method": methods[side.fields["quant"]], **{n: v for n, v in side.fields.items() if n != "quant"}},
        )
        for side in sides
    )


def _served_side(side: Alternative) -> Alternative:
    """A length is a server's context."""
    served = {"serving.max_model_len" if n == "seq_len" else n: v for n, v in side.fields.items()}
    return Alternative(side.name, served)


def side_fields(job: Job, side: Alternative) -> dict[str, Any]:
    """The fields that make a job the compared alternative.

    An adapter over whole weights is not stored in 4 bits, whatever the other alternative is; and where nobody stated
    how the states are shared, each alternative has them as they fit it.
    """
    fields = {**side.fields, **({"quant": None} if side.fields.get("method") in ("full", "lora") else {})}
    if fields.get("method") == "qlora" and fields.get("sharding", job.sharding or "").startswith("zero"):
        fields["sharding"] = "fsdp"  # DeepSpeed leaves 4-bit weights whole on every card
    if fields.get("tp", 0) > (job.gpus or 1):
        fields["gpus"] = fields["tp"]
    if "sharding" in job.assumed and "sharding" not in side.fields:
        return first_that_fits(job, sharded(fields, job))[0]
    return fields


@dataclass(frozen=True, slots=True)
class Side:
    """One of the compared alternatives, priced; sizes in bytes per GPU."""

    name: str
    fields: Mapping[str, Any]
    needed_bytes: float
    capacity_bytes: float | None
    fits: bool | None
    requests: int | None = None
    """How many a server's cache holds at once, of the length that is asked about."""


def compared(job: Job, asked: Asked) -> tuple[Side, ...]:
    """What each alternative needs; none where fewer than two can be priced."""
    sides = []
    for side in sides_of(job, asked):
        fields = side_fields(job, side)
        priced = price_form(job, fields)
        if priced is not None:
            estimate = priced.estimate
            holds = int(estimate.served.requests) if estimate.served is not None else None
            sides.append(
                Side(side.name, fields, needed_of(estimate), estimate.capacity_bytes, fits_of(estimate), holds)
            )
    return tuple(sides) if len(sides) > 1 else ()
