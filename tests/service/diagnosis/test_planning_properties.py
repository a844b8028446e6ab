"""What holds for every plan of every job: no framework, card or setting is special."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from oomdoc.diagnosis.fixes import REMEDIES
from oomdoc.diagnosis.fixes._remedy import global_batch
from oomdoc.diagnosis.planning.changes import plain
from oomdoc.diagnosis.planning.moves import settable
from oomdoc.diagnosis.planning.planner import plan
from oomdoc.diagnosis.planning.prices import Planning, Prices
from oomdoc.diagnosis.result import Plan
from oomkb.errors import OomdocError
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.pricing import price

_spec = importlib.util.spec_from_file_location("planning_jobs", Path(__file__).parent / "planning_jobs.py")
assert _spec is not None
assert _spec.loader is not None
kinds = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kinds)
jobs = st.one_of(kinds.trainings(), kinds.trainings(), kinds.trainings(), kinds.servings())
thorough = settings(
    max_examples=int(os.environ.get("OOMDOC_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def planned(document: dict[str, Any]) -> tuple[Job, Planning]:
    job = Job.from_document(document)
    try:
        return Prices(job).job, plan(job)
    except OomdocError:
        assume(False)
        raise AssertionError from None


@thorough
@given(jobs)
def test_every_plan_keeps_its_promises(document: dict[str, Any]) -> None:
    before, found = planned(document)
    assert len(found.plans) <= 3
    for one in found.plans:
        assert one.changes
        _fits_or_says_so(one)
        _changes_something_the_job_can_take(before, one)
        _suits_the_card(before, one)
        assert global_batch(one.job) == global_batch(before) or "fixes.note.global-batch" in _said(one)
        again = price(one.job).estimate
        assert again.process_bytes == pytest.approx(one.estimate.process_bytes, rel=1e-3)


def _fits_or_says_so(one: Plan) -> None:
    if one.name == "closest":
        assert "fixes.note.still-too-big" in _said(one)
    else:
        assert one.fits_probability >= 0.9


def _said(one: Plan) -> list[str]:
    return [m.key for m in one.notes]


def _changes_something_the_job_can_take(before: Job, one: Plan) -> None:
    for change in one.changes:
        assert change.fields
        for name, value in change.fields.items():
            assert plain(before.get(name)) != value, f"{name} is {value} already"
        assert settable(before.framework, change.fields, before.versions)


def _suits_the_card(before: Job, one: Plan) -> None:
    device = price(one.job).device
    assert device is not None
    assert kinds.impossible(before, one, device) == []


@settings(thorough, max_examples=8)
@given(jobs)
def test_the_same_job_gets_the_same_plans(document: dict[str, Any]) -> None:
    first, second = planned(document)[1], planned(document)[1]
    assert first.plans == second.plans
    assert first.singles == second.singles


@thorough
@given(jobs)
def test_no_remedy_raises_what_it_claims_to_lower(document: dict[str, Any]) -> None:
    before, found = planned(document)
    prices, remedies = Prices(Job.from_document(document)), {r.name: r for r in REMEDIES}
    for single in found.singles:
        if single.change.remedy not in remedies:
            continue  # advice that is shown because it does not help
        prefixes, after = remedies[single.change.remedy].reduces, prices.of(single.change.fields)
        if not prefixes or after is None:
            continue
        # Accumulation raised to keep the global batch keeps gradients alive: not the remedy's doing.
        accumulation = after.job.grad_accum
        same = prices.of({"grad_accum": accumulation}) if accumulation != before.grad_accum else prices.base
        assert same is not None
        claimed = [_claimed(p.estimate, prefixes) for p in (same, after)]
        assert claimed[1] <= claimed[0] * 1.001 + (1 << 20), (single.change.remedy, single.change.fields, claimed)


def _claimed(estimate: Estimate, prefixes: tuple[str, ...]) -> float:
    """The claimed terms at their fullest instant."""
    sums = [sum(v for t, v in p.terms_bytes.items() if t.startswith(prefixes)) for p in estimate.phases.values()]
    return max(sums, default=0.0)
