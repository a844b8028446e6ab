"""Plans for a diagnosis: first what removes the cause, then what makes room, all relative to what really happened."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from oomdoc.diagnosis.fixes import REMEDIES, Context
from oomdoc.diagnosis.fixes._remedy import Variant, is_serving
from oomdoc.diagnosis.forms import needed_of
from oomdoc.diagnosis.planning.calibrate import Calibration, calibrate, loads_easily, measured, of_this_run
from oomdoc.diagnosis.planning.changes import in_words
from oomdoc.diagnosis.planning.instructions import Weigh, advice_on, plans_of
from oomdoc.diagnosis.planning.moves import is_as_mild
from oomdoc.diagnosis.planning.needless import not_set, ruled_out
from oomdoc.diagnosis.planning.patching import Written, as_spelled, patched
from oomdoc.diagnosis.planning.planner import plan_with
from oomdoc.diagnosis.planning.prices import Planning, Prices
from oomdoc.diagnosis.planning.printed import context_of
from oomdoc.diagnosis.planning.quantities import ANSWERS, Quantity, lowest_share, quantity, settings_for
from oomdoc.diagnosis.result import CauseFinding, Change, Diagnosis, Plan
from oomdoc.evidence import Evidence, Message, say
from oomkb.errors import OomdocError
from oomkb.memory.job import Job

_ARITHMETIC: Final = frozenset(
    [
        *("logits", "activations", "attention-scores", "model-states", "extra-models", "rollout-engine", "kv-cache"),
        *("optimizer-init", "zero3-gather", "vision-tokens", "weights-load", "hardware-limit", "cuda-graph"),
    ]
)
"""Causes that settings answer; for the others the cause itself has to go."""
_NEVER: Final = frozenset({"host-ram", "not-oom", "shared-memory"})
"""Causes to which no size of the job on the GPU is an answer."""
_MIN_PROBABILITY: Final = 0.25
_MIN_OF_FIRST: Final = 0.6
"""Of the first cause's probability, from which another one is answered as well."""
_MAX_SHOWN_PLANS: Final = 3
_MAX_UNEXPLAINED_RATIO: Final = 2.0
"""Where reality took more than this for every byte of the estimate, something else fills the card than is priced."""
_OF_THE_CAUSE: Final = frozenset(["entropy-chunks", "image-size", "load-sharded", "wrap-layers"])
"""Instructions that come before any smaller setting."""


def plan_for(diagnosis: Diagnosis, *, wanted: float = 0.9) -> Diagnosis:
    """The diagnosis with plans, single fixes and what they take for granted."""
    planning = planning_for(
        diagnosis.evidence,
        diagnosis.job,
        diagnosis.causes,
        careful=diagnosis.careful,
        explained=not any(not c.field for c in diagnosis.conflicts),
        images_decide=any(c.why.key == _IMAGES for c in diagnosis.conflicts),
        ineffective=frozenset(c.field for c in diagnosis.conflicts if c.field),
        matched=[m.case for m in diagnosis.matches],
        wanted=wanted,
    )
    nothing = planning.nothing_fits
    return replace(
        diagnosis,
        plans=planning.plans,
        singles=planning.singles,
        nothing_fits=nothing,
        warnings=(*diagnosis.warnings, *planning.notes, *([nothing] if nothing is not None else [])),
    )


_IMAGES: Final = "inferred.images"


