"""Known memory regressions, as a scanner finds them."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.regressions import Advisory, applies, distinct, scan, suspects
from oomdoc.intake.requirements import installed_versions, parse_requirements
from oomkb.memory.job import Job


def test_deepspeed_range() -> None:
    inside = [a for a in scan({"deepspeed": "0.16.4"}) if a.fixed == "0.16.8"]
    assert inside
    assert inside[0].introduced == "0.16.0"
    assert not [a for a in scan({"deepspeed": "0.16.8"}) if a.fixed == "0.16.8"]
    assert not [a for a in scan({"deepspeed": "0.15.4"}) if a.fixed == "0.16.8"]


def test_nothing_installed_has_no_regression() -> None:
    assert scan({}) == []


@pytest.mark.parametrize(
    ("text", "pins"),
    [
        ("deepspeed==0.16.4", {"deepspeed": "0.16.4"}),
        ("Flash_Attn == 2.6.3 ; python_version > '3.8'", {"flash-attn": "2.6.3"}),
        ("transformers[torch]===4.38.1  # pinned", {"transformers": "4.38.1"}),
        ("torch    2.6.0+cu124", {"torch": "2.6.0+cu124"}),
        ("  - pytorch=2.1.0=py3.10", {"pytorch": "2.1.0"}),
        ("Package    Version\n---------- -------\nvllm       0.8.1", {"vllm": "0.8.1"}),
        ("transformers>=4.38\n-e .\nhttps://x/y.whl\n# deepspeed==0.16.4\nfoo @ file:///x", {}),
        ("", {}),
    ],
)
def test_parse_requirements(text: str, pins: dict[str, str]) -> None:
    assert parse_requirements(text) == pins


def test_installed_versions_are_normalised() -> None:
    found = installed_versions()
    assert "pytest" in found
    assert all(name == name.lower() and "_" not in name for name in found)


def test_needs_are_compared_with_the_job() -> None:
    job = Job(sharding="zero3", grad_ckpt=True)
    assert applies("zero3 with gradient checkpointing", job) is True
    assert applies("zero3", job.with_fields({"sharding": "zero2"})) is False
    assert applies("zero3", Job()) is None
    assert applies("something else", job) is None


def test_suspects_need_an_unstated_version() -> None:
    job = Job(sharding="zero3", grad_ckpt=True, objective="sft")
    found = [a for a in suspects(job, {}) if a.package == "deepspeed" and a.fixed == "0.16.8"]
    assert found
    assert "0.15.0" in {a.good for a in found}
    assert not [a for a in suspects(job, {"deepspeed": "0.18.0"}) if a.package == "deepspeed"]


def test_one_advisory_per_range() -> None:
    twice = [Advisory("a", "1", "x/1", {}, "0", "2"), Advisory("a", "1", "x/2", {}, "0", "2", good="0.9")]
    assert [a.good for a in distinct(twice)] == ["0.9"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_line_for_people_and_a_document(language: str) -> None:
    advisory = Advisory(
        "deepspeed", "0.16.4", "version-regression/x", {"en": "keeps too much", "zh": "占用过多"}, "0.16.0", "0.16.8"
    )
    assert "0.16.8" in advisory.text(language)
    assert advisory.document(language)["title"] == advisory.title[language]
