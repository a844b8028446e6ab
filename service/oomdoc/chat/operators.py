"""Changes relative to the present value: half, double, 50 % more, 1024 fewer, one more."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from oomdoc.chat.wording import patterns
from oomdoc.intake.numbers import read_number
from oomkb.catalog import gpus
from oomkb.dataclass import dataclass

_RE: Final = patterns("operators")
_ONE: Final = re.compile(r"(?i)\s?(?:one|card|gpu)\b")


@dataclass(frozen=True, slots=True)
class Operator:
    """What to do with a present value."""

    start: int
    end: int
    apply: Callable[[float], float]
    field: str | None = None
    """The field that it is about, where the words themselves say so: "a second 3090"."""


_FACTORS: Final[tuple[tuple[str, float], ...]] = (
    (r"\b(?:a\s)?quarter(?:ed|\sof|ing)?\b|四分之一", 0.25),
    (r"\b(?:a|one)\sthird(?:\sof)?\b|三分之一", 1 / 3),
    (r"\bhal(?:f|ve|ved|ving)\b(?!\s?-?precision)|减半|一半|砍半|对半|折半|腰斩|减一半", 0.5),
    (
        r"\bdoubl(?:e|ed|ing)\b|\btwice\b|(?<!不)(?<!几)翻倍|加倍|翻[一]?番|翻[一]倍|(?:(?<!\d)(?<!\d\s)[x×*]\s?2|2\s?[x×])(?![\d.]|\s?[A-Za-z])",
        2.0,
    ),
    (r"\btripl(?:e|ed|ing)\b", 3.0),
    (r"\bquadrupl(?:e|ed|ing)\b", 4.0),
)
_FACTOR_PATTERNS: Final = tuple((re.compile(rf"(?i){p}"), f) for p, f in _FACTORS)


def find_operators(turn: str) -> list[Operator]:
    """All in a turn, in order of reading; of overlapping ones the first kind found."""
    found: list[Operator] = []
    for one in (*_factors(turn), *_percents(turn), *_differences(turn)):
        dismissed = _RE["dismissed"].match(turn, one.end)
        if not dismissed and not any(o.start < one.end and one.start < o.end for o in found):
            found.append(one)
    return sorted(found, key=lambda o: o.start)


def _factors(turn: str) -> list[Operator]:
    found = []
    for m in _RE["times"].finditer(turn):
        times = read_number(m["a"] or m["b"] or m["c"] or m["d"] or m["by"])
        if times > 0:
            down = m["by"] or _RE["reduced"].search(turn[max(0, m.start() - 12) : m.start()])
            found.append(Operator(m.start(), m.end(), partial(operator.mul, 1 / times if down else times)))
    for pattern, factor in _FACTOR_PATTERNS:
        found += [Operator(m.start(), m.end(), partial(operator.mul, factor)) for m in pattern.finditer(turn)]
    return found


def _percents(turn: str) -> list[Operator]:
    found = []
    for m in _RE["percent"].finditer(turn):
        share = float(m["n"] or m["m"] or m["k"]) / 100
        # "cut to 80 %" is a value, not a difference.
        if m["n"] and re.search(r"(?i)\bto\s?\Z|[到成为]\s?\Z", turn[m.start() : m.start("n")]):
            continue
        down = bool(_RE["down"].match(m["verb"] or m["sign"] or m["after"]))
        found.append(Operator(m.start(), m.end(), partial(operator.mul, 1 - min(share, 0.95) if down else 1 + share)))
    return found


def _differences(turn: str) -> list[Operator]:
    found = []
    for m in _RE["difference"].finditer(turn):
        card = gpus.find_all(turn[m.end() : m.end() + 24]) if m["another"] else []
        if m["another"] and (
            (m["q"] and gpus.variants(m["q"])) or (card and card[0].start <= 1) or _ONE.match(turn, m.end())
        ):
            found.append(Operator(m.start(), m.end(), partial(operator.add, 1), "gpus"))
            continue
        if m["another"] and not m["q"] and not (card or _RE["counted"].match(turn, m.end())):
            continue  # "another tenant"
        try:
            number = read_number(m["n"] or m["z"] or m["t"] or m["p"] or m["add"] or m["q"] or m["s"] or "1")
        except ValueError:
            continue
        down = bool(_RE["down"].match(m["verb"] or m["zverb"] or m["sum"] or m["what"] or "+"))
        found.append(Operator(m.start(), m.end(), partial(operator.add, -number if down else number)))
    return found
