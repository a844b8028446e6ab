"""The tables of expressions beside the modules: each row is well formed and is an expression."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import oomdoc.intake
from oomdoc.intake.patterns import Patterns, patterns

VOUCHED = re.compile(r"(?:program|format): \S.{2,200}|\d{1,5} threads")
TABLES = sorted(Path(oomdoc.intake.__file__).parent.rglob("*.tsv"))


@pytest.mark.parametrize("path", TABLES, ids=lambda p: p.stem)
def test_every_row_compiles_and_ends(path: Path) -> None:
    table = Patterns(path, {"count": "x", "number": "x", "words": "x"})
    assert table.rows
    for row in table.rows.values():
        re.compile(row.pattern, row.flags)
        assert table[row.name].pattern == row.pattern
        if path.stem != "redact":  # there the column holds the words that a line must have
            assert VOUCHED.fullmatch(row.witness), row.name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name\ti\tpattern\n", "four columns"),
        ("name\ti\t-\t\n", "four columns"),
        ("Name\ti\t-\tx\n", "not a name"),
        ("name\tz\t-\tx\n", "not flags"),
        ("name\ti\t-\tx\nname\ti\t-\ty\n", "twice"),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "a.tsv").write_text(text, "utf-8")
    with pytest.raises(ValueError, match=problem):
        _ = patterns(str(tmp_path / "a.py"))["name"]


def test_rows_go_on_take_in_parts_and_form_groups(tmp_path: Path) -> None:
    rows = "# a comment\nunit\tpart\t-\tgi?b\nsize\tia\t-\t\\d{1,3} ?(?:<<unit>>|\n\t\t\t<<word>>)\na.x\t-\t-\tone\na.y\t-\t-\ttwo\n"
    (tmp_path / "a.tsv").write_text(rows, "utf-8")
    table = patterns(str(tmp_path / "a.py"), word="cards")
    assert table["size"].pattern == r"\d{1,3} ?(?:gi?b|cards)"
    assert list(table.group("a")) == ["x", "y"]
    with pytest.raises(KeyError):
        _ = table["unit"]
