"""The list of remedies is the folder's, in order, and each has its words."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomdoc.diagnosis.fixes import REMEDIES
from oomdoc.report.words import catalogue
from oomkb.records.taxonomy import CAUSES

NAMES = [r.name for r in REMEDIES]


def test_listed_as_on_disk(root: Path) -> None:
    folder = root / "service/oomdoc/diagnosis/fixes"
    on_disk = sorted(p.stem for p in folder.glob("*.py") if not p.stem.startswith("_"))
    assert sorted(n.replace("-", "_") for n in NAMES) == on_disk
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_has_a_title_and_a_line_about_it(language: str) -> None:
    words = catalogue(language)
    missing = [n for n in NAMES if not words.get(f"fixes.{n}.title") or not words.get(f"fixes.{n}.about")]
    assert not missing


def test_instructions_answer_causes_of_the_taxonomy() -> None:
    for remedy in REMEDIES:
        assert remedy.causes <= set(CAUSES), remedy.name
        assert not remedy.advice or remedy.causes, remedy.name
