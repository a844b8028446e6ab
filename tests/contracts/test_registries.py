"""Nothing is forgotten: every parser, reader, feature group and fix on disk is listed, documented and tested."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REGISTRIES = [
    ("service/oomdoc/diagnosis/features", "tests/service/diagnosis"),
    ("service/oomdoc/diagnosis/fixes", "tests/service/diagnosis"),
    ("service/oomdoc/intake/logs", "tests/service/intake"),
    ("service/oomdoc/intake/configs", "tests/service/intake"),
    ("kb/oomkb/frameworks", "tests/kb/frameworks"),
]


def modules(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.rglob("*.py")) if not p.name.startswith("_")]


@pytest.mark.parametrize(("folder", "tests"), REGISTRIES)
def test_every_module_says_what_it_is(root: Path, folder: str, tests: str) -> None:
    silent = [
        p.name for p in modules(root / folder) if len(ast.get_docstring(ast.parse(p.read_text("utf-8"))) or "") < 20
    ]
    assert not silent


@pytest.mark.parametrize(("folder", "tests"), REGISTRIES)
def test_every_module_is_reached_from_its_package(root: Path, folder: str, tests: str) -> None:
    text = "\n".join(p.read_text("utf-8") for p in (root / folder).rglob("*.py"))
    loose = [
        p.stem
        for p in modules(root / folder)
        if f".{p.stem}" not in text and re.search(rf"\bimport (?:\w+, )*{p.stem}\b| {p.stem},", text) is None
    ]
    assert not loose


def test_causes_pages_signs_and_cases_are_the_same_list(root: Path) -> None:
    from oomdoc.diagnosis.pages import page
    from oomkb.records.taxonomy import CAUSES

    for cause in CAUSES:
        for language in ("en", "zh"):
            assert len(page(cause, language)) > 200, (cause, language)
    folders = {p.name for p in (root / "cases").iterdir() if p.is_dir()}
    assert folders <= set(CAUSES)
    signs = {p.stem for p in (root / "service" / "oomdoc" / "intake" / "signs").glob("*.toml")}
    assert signs <= set(CAUSES)
