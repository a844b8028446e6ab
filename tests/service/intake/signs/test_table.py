"""Every row of the sign tables holds what it says of itself."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.service.intake.signs.checks import problems

from oomdoc.intake.signs.schema import Row, RowError, _of_file, shipped
from oomdoc.report.words import LANGUAGES, has
from oomkb.records.taxonomy import CAUSES

ROWS = list(shipped())
MAX_BYTES = 20_000


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_row_keeps_the_schema_and_its_own_examples(row: Row) -> None:
    assert list(problems(row)) == []
    assert row.cause in CAUSES


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_row_has_words(row: Row) -> None:
    for language in LANGUAGES:
        assert has(f"sign.{row.cause}.{row.id}", language)


def test_names_are_given_once() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_a_line_that_matches_holds_a_literal() -> None:
    for row in ROWS:
        for expression in (row.traced, row.printed):
            for line in row.lines:
                if expression is not None and expression.search(line.lower()):
                    assert expression.may_match(line.lower())


def test_signals_are_those_of_a_parser(root: Path) -> None:
    intake = root / "service" / "oomdoc" / "intake"
    files = (*intake.rglob("*.py"), *(intake / "logs").glob("*.toml"))
    source = "".join(p.read_text("utf-8") for p in files if p.parent.name != "signs")
    unknown = {name for row in ROWS for name in row.signals if not any(f"{q}{name}{q}" in source for q in "'\"")}
    assert not unknown


def test_all_patterns_together_stay_small() -> None:
    assert sum(len(pattern.encode()) for row in ROWS for pattern in row.patterns) <= MAX_BYTES


GOOD = Row(
    "logits", "x", frames=("cross_entropy",), lines=("a.py f cross_entropy",), source="torch 2.13: cross_entropy"
)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (replace(GOOD, frames=(), lines=()), "matches nothing"),
        (replace(GOOD, lines=()), "no line shows"),
        (replace(GOOD, lines=("a.py f softmax",)), "does not match its line"),
        (replace(GOOD, not_lines=("cross_entropy",)), "which it must not"),
        (replace(GOOD, source=""), "fewer than 3 threads"),
        (replace(GOOD, source="", threads=("a/b#1", "a/b#1", "a/b#2")), "fewer than 3 threads"),
        (replace(GOOD, threads=("somewhere",)), "names no thread"),
        (replace(GOOD, frames=("cross_entropy", "a.*b")), "without a bound"),
        (replace(GOOD, frames=("cross_entropy", "ab{2,}")), "without a bound"),
        (replace(GOOD, frames=("cross_entropy", "ABC")), "lower case"),
        (replace(GOOD, frames=("cross_entropy", "(")), "is no expression"),
        (replace(GOOD, frames=(r"\d\d",)), "no literal"),
    ],
)
def test_a_broken_row_is_refused(row: Row, problem: str) -> None:
    assert list(problems(GOOD)) == []
    assert any(re.search(problem, said) for said in problems(row))


@pytest.mark.parametrize("table", [{"Id": {}}, {"x": {"frame": ["a"]}}, {"x": {"frames": "a"}}, {"x": "a"}])
def test_a_key_that_is_not_known_is_refused(table: dict[str, object]) -> None:
    with pytest.raises(RowError, match="logits/"):
        list(_of_file("logits", table))
