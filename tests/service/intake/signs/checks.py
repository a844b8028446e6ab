"""What is checked of a row of the sign tables, beside its form."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oomdoc.intake.sieve import Expression
from oomdoc.intake.signs.schema import Row

WITNESSES = 3
"""Independent threads that must show a sign whose program is not named."""
THREAD = re.compile(r"[\w.-]{1,60}/[\w.-]{1,100}#\d{1,6}|https://\S{8,200}")
MAX_CHARS = 300
"""Characters of one alternative."""


def matches(row: Row, line: str) -> bool:
    """Whether any expression of the row matches a line of its examples."""
    return any(re.search(pattern, line.lower()) for pattern in row.patterns)


def problems(row: Row) -> Iterator[str]:
    """What is wrong with a row, one sentence each."""
    if not (row.patterns or row.signals):
        yield "it matches nothing"
    for pattern in row.patterns:
        yield from of_pattern(pattern)
    if row.patterns and not row.lines:
        yield "no line shows what it matches"
    for line in row.lines:
        if not matches(row, line):
            yield f"it does not match its line {line!r}"
    for line in row.not_lines:
        if matches(row, line):
            yield f"it matches {line!r}, which it must not"
    for thread in row.threads:
        if THREAD.fullmatch(thread) is None:
            yield f"{thread!r} names no thread"
    if len(set(row.threads)) < WITNESSES and not row.source:
        yield f"fewer than {WITNESSES} threads and no source"


def of_pattern(pattern: str) -> Iterator[str]:
    if len(pattern) > MAX_CHARS:
        yield f"{pattern[:40]!r}... is too long"
    if pattern != pattern.lower() and not re.search(r"\\[A-Z]", pattern):
        yield f"{pattern!r} is tried on text in lower case"
    if re.search(r"(?<!\\)[*+]", re.sub(r"\[[^\]]{1,80}\]", "", pattern)) or re.search(r"\{\d+,\}", pattern):
        yield f"{pattern!r} repeats without a bound"
    try:
        if not Expression(pattern).literals:
            yield f"{pattern!r} holds no literal that every match has"
    except re.error as error:
        yield f"{pattern!r} is no expression: {error}"
