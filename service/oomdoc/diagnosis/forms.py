"""Forms of a run that nobody started, priced one by one until one fits, and what a question compares, side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from oomdoc.evidence import Message, problem_of
from oomdoc.intake.alternatives import combined
from oomdoc.intake.asked import Asked
from oomdoc.intake.worded import Alternative
from oomkb.dataclass import dataclass
from oomkb.errors import OomdocError
from oomkb.frameworks import ENGINES, supports
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Assumption, Job
from oomkb.memory.ranks import cards_needed
from oomkb.pricing import Priced, price
from oomkb.units import GIB

BASE: Final = "the frozen base is held so"
"""Why the parameters of adapters' training are held in 16 bits: what is trained whole is not."""
FITS: Final = 0.75
"""Probability from which the answer is a plain yes."""
PER_MACHINE: Final = 8
"""Cards of one machine."""
CARD_USABLE: Final = 0.94
"""Share of a card that runs may take together; the rest is what CUDA holds for them."""
HOST_USABLE: Final = 0.9
"""Share of the host memory that the system leaves to one job."""
LITTLE_HOST_BYTES: Final = 4 * GIB
"""Host memory below which CUDA's libraries, which nothing here measures, are most of it."""
_PLAINLY_MORE: Final = 1.05


def first_that_fits(job: Job, forms: list[dict[str, Any]]) -> tuple[dict[str, Any], bool]:
    """The first form that fits its card, else the one that is nearest to it; without a card the first."""
    nearest: tuple[float, float, dict[str, Any]] | None = None
    for form in forms:
        priced = price_form(job, form)
        if priced is None:
            continue
        estimate = priced.estimate
        if estimate.fits_probability is None:
            return form, True
        if estimate.fits_probability >= FITS:
            return form, True
        need = needed_of(estimate)
        over = need / (estimate.capacity_bytes or need)
        if nearest is None or (over, need) < nearest[:2]:
            nearest = (over, need, form)
    return (nearest[2] if nearest else forms[0]), False


def price_form(job: Job, form: Mapping[str, Any], *, careful: bool = True) -> Priced | None:
    """The job in that form; ``None`` where it cannot be priced."""
    try:
        return price_as(job, form, careful=careful)
    except OomdocError:
        return None


def price_as(job: Job, form: Mapping[str, Any], *, careful: bool = True) -> Priced:
    """The job in that form, eight cards to a machine.

    :param careful: as :func:`oomkb.frameworks.complete` takes it.
    :raises OomdocError: where no run can be so.
    """
    spread = {**form, **machines_of(form.get("gpus") or 1)}
    if (job.tp or 1) > (form.get("gpus") or math.inf) and "tp" not in form:
        spread["tp"] = None  # of another machine, that has so many cards
    based = job.assumed.get("param_dtype")
    if form.get("method") == "full" and based is not None and based.why == BASE:
        spread = {"param_dtype": None, **spread}
    return price(job.with_fields(spread), careful=careful)


def needs_by_count(job: Job, counts: Sequence[int]) -> dict[int, float]:
    """What each of so many cards must hold, in bytes, where the model or its states are split over them."""
    needs = {}
    for count in counts:
        form = {"gpus": count, "tp": count} if job.objective == "inference" else sharded({"gpus": count}, job)[-1]
        priced = price_form(job, form)
        if priced is not None:
            needs[count] = needed_of(priced.estimate)
    return needs


