"""The files that CONTRIBUTING names for each task are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    line.rsplit("|", 2)[-2]
    for line in (ROOT / "docs/CONTRIBUTING.md")
    .read_text("utf-8")
    .split("## Where to look")[1]
    .split("##")[0]
    .split("\n")
    if line.startswith("| ") and "`" in line
]
FILES = [path for row in ROWS for path in re.findall(r"`((?:kb|service|bench|docs)/[^`]+)`", row)]


def test_there_are_tasks() -> None:
    assert len(ROWS) >= 10
    assert len(FILES) >= len(ROWS)


@pytest.mark.parametrize("path", FILES)
def test_the_file_is_there(path: str) -> None:
    assert list(ROOT.glob(re.sub(r"<\w+>", "*", path).rstrip("/")))
