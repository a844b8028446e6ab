"""Affected ranges as PEP 440 orders versions."""

from __future__ import annotations

import pytest

from oomkb.records.case import Affected, Range
from oomkb.records.versions import affects, covers, package_name


@pytest.mark.parametrize(
    ("version", "inside"),
    [
        ("0.15.4", False),
        ("0.16.0", True),
        ("0.16.7", True),
        ("0.16.7+cu121", True),
        ("v0.16.4", True),
        ("0.16.8rc1", True),
        ("0.16.8", False),
        ("0.16.10", False),
        ("nightly", False),
    ],
)
def test_introduced_to_fixed(version: str, inside: bool) -> None:
    assert covers(Range("0.16.0", fixed="0.16.8"), version) is inside


def test_last_affected_is_inside_and_open_ranges_have_no_end() -> None:
    assert covers(Range("0", last_affected="1.2"), "1.2")
    assert not covers(Range("0", last_affected="1.2"), "1.2.1")
    assert covers(Range("2.0"), "99")
    assert not covers(Range("2.0"), "1.9")


def test_the_installed_package_is_found_under_any_spelling() -> None:
    affected = (
        Affected("vllm", (Range("0.8.0", fixed="0.8.5"),)),
        Affected("torch", (Range("2.9.1", last_affected="2.9.1"),)),
    )
    hit = affects(affected, {"PyTorch": "2.9.1+cu128", "vLLM": "0.9.0"})
    assert hit is not None
    assert (hit.package, hit.version, hit.fixed) == ("torch", "2.9.1+cu128", None)
    assert affects(affected, {"vllm": "0.8.3"}).fixed == "0.8.5"  # type: ignore[union-attr]
    assert affects(affected, {"transformers": "4.0"}) is None
    assert package_name("flash_attn") == package_name("Flash-Attn") == "flash-attn"


def test_the_deepspeed_regression_is_in_the_shipped_cases() -> None:
    from oomkb.records.loader import load_cases

    hits = {c.id for c in load_cases() if (h := affects(c.affected, {"deepspeed": "0.16.4"})) and h.fixed == "0.16.8"}
    assert "version-regression/deepspeed-016-zero3-gradient-checkpointing" in hits
    for good in ("0.15.4", "0.16.8"):
        assert not hits & {c.id for c in load_cases() if affects(c.affected, {"deepspeed": good})}
