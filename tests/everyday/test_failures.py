"""Failures and look-alikes as people paste them: what is in the log is used, and nothing absurd is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import oomdoc
from oomdoc.report.estimates import change_sentence

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "inputs/failures.yaml").read_text())
_PYTHON = re.compile(r"(?:→|:|=) (?:None|True|False)\b|\['|mappingproxy|\{'|\{setting\}")


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_failure(case: dict[str, Any]) -> None:
    report = oomdoc.diagnose(case["text"])
    document, text = report.document(), report.text()
    assert document["verdict"] in case["verdict"], case["why"]
    if "cause" in case:
        assert {c["cause"] for c in document["causes"][:3]} & set(case["cause"]), case["why"]
    for name, value in case.get("facts", {}).items():
        assert document["facts"][name]["value"] == value, case["why"]
    for field, value in case.get("inferred", {}).items():
        assert document["inferred"][field]["value"] == value, case["why"]
    if "most" in case and document["estimate"]:
        assert document["estimate"]["needed_gib"] <= case["most"], case["why"]
    for word in case.get("says", ()):
        assert word in text, case["why"]
    changes = [change_sentence(c, "en") for plan in document["plans"] for c in plan["changes"]]
    for word in case.get("never", ()):
        assert word not in "\n".join([text, *changes]), case["why"]
    if "first_not" in case and document["plans"]:
        assert case["first_not"] not in document["plans"][0]["changes"][0]["key"], case["why"]
    lines = text.strip().splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100
    assert _PYTHON.search(text) is None


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_plans_print_what_the_process_needs(case: dict[str, Any]) -> None:
    for plan in oomdoc.diagnose(case["text"]).document()["plans"]:
        if plan["fits_probability"] is not None and plan["fits_probability"] >= 0.5:
            capacity = plan["job"].get("capacity_gib")
            assert capacity is None or plan["needed_gib"] <= capacity
            if {"optimizer", "param"} & set(plan["job"].get("offload") or ()):
                assert plan["host_gib"] > 0


def test_little_is_not_advised_on() -> None:
    shown = oomdoc.diagnose("RuntimeError: CUDA error: out of memory\nall I run is torch.ones(4).cuda()").text()
    assert "no cause is likely enough" in shown
    assert "low_cpu_mem_usage" not in shown


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "is that too little vram??\nllama_model_load: error loading model: error loading model architecture: "
            "unknown model architecture: 'glm4moe'\nmain: exiting due to model loading error",
            "unknown-architecture",
        ),
        (
            "pod killed, does it need more memory?\n\nReason:   Evicted\nMessage:  The node was low on resource: "
            "ephemeral-storage. Threshold quantity: 5368709120.\n      Exit Code:    137\n",
            "disk-full",
        ),
    ],
)
def test_what_is_printed_explains_more_than_a_guess_of_memory(text: str, kind: str) -> None:
    answer = oomdoc.diagnose(text).document()
    assert answer["verdict"] == "not-oom"
    assert answer["other_failure"]["kind"] == kind


def test_no_plan_is_priced_without_the_images_that_decide() -> None:
    """65 GiB were in use and 26 asked for, where the text alone explains about 22: what is left out decides."""
    text = (
        "LoRA on Qwen2.5-VL-7B-Instruct with ms-swift, one A100 80G, batch 1, photos straight from a phone\n"
        "    logits = logits.float()\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 26.19 GiB. GPU 0 has a total capacity of "
        "79.15 GiB of which 13.92 GiB is free."
    )
    found = oomdoc.diagnose(text)
    document = found.document()
    assert document["causes"][0]["cause"] in ("vision-tokens", "logits")
    assert document["conflicts"]
    assert "no plan is priced" in found.text()
    assert all(plan["fits_probability"] is None for plan in document["plans"])
