"""Plans as people see them: figures only where arithmetic judged, hardware as a sentence, no row twice."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoc.diagnosis.planning.for_diagnosis import planning_for
from oomdoc.diagnosis.planning.planner import plan
from oomdoc.diagnosis.planning.prices import Planning
from oomdoc.diagnosis.planning.table import fits_table
from oomdoc.diagnosis.result import CauseFinding, Diagnosis, Plan
from oomdoc.evidence import Evidence
from oomdoc.report.document import diagnosis_document, plan_document
from oomdoc.report.markdown import diagnosis_markdown
from oomdoc.report.plan import plan_text, table_document
from oomdoc.report.terminal import diagnosis_text
from oomkb.memory.job import Job

LORA: dict[str, Any] = {
    "framework": "llama-factory",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "objective": "sft",
    "method": "lora",
    "lora": {"r": 8, "targets": "all-linear"},
    "param_dtype": "bf16",
    "micro_batch": 4,
    "grad_accum": 4,
    "seq_len": 2048,
    "gpu": "RTX 4090",
    "gpus": 7,
    "world": 7,
}


def planned(**changes: Any) -> Planning:
    return plan(Job.from_document({**LORA, **changes}))


def advised(**changes: Any) -> Plan:
    job = Job.from_document({**LORA, **changes})
    return planning_for(Evidence(), job, (CauseFinding("leak", 0.9),)).plans[0]


@pytest.mark.parametrize("changes", [{"gpu": "H200"}, {"model": None}])
def test_instructions_have_no_figures(changes: dict[str, Any]) -> None:
    shown = plan_document(advised(**changes), "en")
    assert all(change["instruction"] for change in shown["changes"])
    for name in ("peak_gib", "allocated_gib", "fits_probability", "relative_speed"):
        assert shown[name] is None, name


@pytest.mark.parametrize("language", ["en", "zh"])
def test_texts_of_instructions_have_no_figures(language: str) -> None:
    one = advised(gpu="H200")
    found = Diagnosis(verdict="device-oom", summary=(), evidence=Evidence(), job=one.job, plans=(one,))
    document = diagnosis_document(found, language)
    for text in (diagnosis_text(document, language), diagnosis_markdown(document, language)):
        assert "GiB" not in text
        assert "%" not in text


def test_other_hardware_is_a_sentence() -> None:
    rows = {f.change.remedy: f.change for f in planned().singles}
    assert rows["other-gpu"].instruction is not None
    assert rows["other-gpu"].instruction.values["count"] == 7
    document = {"sentences": [], **table_document(fits_table(Job.from_document(LORA)), "en")}
    text = plan_text(document, "en", full=True)
    assert "Run on 7 × " in text
    assert "gpu →" not in text


def test_no_fix_is_shown_twice_and_ten_are_enough() -> None:
    for changes in ({}, {"sharding": "zero2"}, {"method": "full", "lora": None}, {"seq_len": 8192}):
        rows = planned(**changes).singles
        said = [repr(f.change.instruction or (f.change.key, f.change.new)) for f in rows]
        assert len(set(said)) == len(said)
        assert len(rows) <= 10


def test_a_smaller_batch_alone_is_a_plan_of_its_own() -> None:
    plans = planned(gpu="A100-40GB", micro_batch=8, grad_accum=2).plans
    one = next(p for p in plans if {c.remedy for c in p.changes} == {"micro-batch"})
    assert any("micro-batch" not in {c.remedy for c in p.changes} for p in plans)
    assert (one.job.micro_batch or 0) * (one.job.grad_accum or 0) == 16
    assert one.fits_probability >= 0.9
    assert one.safety == "same-numbers"


def test_one_change_that_fits_is_never_passed_over_for_several_dearer_ones() -> None:
    """8B, two cards with a copy each: ZeRO-3 alone fits, and costs less than ZeRO-2 with 8-bit states or offload."""
    first = planned(method="full", lora=None, gpu="A100-80GB", gpus=2, micro_batch=1, grad_accum=1).plans[0]
    assert first.safety == "same-numbers"
    assert {c.remedy for c in first.changes} <= {"zero", "fsdp"}