def planning_for(
    evidence: Evidence,
    job: Job,
    causes: Sequence[CauseFinding] = (),
    *,
    careful: bool = False,
    explained: bool = True,
    images_decide: bool = False,
    ineffective: Collection[str] = (),
    matched: Iterable[str] = (),
    wanted: float = 0.9,
) -> Planning:
    """Plans for a failure that was read: cause first, then arithmetic, calibrated against the failure's own figures.

    :param explained: whether any plausible run explains the figures that were seen; none is priced where not.
    :param images_decide: whether images that nobody sized are what the figures do not explain.
    :param ineffective: fields that are stated and, by the figures, not in effect: to be found out why, not to be set.
    :param careful: whether open fields are filled as a careful person starts.

    A job that cannot be priced still gets the steps that follow from its cause.
    """
    likely = _likely(causes)
    context = context_of(evidence, job, likely, matched)
    facts = {**context.facts, "images_decide": images_decide}
    context = replace(context, without=context.without | ruled_out(evidence, job), facts=facts)
    try:
        prices: Prices | None = (
            Prices(job, careful=careful)
            if explained and context.facts["pipeline"] is None and not context.facts["calibrates"]
            else None
        )
    except OomdocError:
        prices = None
    if prices is not None:
        prices = prices.measured_by(measured(evidence, prices))
        context = of_this_run(evidence, prices, context)
        if likely[:1] != ["version-regression"] and (note := loads_easily(evidence, prices)) is not None:
            context = replace(context, causes=("other-process",))
            return Planning(plans=plans_of(advice_on(prices.job, context), prices.job, None, (note,)))
    advice = not_set(advice_on(prices.job if prices else job, context), evidence)
    first = likely[0] if likely else ""
    if prices is None:
        notes = (say("fixes.note.unpriced"),) if explained else ()
        if first in _ARITHMETIC and not _is_apart(job, context):
            advice = _foremost([*not_set(settings_for(job, context), evidence), *advice])
        plans = plans_of(advice, job, None, notes)
        return Planning(plans=plans, notes=() if plans else notes)
    found = Planning(before=prices.base.estimate)
    weigh = partial(quantity, prices=prices, context=context, wanted=wanted)
    stated_to_fail = evidence.root is None and first in _ARITHMETIC
    needed = None if is_serving(prices.job) or prices.capacity_bytes is None else prices.needed_bytes
    calibration = calibrate(
        evidence, prices.base.estimate, wanted, needed, failed=stated_to_fail, own_engine=first == "rollout-engine"
    )
    far = max(calibration.scale, calibration.short) > _MAX_UNEXPLAINED_RATIO
    if (prices.capacity_bytes is None or far) and first in _ARITHMETIC:
        advice = _foremost([*not_set(settings_for(prices.job, context), evidence), *advice])
        wanted_bytes = evidence.root.requested_bytes or math.inf if evidence.root is not None else 0.0
        far = far and (bool(advice) or wanted_bytes > (prices.capacity_bytes or math.inf))
    of_size = not first or first in _ARITHMETIC
    if first not in _NEVER and not far and (of_size or prices.base.probability < wanted):
        fitted = prices.recalibrated(calibration.capacity_bytes, calibration.scale)
        search = partial(
            _arithmetic,
            fitted,
            wanted=wanted,
            calibration=calibration,
            failed=stated_to_fail or (evidence.root is not None and evidence.root.kind == "device"),
        )
        found = _mild_unless(_cause_first(causes, context, search, wanted), of_size)
    plans = found.plans
    unset = any(name == "image-size" or _instead(v) for _, name, v in advice)
    if first in _ARITHMETIC and plans and not unset:
        # Advice without a saving to promise goes along with the first plan.
        plans = (_with_hints(plans[0], [a[1:] for a in advice if a[0] == first], prices, context, weigh), *plans[1:])
        advice = [a for a in advice if a[0] not in _ARITHMETIC]
    fits = prices.base.probability >= wanted and prices.capacity_bytes is not None
    said = (say("fixes.note.look-first"),) if fits and not plans else ()
    if far and first in _ARITHMETIC:
        said = (say("fixes.note.too-far", predicted_bytes=needed_of(prices.base.estimate)),)
    of_causes = plans_of(advice, prices.job, prices.base.estimate, said, prices.base.probability, weigh)
    own = tuple(_if_not_enough(plan, found, prices) if plans else plan for plan in of_causes)
    lead = own and advice[0][0] == first
    plans = (*own, *plans) if lead else (*plans[: _MAX_SHOWN_PLANS - len(own)], *own)
    ordered = [_in_order(plan, first, ineffective) for plan in plans[:_MAX_SHOWN_PLANS]]
    return _in_own_keys(replace(found, plans=tuple(ordered)), evidence, prices.job, ineffective)


