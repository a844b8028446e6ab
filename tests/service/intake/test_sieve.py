"""A sieve leaves out only searches that must fail."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoc.evidence import Source
from oomdoc.intake.lines import read_lines
from oomdoc.intake.sieve import Expression, Sieve, Vocabulary, candidates
from oomdoc.intake.sieve.__main__ import expressions
from oomdoc.intake.sieve.sieve import literals_of


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        (r"\bCUDA out of memory\b", ("cuda out of memory",)),
        (r"(?<![a-z\d])bf-?16(?![a-z\d])", ("bf-16", "bf16")),
        (r"grad(?:ient)?[- _]?accum(?:ulation)?", ("accum",)),
        (r"(?:fsdp|deepspeed) \d", ("deepspeed ", "fsdp ")),
        (r"\d+ (?:GiB)+", ("gib",)),
        (r"(?:GiB)*\d", ()),
        (r"爆|溢出", ("溢出", "爆")),
        (r"[A-Z]{3}", ()),
        (r"a|bc", ()),
        (r"x(?=yz)", ("yz",)),
        (r"(?:RTX|GTX) ?\d", ("gtx", "rtx")),
        (r"20[67]0", ("2060", "2070")),
        (r"abcd(?!efgh)", ("abcd",)),
        (r"(?P<a>abc)(?P=a)", ("abc",)),
    ],
)
def test_literals_of(pattern, literals):
    assert literals_of(pattern, re.IGNORECASE) == literals


def test_the_written_table_is_current():
    """Else: ``python -m oomdoc.intake.sieve``. In a process of its own, where only the package's expressions are."""
    assert subprocess.run([sys.executable, "-m", "oomdoc.intake.sieve", "--check"], check=False).returncode == 0


EXPRESSIONS = sorted({(e.pattern, e.flags) for e in expressions()})


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_every_match_holds_a_literal(data):
    """Texts made to match: whatever they are, a literal of the expression is in them, and the vocabulary knows it."""
    pattern, flags = data.draw(st.sampled_from(EXPRESSIONS))
    compiled = re.compile(pattern, flags | re.ASCII)
    text = data.draw(st.from_regex(compiled))
    if "\n" in text or compiled.search(text) is None:
        return
    expression = Expression(pattern, flags)
    line = next(read_lines(Source("x", text)), None)
    if line is None or expression.search(line.text) is None:
        return
    assert expression.may_match(line.low)
    words = Vocabulary([line.low])
    assert list(candidates(expression, [line], words)) == [line]
    assert list(Sieve([(expression.literals, "row")]).over([line], words)) == [(0, line, ["row"])]


def test_a_sieve_keeps_the_order_and_leaves_out_what_cannot_match():
    rows = [("b", Expression("banana")), ("always", Expression(r"\d")), ("a", Expression("apple|apricot"))]
    sieve = Sieve((expression.literals, name) for name, expression in rows)
    lines = list(read_lines(Source("x", "an Apple and a banana\nnothing\nAPRICOT")))
    words = Vocabulary(line.low for line in lines)
    assert [found for _, _, found in sieve.over(lines, words)] == [["b", "always", "a"], ["always"], ["always", "a"]]
    assert [len(literals) for literals, _ in sieve.alive(Vocabulary(["banana"]))] == [1, 0]


def test_an_expression_is_compiled_when_it_is_first_tried():
    expression = Expression("never[tried]")
    assert not expression.may_match("something else")
    assert expression._compiled is None
    assert expression.search("nevert") is not None
    assert expression._compiled is not None


def test_a_vocabulary_of_very_many_words_rules_nothing_out():
    words = Vocabulary(f"{chr(0x4E00 + n % 9000)}{'abcdefghij'[n % 10]}{chr(0x4E00 + n // 9)}x" for n in range(90_000))
    assert words.may_hold("not in it")
