"""Plans of instructions: what somebody has to do against a cause, where no setting of the job says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from oomdoc.diagnosis.fixes import REMEDIES, Context
from oomdoc.diagnosis.fixes._remedy import Variant
from oomdoc.diagnosis.planning.moves import strongest, variants_on
from oomdoc.diagnosis.planning.quantities import Quantity
from oomdoc.diagnosis.result import Change, Plan
from oomdoc.evidence import Message
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job

Weigh = Callable[[str, Variant], Quantity]
"""Figures for an instruction of a remedy, where the job can be priced."""


def advice_on(job: Job, context: Context) -> list[tuple[str, str, Variant]]:
    """Cause, remedy and variant of every instruction that answers one of the likely causes, in order."""
    out = []
    for cause in context.causes[:2]:
        for remedy in REMEDIES:
            if not remedy.advice or cause not in remedy.causes:
                continue
            out += [(cause, remedy.name, v) for v in variants_on(remedy, job, context) if v.instruction is not None]
    least: dict[tuple[str, str], float] = {}
    for cause, name, variant in out:
        least[cause, name] = min(variant.effort, least.get((cause, name), variant.effort))
    return sorted(out, key=lambda step: (context.causes.index(step[0]), least[step[0], step[1]]))


def plans_of(
    advice: Sequence[tuple[str, str, Variant]],
    job: Job,
    estimate: Estimate | None,
    notes: tuple[Message, ...],
    probability: float = 0.0,
    weigh: Weigh | None = None,
) -> tuple[Plan, ...]:
    """One plan of instructions, for the most probable cause that has any."""
    if not advice:
        return ()
    cause = advice[0][0]
    steps = [(remedy, variant) for other, remedy, variant in advice if other == cause][:5]
    weighed = [weigh(remedy, variant) if weigh is not None else Quantity() for remedy, variant in steps]
    changes = tuple(
        Change(
            remedy=remedy,
            key=remedy,
            instruction=found.instruction or variant.instruction,
            saves_bytes=found.saves_bytes,
        )
        for (remedy, variant), found in zip(steps, weighed, strict=True)
    )
    figures = {repr(found.note): found.note for found in weighed if found.note is not None}
    return (
        Plan(
            name="cause",
            changes=changes,
            job=job,
            estimate=estimate or _UNPRICED,
            fits_probability=probability,
            relative_speed=1.0,
            safety=strongest(_SAFETIES[remedy] for remedy, _ in steps),
            notes=(*notes, *figures.values()),
        ),
    )


_SAFETIES: Final = {remedy.name: remedy.safety for remedy in REMEDIES}
_NO_PHASES: Final[Mapping[str, Any]] = MappingProxyType({})
_UNPRICED: Final = Estimate(
    allocated_bytes=0.0,
    reserved_bytes=0.0,
    process_bytes=0.0,
    intervals=_NO_PHASES,
    phases=_NO_PHASES,
    peak_phase="unknown",
    params=0,
    trainable=0,
)
"""Stands where nothing could be computed: no phases."""
