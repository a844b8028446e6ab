"""Every row of the table: its lines match, its other lines do not, and the schema is checked."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from oomdoc.evidence import Source
from oomdoc.intake.lines import read_lines
from oomdoc.intake.outcomes import rows
from oomdoc.intake.outcomes.decide import _row_of
from oomdoc.intake.outcomes.rows import Kind, Memory, Order
from oomdoc.intake.scanning import failures_of, scan
from oomdoc.intake.sieve import Vocabulary

LINES = [(row, line) for row in rows() for line in row.lines]
NOT_LINES = [(row, line) for row in rows() for line in row.not_lines]


def shown(row, text):
    if row.patterns:
        return any(t in text.lower() for t in row.triggers) and any(row.matches(text))
    lines = list(read_lines(Source("x", text)))
    found = failures_of(list(scan(lines, Vocabulary(line.low for line in lines))))
    return any(_row_of(failure).id == row.id for _, failure in found)


@pytest.mark.parametrize(("row", "line"), LINES, ids=lambda v: getattr(v, "id", None))
def test_lines_that_match(row, line):
    assert shown(row, line)


@pytest.mark.parametrize(("row", "line"), NOT_LINES, ids=lambda v: getattr(v, "id", None))
def test_lines_that_do_not(row, line):
    assert not shown(row, line)


_ENDLESS = re.compile(r"(?<!\\)[*+](?!\?)|\{\d{0,4},\}")


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_a_row_is_written_as_the_schema_says(row):
    assert (Path(inspect.getfile(type(row))).parent / f"{row.id}.toml").is_file()
    assert row.kind in get_args(Kind)
    assert row.order in get_args(Order)
    assert row.memory is None or row.memory in get_args(Memory)
    assert (row.memory is not None) == (row.kind == "said")
    assert bool(row.patterns) == bool(row.triggers)
    assert row.lines
    assert row.not_lines
    assert all(trigger == trigger.lower() for trigger in row.triggers)
    assert not any(_ENDLESS.search(pattern) for pattern in (*row.patterns, *row.unless)), "a repetition without an end"
    assert any(not s.startswith("https://") for s in row.source) or len(row.source) >= 3, (
        "no program, nor three threads"
    )
