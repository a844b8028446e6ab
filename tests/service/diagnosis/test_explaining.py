"""Which questions a topic answers, which the memory model, and that no failure is asserted of a question."""

from __future__ import annotations

import pytest

import oomdoc


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("does gradient accumulation reduce memory?", "gradient-accumulation"),
        ("why does my memory usage double when I enable EMA?", "ema"),
        ("梯度累积能省显存吗", "gradient-accumulation"),
        ("torch.cuda.empty_cache() 能解决显存不足吗？", "empty-cache"),
    ],
)
def test_a_concept_is_answered_by_its_topic(text: str, topic: str) -> None:
    found = oomdoc.diagnose(text).document()
    assert (found["verdict"], found["causes"], found["explained"]) == ("no-failure", [], True)
    first = found["topics"][0]
    assert first["id"] == topic
    assert first["answer"] in found["summary"]
    assert first["sources"]
    assert len(found["topics"]) <= 2
    assert found["screen"]["headline"] == first["title"]


def test_figures_are_computed_for_the_model_that_is_named() -> None:
    own = oomdoc.diagnose("Does gradient checkpointing change the results for Qwen3-14B?").document()["topics"][0]
    other = oomdoc.diagnose("Does gradient checkpointing change the results?").document()["topics"][0]
    assert own["id"] == other["id"] == "gradient-checkpointing"
    assert "Qwen3-14B" in own["figure"]
    assert "Qwen3-14B" not in other["figure"]


def test_a_sizing_question_stays_one() -> None:
    found = oomdoc.diagnose("Will Qwen3-8B QLoRA fit on one RTX 4090?").document()
    assert found["outlook"]["answer"] == "fits"
    assert not found["explained"]


def test_a_failure_stays_one() -> None:
    text = "CUDA out of memory. Tried to allocate 2.00 GiB. Does gradient accumulation reduce memory?"
    found = oomdoc.diagnose(text)
    assert found.document()["verdict"] == "device-oom"
    topic = found.document()["topics"][0]
    assert topic["title"] not in found.text()
    assert topic["title"] in found.text(full=True)


def test_a_neighbour_is_named_where_none_is_sure() -> None:
    found = oomdoc.diagnose("what is the capital of France?").document()
    assert found["topics"] == []
    assert "oomdoc explain" not in found["summary"]


def test_an_explained_concept_brings_no_cases_and_asks_for_no_model() -> None:
    found = oomdoc.diagnose("why does EMA double my memory?").document()
    assert found["explained"]
    assert found["matches"] == []
    assert found["warnings"] == []