TRAINING_COUNTS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Cards that are tried for a run: any part of a machine of eight, and whole machines."""
_SERVING_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
"""Of a server, over whose cards every layer is split."""


def counts_for(job: Job) -> tuple[int, ...]:
    """Usual numbers of cards, the least first."""
    return _SERVING_COUNTS if job.objective == "inference" else TRAINING_COUNTS


def fewest_cards(job: Job, counts: Sequence[int]) -> Priced | None:
    """The run on the least of so many cards that hold it."""
    job = job.with_fields(dict.fromkeys(("gpus", "nodes", "world", "dp")))
    for count in counts:
        form = {"gpus": count, "tp": count} if job.objective == "inference" else {"gpus": count}
        form = form if job.sharding is not None else sharded(form, job)[-1]
        priced = price_form(job, form)
        if priced is not None and fits_of(priced.estimate) and not host_is_short(priced.job, priced.estimate):
            return priced
    return None


def sharded(form: dict[str, Any], job: Job) -> list[dict[str, Any]]:
    """Copies on every card where they fit, else states split over the cards, in the ways that the framework has; one
    that has no setting for it splits them as it always does.
    """
    if (form.get("gpus") or job.gpus or job.world or 1) < 2:
        return [form]
    method = form.get("method") or job.method or "full"
    # DeepSpeed leaves 4-bit weights whole on every card.
    ways = [name for name in (_SPLIT_FOUR_BITS if method == "qlora" else _SPLIT) if _offers(job, name)][:1]
    whole = ["ddp"] if method != "full" and _offers(job, "ddp") else []
    return [{**form, "sharding": name} for name in (*whole, *ways)] if ways else [form]


_SPLIT: Final = ("zero3", "distributed-optimizer", "fsdp2", "fsdp")
_SPLIT_FOUR_BITS: Final = ("fsdp", "fsdp2")
"""Ways to split states over cards, the usual first."""


def offloading(job: Job) -> Job:
    """With the stage of ZeRO that offloads, where training offloads its states and nobody says what shares them."""
    what = set(job.offload or ()) & {"optimizer", "param"}
    stage = "zero3" if "param" in what else "zero2"
    if not what or job.sharding is not None or job.objective == "inference":
        return job
    if not supports(job.framework, "sharding", stage, versions=job.versions):
        return job
    return job.assuming({"sharding": Assumption(stage, "what offloads states in the usual trainers")})


def _offers(job: Job, sharding: str) -> bool:
    trainer = None if job.framework in ENGINES else job.framework
    return supports(trainer, "sharding", sharding, versions=job.versions)


def needed_of(estimate: Estimate) -> float:
    """What the process cannot do without, in bytes: of a server weights, buffers and one request's cache."""
    return estimate.needed_bytes or estimate.process_bytes


def most_of(estimate: Estimate, *beginnings: str) -> float:
    """What terms whose names begin so take together, in bytes, in the phase in which that is most."""
    phases = estimate.phases.values()
    sums = [sum([size for name, size in p.terms_bytes.items() if name.startswith(beginnings)]) for p in phases]
    return max(sums, default=0.0)


def host_is_short(job: Job, estimate: Estimate) -> bool:
    """Whether what is offloaded is more than the host memory that the machine is known to have."""
    return bool(job.host_gib) and estimate.host_bytes > HOST_USABLE * (job.host_gib or 0.0) * GIB


def beyond_share(job: Job, estimate: Estimate) -> tuple[str, dict[str, Any]] | None:
    """Of a run that would fit the card, and not the part of it that the engine takes: which part, and the sizes.

    ``share`` of the card, or of the ``rest`` that loading leaves.
    """
    share, served = job.get("serving.gpu_memory_utilization"), estimate.served
    if served is None or not share or needed_of(estimate) > (estimate.capacity_bytes or 0.0):
        return None
    sizes = {"share_bytes": share * served.shared_bytes, "rest_bytes": served.shared_bytes}
    whole = {"share_percent": round(100 * share), "process_bytes": estimate.process_bytes}
    return "rest" if served.of_the_rest else "share", {**sizes, **whole}


def pinned_most(estimate: Estimate) -> float | None:
    """Host memory of one machine with pinned blocks, in bytes, where it is plainly more than what is offloaded."""
    return estimate.host_most_bytes if estimate.host_most_bytes > _PLAINLY_MORE * estimate.host_bytes else None


def job_fits(job: Job, estimate: Estimate) -> bool | None:
    """Whether the card holds what it must, and the machine what is offloaded; ``None`` where no card is known."""
    return False if host_is_short(job, estimate) else estimate.fits


def verdict_on(estimate: Estimate) -> Literal["fits", "tight", "does-not-fit", "unknown"]:
    """Whether a run fits its card: only just where less is needed than there is, but not by enough to count on."""
    probability, capacity = estimate.fits_probability, estimate.capacity_bytes
    if probability is None:
        return "unknown"
    if probability >= FITS:
        return "fits"
    # An engine has a share of the card, whatever the card holds.
    within = capacity is not None and estimate.served is None and needed_of(estimate) <= capacity
    return "tight" if within or probability > 1 - FITS else "does-not-fit"