def _likely(causes: Sequence[CauseFinding]) -> list[str]:
    """The causes that are answered, the first at least."""
    least = max(_MIN_PROBABILITY, _MIN_OF_FIRST * causes[0].probability) if causes else _MIN_PROBABILITY
    return [c.cause for c in causes if c.probability >= least] or [c.cause for c in causes[:1]]


def _foremost(advice: Sequence[tuple[str, str, Variant]]) -> list[tuple[str, str, Variant]]:
    """The advice with what takes the cause away before any smaller setting."""
    return sorted(advice, key=lambda one: one[1] not in _OF_THE_CAUSE)


def _mild_unless(found: Planning, of_size: bool) -> Planning:
    """Only plans that change neither numbers nor hardware, unless a size of the run is what failed it."""
    mild = tuple(p for p in found.plans if p.safety == "same-numbers" and p.name != "more-hardware")
    return found if of_size else replace(found, plans=mild)


def _in_own_keys(found: Planning, evidence: Evidence, job: Job, ineffective: Collection[str]) -> Planning:
    """The plans and fixes in the keys of the person's files."""
    spelled = [as_spelled(each, evidence) for each in found.singles]
    singles = tuple(replace(single, change=_effect(single.change, ineffective)) for single in spelled)
    written: Written = {}
    shown = [_said(plan, evidence, job, written) for plan in found.plans]
    return replace(found, singles=singles, plans=_written_first(shown))


