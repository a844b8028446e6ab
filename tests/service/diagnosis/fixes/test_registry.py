"""The remedies have names of their own, in order, and words; the table of the declared ones is checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oomdoc.diagnosis.fixes import REMEDIES, _declared
from oomdoc.report.words import catalogue
from oomkb.errors import CatalogError
from oomkb.records.taxonomy import CAUSES

NAMES = [r.name for r in REMEDIES]


def test_each_has_a_name_of_its_own() -> None:
    assert sorted(set(NAMES)) == NAMES


def test_every_function_of_the_folder_that_is_a_remedy_is_listed(root: Path) -> None:
    texts = (p.read_text("utf-8") for p in (root / "service/oomdoc/diagnosis/fixes").glob("[!_]*.py"))
    marked = [found for text in texts for found in re.findall(r"^@remedy\(.+\)\ndef (\w+)", text, re.MULTILINE)]
    assert len(marked) > 40
    assert {name.replace("_", "-") for name in marked} <= set(NAMES)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("cause = ['leak']\noffers = []", "cause"),
        ("offers = [{ set = { tp = 2 } }]", "effort"),
        ("where = { fused = [true] }\noffers = []", "fused"),
        ("unless = { 'context.card' = ['x'] }\noffers = []", "context.card"),
    ],
)
def test_a_row_that_is_wrong_is_refused(wrong: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings.toml").write_text(f"[a-remedy]\nsafety = 'same-numbers'\nkinds = ['any']\n{wrong}\n", "utf-8")
    monkeypatch.setattr(_declared, "_FILE", tmp_path / "settings.toml")
    with pytest.raises(CatalogError, match=said):
        list(_declared.declared())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_has_a_title(language: str) -> None:
    words = catalogue(language)
    missing = [n for n in NAMES if not words.get(f"fixes.{n}.title")]
    assert not missing


def test_instructions_answer_causes_of_the_taxonomy() -> None:
    for remedy in REMEDIES:
        assert remedy.causes <= set(CAUSES), remedy.name
