"""The planner: from a job to plans that fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from oomdoc.diagnosis.fixes import REMEDIES, Context
from oomdoc.diagnosis.fixes._remedy import global_batch, is_script, is_serving, world_size
from oomdoc.diagnosis.forms import most_of
from oomdoc.diagnosis.planning.changes import changes_of, fewer_steps, is_instruction, saved_bytes, single_fix
from oomdoc.diagnosis.planning.hardware import length_in_need, share_that_starts, smallest, spilled
from oomdoc.diagnosis.planning.moves import GOALS, Goal, Move, offered, safety_of, without_scores
from oomdoc.diagnosis.planning.prices import Hardware, Planning, Price, Prices
from oomdoc.diagnosis.planning.quantities import largest
from oomdoc.diagnosis.planning.search import Found, Search
from oomdoc.diagnosis.planning.space import Priced, Space, Surrogate, enough
from oomdoc.diagnosis.planning.spelling import spelled
from oomdoc.diagnosis.result import Plan, SingleFix
from oomdoc.diagnosis.throughput import throughput
from oomdoc.evidence import Message, say
from oomkb.errors import OomdocError
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.pricing import device_of, price_planned
from oomkb.units import GIB

_MAX_PLANS: Final = 3
_GATHERED: Final = ("zero3", "fsdp", "fsdp2")
_NOTED_WAIT_SHARE: Final = 0.15
"""Share of a step above which waiting time is mentioned."""
_NOISE: Final = float(1 << 20)
_MIN_SAVING_BYTES: Final = 64 << 20
"""What saves less is no advice."""
_ORDER: Final = tuple(goal.name for goal in GOALS)
_SHORT_CONTEXT: Final = 8192
"""Tokens of a context below which a server refuses much of what people send."""
_LONGER: Final = 4
_MIN_SPEED: Final = 0.5
"""Of the speed: what keeps it with the same numbers and the whole context comes before other weights."""
_ONLY_STATED: Final = ("eval_micro_batch", "log_prob_batch", "packing")
_SINGLES: Final = 5
_SHORT_BESIDE: Final = 2
"""Fixes that are not enough alone, beside those that are."""


def plan(job: Job, *, wanted: float = 0.9, context: Context | None = None) -> Planning:
    """Plans for a job that should fit its GPU with probability ``wanted``.

    The stated fields of ``job`` are kept where no remedy changes them; what is missing is filled as its framework
    would. A job that already fits gets no plans, but its single fixes and the largest batch and length.

    :raises JobError: for a job that cannot be priced (no model named, impossible sizes).
    """
    prices = Prices(job, careful=job.framework is None)
    return plan_with(prices, context_for(prices, context), wanted=wanted)


def mildest_plan(job: Job, kept: Collection[str], *, careful: bool, wanted: float) -> Plan | None:
    """The first plan on the hardware that is there, for a job as it is stated; ``None`` where it fits or none does.

    :param kept: fields that no change may touch.
    """
    prices = Prices(job, careful=careful)
    found = plan_with(prices, context_for(prices), wanted=wanted, plans_only=True)
    for plan in found.plans:
        touched = {name for change in plan.changes for name in change.fields}
        if plan.name != "more-hardware" and plan.fits_probability >= wanted and touched.isdisjoint(kept):
            return plan
    return None


def whatif(job: Job, changes: Mapping[str, Any]) -> tuple[Estimate, Estimate]:
    """The estimates before and after setting job fields.

    :raises JobError: for an unknown field, an impossible value or a job that cannot be priced.
    """
    return price_planned(job).estimate, price_planned(job.with_fields(changes)).estimate


def context_for(prices: Prices, given: Context | None = None) -> Context:
    """The context with what pricing found out: the card, the shape, the framework."""
    job = prices.job
    host = prices.stated.host_gib * (1 << 30) if prices.stated.host_gib else None
    return replace(
        given or Context(),
        device=prices.device,
        shape=prices.shape,
        framework=prices.stated.framework,
        versions=job.versions,
        host_bytes=(given.host_bytes if given and given.host_bytes else host),
        serving=is_serving(job),
        script=is_script(job),
    )


def plan_with(
    prices: Prices,
    context: Context,
    *,
    wanted: float,
    force: bool = False,
    relief: tuple[str, float] | None = None,
    plans_only: bool = False,
) -> Planning:
    """Plan around prepared prices.

    :param force: whether reality says that the job as it is does not fit.
    :param relief: the phase that failed, and the bytes to which its tensors must fall.
    :param plans_only: whether only plans that fit are asked for, no single fixes and no hardware.
    """
    if (share := share_that_starts(prices, context)) is not None:
        return _with_first(share, prices, context, wanted)
    if (length := length_in_need(prices, context)) is not None:
        return _with_first(length, prices, replace(context, without=context.without | {"serving-length"}), wanted)
    if (kernel := without_scores(prices.job, context)) is not None:
        return _with_first(kernel, prices, replace(context, without=context.without | {"attention"}), wanted)
    base = prices.base
    surrogate = Surrogate(base.estimate)
    singles = _singles(prices, context, surrogate)
    served = is_serving(prices.job)
    # What failed beside a server's pool is not helped by what only makes the pool's contents smaller; a step fits
    # only once its later phases do, which the failed one says nothing of.
    helpful = [s for s in singles if s.move.remedy.hardware or not served or _relieves(s, base, relief)]
    fixes = () if plans_only else _single_fixes(prices, helpful, wanted, relief)
    sizes = partial(largest, prices, wanted)
    if prices.capacity_bytes is None or (base.probability >= wanted and not force):
        return Planning(singles=fixes, sizes=sizes, before=base.estimate)
    space = Space(prices, surrogate, helpful, context, wanted, relief)
    found = _found(space)
    plans = [as_estimated(as_plan(name, one, prices), prices) for name, one in _distinct(found)]
    on_this = [name for name in found if name != "more-hardware"]
    nothing: Message | None = None
    hardware: Hardware | None = None
    if not on_this and not plans_only:
        nothing, hardware, closest = _nothing_fits(Search(space, next(g for g in GOALS if g.name == "keep-hardware")))
        if closest is not None and closest.fits_probability >= wanted:
            nothing = hardware = closest = None  # it fits by the arithmetic, which what failed contradicts
        if closest is not None and len(plans) < _MAX_PLANS:
            plans = [*plans, as_estimated(closest, prices)]
    part = spilled(prices, context, wanted)
    if part is not None:
        here = [p for p in plans if p.name != "more-hardware" and p.fits_probability >= wanted]
        nothing = None
        milder = part.relative_speed >= _MIN_SPEED and not any(p.safety == "same-numbers" for p in here)
        meant = prices.job.host_gib is not None  # who names the machine's memory means to use it
        first = [part, *here] if milder or meant else [*here[: _MAX_PLANS - 1], part]
        plans = [*first, *(p for p in plans if p.name == "more-hardware")]
    return Planning(
        plans=tuple(plans[:_MAX_PLANS]),
        singles=fixes,
        sizes=sizes,
        nothing_fits=nothing,
        hardware=hardware,
        before=base.estimate,
    )


def _with_first(first: Move, prices: Prices, context: Context, wanted: float) -> Planning:
    """What is planned around the job with one change that stands in every plan: it is what starts, or costs nothing."""
    price = prices.of(first.fields)
    one = as_plan("keep-numerics", Found((first,), price, 0.0, True), prices) if price is not None else None
    alone = (as_estimated(one, prices),) if one is not None else ()
    if price is not None and price.probability >= wanted:
        return Planning(plans=alone, before=prices.base.estimate)
    raised = replace(prices, stated=prices.stated.with_fields(first.fields))
    found = plan_with(raised, context, wanted=wanted)
    ahead = changes_of(prices.job, raised.job, (first,), prices)
    plans = tuple(replace(plan, changes=(*ahead, *plan.changes)) for plan in found.plans)
    return replace(found, plans=plans or alone, before=prices.base.estimate)


def _singles(prices: Prices, context: Context, surrogate: Surrogate) -> list[Priced]:
    out = []
    for move in offered(prices.job, context):
        price = prices.of(move.fields)
        if (
            price is not None
            and context.host_holds(price.estimate.host_bytes)
            and not _raises_its_claim(prices, move, price)
        ):
            out.append(Priced(move, price, surrogate.effect(price.estimate)))
    return out


def _relieves(single: Priced, before: Price, relief: tuple[str, float] | None) -> bool:
    """Whether a move takes something from the phase that failed."""
    if relief is None:
        return True
    then, now = (p.estimate.phases.get(relief[0]) for p in (single.price, before))
    return now is None or then is None or then.total_bytes < now.total_bytes - _MIN_SAVING_BYTES


def _raises_its_claim(prices: Prices, move: Move, price: Price) -> bool:
    """Whether on this very job a remedy raises what it is there to lower: buffers larger than what they replace."""
    prefixes = move.remedy.reduces
    if not prefixes or move.needs:
        return False
    # Accumulation raised to keep the global batch keeps gradients alive: not the remedy's doing.
    steps = price.job.grad_accum
    same = prices.of({"grad_accum": steps}) if steps != prices.job.grad_accum else prices.base
    return same is not None and most_of(price.estimate, *prefixes) > 1.001 * most_of(same.estimate, *prefixes) + _NOISE


def _single_fixes(
    prices: Prices, singles: Sequence[Priced], wanted: float, relief: tuple[str, float] | None = None
) -> tuple[SingleFix, ...]:
    """One row per remedy: the mildest variant that fits alone, else the one that saves most."""
    best: dict[str, tuple[tuple[bool, float, str], bool | None, Priced]] = {}
    for single in singles:
        if single.move.needs:
            continue
        remedy, price = single.move.remedy, single.price
        fits = None if prices.capacity_bytes is None else enough(price, prices.base, wanted, relief)
        if remedy.hardware and relief is not None and relief[1] > 0:
            fits = price.probability >= wanted  # a larger card: what the failed phase may hold is larger, too
        # A server's settings move room about rather than save it: what brings it nearest to a start.
        gain = price.probability if is_serving(prices.job) else saved_bytes(prices, remedy, price)
        # Where no card is known, the mildest variant tells enough.
        mild = fits is not False
        rank = (not mild, single.move.variant.effort if mild else -gain, single.move.key)
        if remedy.name not in best or rank < best[remedy.name][0]:
            best[remedy.name] = (rank, fits, single)
    rows = [single_fix(prices.job, one.move, one.price, prices, fits) for _, fits, one in best.values()]
    fewer = fewer_steps(prices, wanted)
    return _shown([*rows, *([fewer] if fewer is not None else [])])


def _shown(rows: Sequence[SingleFix]) -> tuple[SingleFix, ...]:
    """What fits alone, the cheapest first; then a little that helps most and is not enough, more where nothing fits."""
    hardware = {r.name for r in REMEDIES if r.hardware}
    once: dict[str, SingleFix] = {}
    for fix in sorted(rows, key=lambda f: (f.cost, f.change.remedy)):
        once.setdefault(repr(fix.change.instruction or (fix.change.key, fix.change.new)), fix)
    fits = [f for f in once.values() if f.fits is not False][:_SINGLES]
    short = [f for f in once.values() if f.fits is False and f.change.remedy not in hardware]
    short = [f for f in short if f.change.saves_bytes >= _MIN_SAVING_BYTES]
    short.sort(key=lambda f: (-f.change.saves_bytes, f.change.remedy))
    short = short[: _SHORT_BESIDE if fits else _SINGLES]
    return (*fits, *sorted(short, key=lambda f: (f.cost, f.change.remedy)))


def _found(space: Space) -> dict[str, Found]:
    """The best of each kind, as many kinds as are shown."""
    found: dict[str, Found] = {}
    searched: list[tuple[Goal, Found | None]] = []
    for goal in GOALS:
        if len(_distinct(found)) >= _MAX_PLANS:
            break
        if goal.dear[0] and not is_serving(space.prices.job):
            continue
        # A search that may use all that this one may, and minds the same, has found nothing, or its answer.
        within = (best for wider, best in searched if goal.within(wider))
        if any(best is None or all(map(goal.allows, best.moves)) for best in within):
            continue
        best = Search(space, goal).run()
        searched.append((goal, best))
        if best is not None:
            found[goal.name] = best
    return found


def _distinct(found: Mapping[str, Found]) -> list[tuple[str, Found]]:
    """Up to three that differ in kind, the least painful first; more hardware last, and only to fill up."""
    order = [n for n in _ORDER if n in found]
    numerics, least = found.get("keep-numerics"), found.get("keep-hardware")
    # What changes the training comes first only where keeping the numbers is far more painful.
    if numerics and least and least.pain < 0.6 * numerics.pain:
        order.remove("keep-hardware")
        order.insert(0, "keep-hardware")
    if numerics and _far_longer(found.get("keep-context"), numerics):
        order.remove("keep-context")
        order.insert(0, "keep-context")
    kept: list[tuple[str, Found]] = []
    seen: set[frozenset[str]] = set()
    for name in order:
        kind = frozenset(r.name for move in found[name].moves for r, _ in move.all_parts)
        if kind not in seen:
            seen.add(kind)
            kept.append((name, found[name]))
    return kept[:_MAX_PLANS]


def _far_longer(context: Found | None, numerics: Found) -> bool:
    """Whether keeping the numbers takes so much of the context that little is left to serve."""
    if context is None:
        return False
    long, short = (f.price.job.get("serving.max_model_len") or 0 for f in (context, numerics))
    return bool(0 < short < _SHORT_CONTEXT and long >= _LONGER * short)


def as_plan(name: str, found: Found, prices: Prices, notes: Sequence[Message] = ()) -> Plan:
    """A found set of moves as a plan with its changes."""
    before, after = prices.job, found.price.job
    said = [n for move in found.moves for _, v in move.all_parts for n in v.notes if not is_instruction(n)]
    batch, new_batch = global_batch(before), global_batch(after)
    if batch and new_batch and batch != new_batch:
        said.append(say("fixes.note.global-batch", before=batch, after=new_batch))
    said += _why_slow(found.price, prices)
    return Plan(
        name=name,
        changes=changes_of(before, after, found.moves, prices),
        job=after,
        estimate=found.price.estimate,
        fits_probability=found.price.probability,
        relative_speed=found.price.speed,
        safety=safety_of(found.moves),
        notes=(*notes, *said),
    )


def as_estimated(plan: Plan, prices: Prices) -> Plan:
    """The plan with the figures and the verdict that ``oomdoc estimate`` gives for its own job.

    Room that other processes take is left out of the job's capacity.
    """
    job, capacity = plan.job, prices.capacity_bytes
    if capacity is not None and "gpu" not in {n for c in plan.changes for n in c.fields}:
        own = device_of(job)
        if own is None or abs(own.capacity_bytes - capacity) > _NOISE:
            job = job.with_fields({"capacity_gib": capacity / GIB})
    # Evaluation and packing are priced only where somebody wants them.
    job = job.with_fields({n: None for n in _ONLY_STATED if n in job.assumed})
    try:
        job = Job.from_document(job.document())
        estimate = price_planned(job).estimate
    except OomdocError:
        return plan
    probability = plan.fits_probability if estimate.fits_probability is None else estimate.fits_probability
    if prices.engine is not None and prices.engine.accepts(job):
        probability = max(probability, plan.fits_probability)
    return replace(plan, job=job, estimate=estimate, fits_probability=probability)


def _why_slow(price: Price, prices: Prices) -> list[Message]:
    """What a step waits for, where that is much of it: weights gathered from other GPUs, or the link to the host."""
    pace = throughput(price.job, prices.shape, prices.device, price.estimate.host_bytes)
    said = []
    gathers = price.job.sharding in _GATHERED and (price.job.sharding != prices.job.sharding)
    if gathers and pace.network_s > _NOTED_WAIT_SHARE * pace.step_s:
        said.append(say("fixes.note.slow-network", network=_seconds(pace.network_s), step=_seconds(pace.step_s)))
    if price.job.get("rollout.colocated") is False and prices.job.get("rollout.colocated") is not False:
        tokens, device = price.job.completion_len or 1024, prices.device
        if device is not None and device.bandwidth_bytes_per_s:
            # Every token reads all weights once.
            engine = device.bandwidth_bytes_per_s * (price.job.get("rollout.tensor_parallel") or 1)
            seconds = tokens * 2 * prices.shape.params / engine
            said.append(say("fixes.note.slow-rollout", tokens=f"{tokens:,}", seconds=_seconds(seconds)))
    more = set(price.job.offload or ()) - set(prices.job.offload or ())
    away = pace.offload_s + pace.host_s
    if more and away > _NOTED_WAIT_SHARE * pace.step_s:
        said.append(say("fixes.note.slow-offload", offload=_seconds(away), step=_seconds(pace.step_s)))
    return said


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _nothing_fits(how: Search) -> tuple[Message, Hardware | None, Plan | None]:
    prices = how.space.prices
    closest = how.most()
    least = (closest.price if closest else prices.base).estimate.process_bytes * prices.scale
    place = smallest(prices, how.space.context, how.space.wanted)
    values: dict[str, Any] = {
        "least_bytes": least,
        "capacity_bytes": prices.capacity_bytes or 0.0,
        "gpus": world_size(prices.job),
    }
    kind = "nothing-fits-server" if is_serving(prices.job) else "nothing-fits"
    message = say(f"fixes.{kind}.none", **values)
    if place is not None:
        values |= {"gpu": place.gpu, "count": place.gpus * place.nodes}
        message = say("fixes.nothing-fits.hardware", **values)
        shards = place.sharding not in (None, "none", "ddp")
        also = {"sharding": place.sharding, **place.changes} if shards else place.changes
        new = {n: v for n, v in also.items() if v != prices.job.get(n)}
        words = [w for n, v in new.items() for w in spelled(prices.stated.framework, n, v) or ((n, v),)]
        if words:
            changes = [f"{name}: {value}" for name, value in words]
            message = say("fixes.nothing-fits.hardware-and-settings", **values, changes=changes)
    shown = None
    if closest is not None and closest.moves:
        shown = as_plan("closest", closest, prices, (say("fixes.note.still-too-big"),))
    return message, place, shown
