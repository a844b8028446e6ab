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
