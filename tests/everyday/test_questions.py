"""Plain questions: yes or no, a figure that arithmetic on paper bears out, and a first screen that can be read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import oomdoc
from oomdoc.report.report import Report

QUESTIONS: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "inputs/questions.yaml").read_text())
_PYTHON = re.compile(r"(?:→|:|=) (?:None|True|False)\b|\['|mappingproxy|\{'|\{setting\}")


@pytest.mark.parametrize("case", QUESTIONS, ids=[str(i) for i in range(len(QUESTIONS))])
def test_question(case: dict[str, Any]) -> None:
    report = oomdoc.diagnose(case["q"])
    document = report.document()
    assert document["verdict"] == "no-failure", case["why"]
    assert document["causes"] == []
    assert document["outlook"]["answer"] in case["outlook"], (document["summary"], case["why"])
    estimate = document["estimate"]
    if "need" in case:
        low, high = case["need"]
        need = estimate["needed_gib"] or estimate["peak_gib"]["process"]
        assert low <= need <= high, (need, case["why"])
    if case.get("serves"):
        assert estimate["peak_phase"] == "serving", case["why"]
    _readable(report)


def _readable(report: Report) -> None:
    text = report.text()
    lines = text.strip().splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100
    assert _PYTHON.search(text) is None


def test_yes_or_no_comes_first() -> None:
    assert oomdoc.diagnose("Will Qwen3-8B QLoRA fit on one RTX 4090?").text().startswith("Yes: QLoRA of Qwen3-8B")
    assert oomdoc.diagnose("Will LoRA of Llama-2-13b fit on a 24GB RTX 4090?").text().startswith("No: LoRA")
    assert oomdoc.diagnose("一张 4090 能用 bf16 部署 Qwen2.5-14B 吗？").text().startswith("不行：")


def test_the_assumptions_are_marked() -> None:
    found = oomdoc.diagnose("Will Qwen3-8B QLoRA fit on one RTX 4090?").document()
    assumed = found["estimate"]["assumed"]
    assert assumed["micro_batch"]["value"] == 1
    assert assumed["grad_ckpt"]["value"] is True
    assert assumed["seq_len"]["value"] == 2048
    assert assumed["optimizer_impl"]["value"] == "fused"


@pytest.mark.parametrize(
    "text",
    [
        "Llama-3.1-70B in bf16 with vLLM on 4x A100 40GB does not start at 128k. We need 128k context. What can I change?",
        "vLLM 在 4 张 A100 40G 上部署 Llama-3.1-70B bf16，业务要 128k 上下文，放不下，怎么改？",
    ],
)
def test_a_length_that_is_needed_is_kept(text: str) -> None:
    found = oomdoc.diagnose(text).document()
    fields = {name for plan in found["plans"] for change in plan["changes"] for name in change.get("fields", {})}
    assert fields
    assert fields.isdisjoint({"seq_len", "serving.max_model_len"})


def test_thousands_are_no_batch() -> None:
    report = oomdoc.diagnose("Will Qwen3-8B QLoRA fit on one RTX 4090? and what batch at 4k?")
    assert report.diagnosis.job.micro_batch in (None, 1)
    assert report.diagnosis.outlook is not None
    assert report.diagnosis.outlook.answer == "fits"