def fits_of(estimate: Estimate) -> bool | None:
    """Whether it fits, as the answer says it."""
    return None if estimate.fits_probability is None else estimate.fits_probability >= FITS


_TRAINED_ONLY: Final = frozenset({"micro_batch", "grad_ckpt", "optimizer", "lora.r", "fused_ce"})
"""Fields in which no servers differ."""
_SERVED_ONLY: Final = frozenset({"serving.kv_dtype", "serving.concurrency", "serving.max_num_seqs"})
"""Fields in which no training runs differ."""


def _axis_of(job: Job, axis: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
    fields = {name for side in axis for name in side.fields}
    if any(side.fields.get("gpus", 0) > PER_MACHINE for side in axis):
        axis = tuple(
            replace(side, fields={**side.fields, **(machines_of(side.fields.get("gpus", 1)) or {"nodes": 1})})
            for side in axis
        )
    if job.objective == "inference":
        return () if fields & _TRAINED_ONLY else tuple(_served_side(side) for side in axis)
    if fields & _SERVED_ONLY:
        return ()
    return axis if "quant" not in fields else _trained_sides(job, axis)


def machines_of(cards: int) -> dict[str, int]:
    """So many cards as several whole machines; empty where they are not."""
    machines, rest = divmod(cards, PER_MACHINE)
    return {"gpus": PER_MACHINE, "nodes": machines} if machines > 1 and not rest else {}


def batch_at_once(job: Job) -> Job:
    """The batch of a model that is only run is the requests that are in the cache together."""
    if (job.micro_batch or 1) > 1 and job.get("serving.concurrency") is None:
        return job.with_fields({"serving.concurrency": job.micro_batch, "micro_batch": None})
    return job


def split_as_stated(job: Job) -> Job:
    """Without a number of cards that is less than the model is split over: it is another run's, or somebody's guess."""
    cards = job.world or (job.gpus or 0) * (job.nodes or 1)
    if cards and cards < cards_needed(job):
        return job.with_fields({"gpus": None, "world": None})
    return job


def over_quantized_base(job: Job, asked: Asked) -> Job:
    """Adapters over weights of four or eight bits, where a question about training says only the bits."""
    open_ = job.quant is None and not (asked.full or asked.scratch or asked.alternatives)
    if not open_ or not asked.trains or job.objective == "inference":
        return job
    if job.method is None and asked.quant in ("int4", "nf4"):
        return job.with_fields({"method": "qlora"})
    of_optimizer = str(job.optimizer or "").endswith("8bit")  # 8-bit Adam
    if job.method in (None, "lora") and asked.quant == "int8" and not of_optimizer:
        return job.with_fields({"method": "lora", "quant": "int8"})
    return job


def _trained_sides(job: Job, sides: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
    """Models of which each is trained over 4-bit or 16-bit weights; a format alone is none of training."""
    method = job.method if job.method in ("full", "lora") else "lora"
    methods = {"nf4": "qlora", "none": method}
    if all("method" in side.fields for side in sides):
        return tuple(replace(side, fields={n: v for n, v in side.fields.items() if n != "quant"}) for side in sides)
    if not all("model" in side.fields and side.fields["quant"] in methods for side in sides):
        return ()
    return tuple(
        replace(
            side,
            fields={"method": methods[side.fields["quant"]], **{n: v for n, v in side.fields.items() if n != "quant"}},
        )
        for side in sides
    )


def _served_side(side: Alternative) -> Alternative:
    """A length is a server's context."""
    served = {"serving.max_model_len" if n == "seq_len" else n: v for n, v in side.fields.items()}
    return replace(side, fields=served)


def forms_of_sides(job: Job, asked: Asked) -> list[tuple[Alternative, dict[str, Any]]]:
    """What the question compares, as far as this run can differ in it, each with the fields that make a job of it.

    Runs of one method on as many cards share their states alike, in the way of the one that needs it most: of two
    batch sizes the larger takes more.
    """
    axes = (_axis_of(job, axis) for axis in asked.axes)
    sides = combined([axis for axis in axes if axis])
    weighed = {kind for side in sides for kind in side.fields.get("offload", ())}
    kept = tuple(kind for kind in job.offload or () if kind not in weighed)
    found = [(side, side_fields(job, _with_kept(side, kept))) for side in sides]
    ways: dict[tuple[Any, ...], str] = {}
    for side, fields in found:
        if "sharding" not in side.fields and fields.get("sharding") not in (None, "ddp"):
            ways[tuple(fields.get(name) for name in _APART)] = fields["sharding"]
    for side, fields in found:
        way = ways.get(tuple(fields.get(name) for name in _APART))
        if way is not None and "sharding" not in side.fields:
            fields["sharding"] = way
    return found


def _with_kept(side: Alternative, kept: tuple[str, ...]) -> Alternative:
    """With what is offloaded in any case, where something else that may be is compared."""
    if "offload" not in side.fields:
        return side
    return replace(side, fields={**side.fields, "offload": (*kept, *side.fields["offload"])})


_APART: Final = ("gpus", "nodes", "gpu", "method", "model", "params_b")


def side_fields(job: Job, side: Alternative) -> dict[str, Any]:
    """The fields that make a job the compared alternative.

    An adapter over whole weights is not stored in 4 bits, whatever the other alternative is; and where nobody stated
    how the states are shared, each alternative has them as they fit it.
    """
    fields = {**side.fields, **({"quant": None} if side.fields.get("method") in ("full", "lora") else {})}
    if fields.get("method") == "qlora" and fields.get("sharding", job.sharding or "").startswith("zero"):
        fields["sharding"] = "fsdp"  # DeepSpeed leaves 4-bit weights whole on every card
    if (fields.get("tp") or 0) > (job.gpus or 1):
        fields["gpus"] = fields["tp"]
    count = fields.get("gpus")
    if count is not None:
        fields |= {"world": None, "dp": None}
        if job.objective == "inference" and "tp" in job.assumed and "tp" not in side.fields:
            fields["tp"] = count
    if job.objective == "inference":
        return fields
    if "sharding" not in side.fields and ("sharding" in job.assumed or (count and job.sharding is None)):
        return first_that_fits(job, sharded(fields, job))[0]
    return fields


@dataclass(frozen=True, slots=True)
class Side:
    """One of the compared alternatives, priced; sizes in bytes per GPU."""

    asked: Alternative
    fields: Mapping[str, Any]
    priced: Priced | None
    """``None`` where no run can be so."""
    needed_bytes: float | None
    capacity_bytes: float | None
    fits: bool | None
    requests: int | None = None
    """How many a server's cache holds at once, of the length that is asked about."""
    problem: Message | str = ""
    """Why no run can be so."""


def compared(job: Job, asked: Asked, counts: Sequence[int] = ()) -> tuple[Side, ...]:
    """What each alternative needs; none where fewer than two can be priced.

    :param counts: numbers of cards of which each alternative has the fewest that hold it.
    """
    sides = []
    for one, form in forms_of_sides(job, asked):
        searched = bool(counts) and "gpus" not in form
        fields = _fewest(job, form, counts) if searched else form
        side = _counted(one, fields["gpus"]) if searched else one
        try:
            priced = price_as(job, fields)
        except OomdocError as error:
            sides.append(Side(side, fields, None, None, None, fits=False, problem=problem_of(error)))
            continue
        estimate = priced.estimate
        holds = int(estimate.served.requests) if estimate.served is not None else None
        fits = False if host_is_short(priced.job, estimate) else fits_of(estimate)
        needed, capacity = needed_of(estimate), estimate.capacity_bytes
        sides.append(Side(side, fields, priced, needed, capacity, fits, holds))
    return tuple(sides) if len(sides) > 1 and any(side.priced for side in sides) else ()


def _counted(side: Alternative, count: int) -> Alternative:
    """The alternative, named with the number of cards that was found for it."""
    cards = Alternative(f"gpus {count}", {"gpus": count}, str(count))
    return replace(side, fields={**side.fields, "gpus": count}, parts=(*(side.parts or (side,)), cards))


def _fewest(job: Job, fields: dict[str, Any], counts: Sequence[int]) -> dict[str, Any]:
    """The alternative on the fewest cards that hold it."""
    if job.objective == "inference":
        forms = [{**fields, "gpus": count, "tp": count} for count in counts]
    else:
        forms = [form for count in counts for form in sharded({**fields, "gpus": count}, job)]
    return first_that_fits(job, forms)[0]
