"""Taken apart, an expression finds what it finds whole."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoc.diagnosis.rules import RULES
from oomdoc.intake.sieve import alternatives
from oomdoc.intake.sieve.alternatives import split
from oomkb.records.loader import load_cases


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("abc", ("abc",)),
        ("a|b(c|d)|e", ("a", "b(c|d)", "e")),
        (r"a\|b|[|)]c|[]|]d|[^]|]e", (r"a\|b", "[|)]c", "[]|]d", "[^]|]e")),
        (r"(a)|\1", (r"(a)|\1",)),
        ("(?m)^a|b", ("(?m)^a|b",)),
        (r"(?<![a|b])x|y", ("(?<![a|b])x", "y")),
    ],
)
def test_split(pattern: str, parts: tuple[str, ...]) -> None:
    assert split(pattern) == parts


def patterns() -> list[str]:
    """Those of every rule's clues."""
    return sorted(
        {
            pattern
            for rule in RULES
            for clue in getattr(rule, "_CLUES", ())
            for pattern in (clue.says, clue.frames, clue.unless)
            if pattern
        }
    )


def test_rules_find_the_same_in_the_symptoms_of_the_cases() -> None:
    texts = ["\n".join(case.symptoms).lower() for case in load_cases()[::6]]
    tried = found = 0
    for pattern in patterns():
        whole, apart = re.compile(pattern), alternatives(pattern)
        for text in texts:
            a, b = whole.search(text), apart.search(text)
            tried += 1
            found += a is not None
            assert (a and a.span()) == (b and b.span()), pattern
    assert tried > 4000
    assert found > 200


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["a|ab|b", "(?:a|b)c|bc|c+", r"\bab|b\b", "[ab]{2}|c", "a(?=b)|b"]), st.text("abc ", max_size=12)
)
def test_any_text(pattern: str, text: str) -> None:
    a, b = re.search(pattern, text), alternatives(pattern).search(text)
    assert (a and a.span()) == (b and b.span())
    last = alternatives(pattern).last(text)
    whole = [found.start() for found in re.finditer(pattern, text)]
    assert (last is None) == (not whole)
    if last is not None:
        # Each alternative by itself: where their matches overlap, the last one may begin elsewhere than the whole's.
        own = [found.start() for part in split(pattern) for found in re.finditer(part, text)]
        assert last.start() == max(own)
