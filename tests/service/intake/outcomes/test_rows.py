"""Every row of the table: its lines match, its other lines do not, and the schema is checked."""

from __future__ import annotations

import pytest

from oomdoc.evidence import Source
from oomdoc.intake.lines import read_lines
from oomdoc.intake.outcomes import rows
from oomdoc.intake.outcomes.decide import _row_of
from oomdoc.intake.outcomes.rows import row_from
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


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": "y"}, "file's name"),
        ({"kind": "odd"}, "kind"),
        ({"colour": "red"}, "unknown keys"),
        ({"lines": []}, "lines"),
        ({"patterns": ["a.*b"]}, "without an end"),
        ({"source": ["https://example.org/1"]}, "three threads"),
        ({"triggers": ["Upper"]}, "lower case"),
        ({"triggers": []}, "go with triggers"),
    ],
)
def test_a_file_that_breaks_the_schema_is_refused(change, problem):
    table = {"id": "x", "kind": "other", "triggers": ["a"], "patterns": ["a"], "lines": ["a"], "not_lines": ["b"]}
    table["source"] = ["a.c, program 1"]
    assert row_from("x.toml", table).id == "x"
    with pytest.raises(ValueError, match=problem):
        row_from("x.toml", table | change)
