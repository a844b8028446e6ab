"""House rules that a person would otherwise have to remember."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

LONGEST_MODULE = 400


def sources(root: Path) -> list[Path]:
    return sorted(p for base in ("kb", "service") for p in (root / base).rglob("*.py"))


def test_no_module_makes_you_scroll(root: Path) -> None:
    long = {
        str(p.relative_to(root)): n
        for p in sources(root)
        if (n := len(p.read_text("utf-8").splitlines())) > LONGEST_MODULE
    }
    assert not long


def test_every_module_has_a_docstring(root: Path) -> None:
    silent = [str(p.relative_to(root)) for p in sources(root) if not ast.get_docstring(ast.parse(p.read_text("utf-8")))]
    assert not silent


def test_nothing_is_left_to_do(root: Path) -> None:
    marks = re.compile(r"\b(TODO|FIXME|XXX)\b")
    left = [str(p.relative_to(root)) for p in sources(root) if marks.search(p.read_text("utf-8"))]
    assert not left


def test_the_top_level_is_short(root: Path) -> None:
    try:
        done = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    tops = {line.split("/")[0] for line in done.stdout.splitlines()}
    assert {"pyproject.toml", "kb", "service", "cases", "tests", "README.md"} <= tops
    assert len(tops) <= 20, sorted(tops)