def _written_first(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """A plan that is all in the person's files comes before one of which they have no place for a setting."""
    if not plans or all(c.file is not None or not c.fields or c.instruction is not None for c in plans[0].changes):
        return tuple(plans)
    here = [p for p in plans if p.priced and p.patch and p.name != "more-hardware"]
    whole = [p for p in here if all(change.file is not None for change in p.changes)]
    return (*whole[:1], *(plan for plan in plans if plan not in whole[:1]))


def _in_order(plan: Plan, cause: str, ineffective: Collection[str]) -> Plan:
    """With what answers the cause first, and the keys of one remedy together."""
    names = list(dict.fromkeys(change.remedy for change in plan.changes))
    answers = ANSWERS.get(cause, ())
    effective = (_effect(change, ineffective) for change in plan.changes)
    ordered = sorted(effective, key=lambda c: (c.instruction is None, _rank(c.remedy, answers), names.index(c.remedy)))
    return replace(plan, changes=tuple(ordered))


def _rank(remedy: str, answers: Collection[str]) -> int:
    """What takes the cause away, what answers it, the rest."""
    return 0 if remedy in _OF_THE_CAUSE else 1 if remedy in answers else 2


def _said(before: Plan, evidence: Evidence, job: Job, written: Written) -> Plan:
    """The plan as a patch, in words what no key says; a key that was found in the person's text or file stays."""
    plan, own = patched(before, evidence, written), {change.key for change in before.changes}
    changes: list[Change] = []
    for change in plan.changes:
        titled = all(other.remedy != change.remedy for other in changes)
        typed = change.key not in own or change.file is not None
        unstated = (
            not typed and change.old is not None and bool(change.fields) and set(change.fields) <= set(job.assumed)
        )
        shown = replace(change, old=None) if unstated else change  # a default that nobody wrote is nobody's value
        changes.append(in_words(shown, job, typed=typed, titled=titled))
    return replace(plan, changes=tuple(changes))


_SURE: Final = 0.8
"""Probability of a cause from which what answers it comes before what makes room elsewhere."""


def _is_apart(job: Job, context: Context) -> bool:
    """Whether no setting of a training run is an answer: the cards are used wrongly, or no run of that kind failed."""
    runs = context.serving or context.script or job.objective in (None, "inference")
    makes_pictures = context.facts["pipeline"] is not None and runs
    return bool(context.facts["ranks_on_one_gpu"] or context.facts["calibrates"] or makes_pictures)


def _cause_first(
    causes: Sequence[CauseFinding], context: Context, search: Callable[..., Planning], wanted: float
) -> Planning:
    """The plans, before them one of the remedies of a sure cause alone, where that fits and is as mild.

    A server's settings move room between its parts: there the mildest plan stands.
    """
    found, sure = search(context), next((c.cause for c in causes[:1] if c.probability >= _SURE), "")
    answers = frozenset(ANSWERS.get(sure, ()))
    if (
        context.serving
        or not answers
        or not found.plans
        or any(change.remedy in answers for change in found.plans[0].changes)
    ):
        return found
    others = frozenset(remedy.name for remedy in REMEDIES) - answers
    own = search(replace(context, without=context.without | others), plans_only=True).plans
    mildest = found.plans[0]
    plan = next((p for p in own if p.fits_probability >= wanted and is_as_mild(p, mildest)), None)
    return found if plan is None else replace(found, plans=(replace(plan, name="cause"), *found.plans))


def _with_hints(
    plan: Plan,
    advice: Sequence[tuple[str, Variant]],
    prices: Prices,
    context: Context,
    weigh: Callable[[str, Variant], Quantity],
) -> Plan:
    """A plan with two instructions against the cause: one that answers it is a step, others are notes."""
    done = {"capture-sizes" for change in plan.changes if change.remedy == "serving-graphs"}  # says the same
    hints = [(n, v) for n, v in advice if v.instruction is not None and n not in done][:2]
    ahead = [(n, v) for n, v in hints if v.instruction is not None and v.instruction.key in _STEPS]
    steps = tuple(Change(remedy=n, key=n, instruction=v.instruction) for n, v in ahead)
    notes = (*plan.notes, *_hinted([h for h in hints if h not in ahead], weigh), *lowest_share(prices, context))
    return replace(plan, changes=(*steps, *plan.changes), notes=notes)


_STEPS: Final = frozenset(
    f"fixes.{name}"
    for name in (
        "entropy-chunks.how",
        "wrap-layers.how",
        "wrap-layers.by-setting",
        "fewer-prompts.how",
        "fewer-prompts.history",
        "fewer-at-warm-up.how",
        "mps-limit.how",
        "compile-off.untuned",
    )
)


def _effect(change: Change, ineffective: Collection[str]) -> Change:
    """What is set already is not set again: the step is to make it take effect."""
    if not change.fields or not set(change.fields) <= set(ineffective):
        return change
    return replace(change, instruction=say("fixes.activate-setting.effect", setting=change.key))


_FIRST: Final = frozenset(["fixes.load-sharded.four-bit", "fixes.load-sharded.own-gpu", "fixes.cached-negatives.how"])


def _instead(variant: Variant) -> bool:
    """Whether a step takes the place of a setting that does not work here: smaller sizes are no answer before it."""
    return variant.instruction is not None and variant.instruction.key in _FIRST


def _hinted(hints: Sequence[tuple[str, Variant]], weigh: Weigh) -> Iterator[Message]:
    """Each hint, and its figures after it."""
    for name, variant in hints:
        found = weigh(name, variant)
        said = found.instruction or variant.instruction
        yield from (m for m in (said, found.note) if m is not None)


def _if_not_enough(plan: Plan, found: Planning, prices: Prices) -> Plan:
    """The steps against a cause, with a word where arithmetic can judge one of them and it does not make room."""
    steps = {repr(change.instruction) for change in plan.changes}
    judged = [s for s in found.singles if s.change.instruction is not None and repr(s.change.instruction) in steps]
    if not judged or any(s.fits for s in judged) or prices.capacity_bytes is None:
        return plan
    least = min(s.peak_bytes for s in judged)
    note = say("fixes.note.not-alone", peak_bytes=least, capacity_bytes=prices.capacity_bytes)
    return replace(plan, notes=(*plan.notes, note))


def _arithmetic(
    fitted: Prices, context: Context, wanted: float, calibration: Calibration, *, failed: bool, plans_only: bool = False
) -> Planning:
    relief = calibration.relief
    if calibration.beside is not None:
        relief = ("serving", fitted.base.estimate.phases["serving"].total_bytes - calibration.beside)
    elif relief is not None:
        fitted = fitted.failing_in(relief[0])
    found = plan_with(fitted, context, wanted=wanted, force=failed, relief=relief, plans_only=plans_only)
    if not found.plans:
        return replace(found, notes=calibration.notes)
    first = found.plans[0]
    return replace(found, plans=(replace(first, notes=(*calibration.notes, *first.notes)), *found.plans[1:]))
