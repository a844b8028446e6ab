"""A score is a probability: it rises with each of its figures, and nothing is shown for a text about something else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from oomkb.retrieval.search import calibration, search


def test_the_curves_rise_in_every_figure() -> None:
    curves = calibration()
    base = curves.related(0.5, 2.5, 0.8)
    assert 0 < base < 1
    assert min(curves.related(0.6, 2.5, 0.8), curves.related(0.5, 3.0, 0.8), curves.related(0.5, 2.5, 0.9)) > base
    assert 0 < curves.same_cause(1.0) < curves.same_cause(6.0) < 1


def test_nothing_overflows() -> None:
    curves = dataclasses.replace(calibration(), cause_value=1e9)
    assert curves.same_cause(1e9) == pytest.approx(1.0)
    assert curves.same_cause(-1e9) == pytest.approx(0.0)


@pytest.mark.parametrize(
    "text",
    [
        "how do I install this tool?",
        "what is the weather like tomorrow in Berlin",
        "which licence does this project have",
        "怎么安装这个工具",
        "周末去哪里玩比较好",
        "good morning everyone",
    ],
)
def test_a_question_about_something_else_finds_nothing(text: str) -> None:
    assert search(text) == []


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("vLLM: No available memory for the cache blocks, Qwen2.5-7B on a 3090", "kv-cache"),
        ("CUDA out of memory in cross_entropy, Llama 3 with a vocabulary of 128k, seq len 8192", "logits"),
        ("保存 checkpoint 的时候爆显存，zero3", "checkpoint-save"),
    ],
)
def test_a_failure_finds_its_cause_with_falling_probabilities(text: str, cause: str) -> None:
    found = search(text)
    assert cause in [match.cause for match in found]
    scores = [match.score for match in found]
    assert scores == sorted(scores, reverse=True)
    assert all(calibration().least_probability <= score <= 1 for score in scores)


def test_questions_of_the_field_find_their_cause_and_those_about_something_else_find_nothing() -> None:
    text = (Path(__file__).parent / "questions.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    found = [(cause, [match.cause for match in search(question)]) for cause, question in rows]
    else_ = [causes for cause, causes in found if cause == "-"]
    memory = [(cause, causes) for cause, causes in found if cause != "-"]
    assert (len(else_), len(memory)) == (60, 60)
    assert sum(bool(causes) for causes in else_) <= 4
    assert sum(cause in causes for cause, causes in memory) >= 58
    assert sum(causes[:1] == [cause] for cause, causes in memory) >= 55
