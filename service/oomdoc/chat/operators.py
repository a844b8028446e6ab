"""Changes relative to the present value: half, double, 50 % more, 1024 fewer, one more."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from oomdoc.intake.numbers import NUMBER, read_number

__all__ = ["Operator", "find_operators"]


@dataclass(frozen=True, slots=True)
class Operator:
    """What to do with a present value."""

    start: int
    end: int
    apply: Callable[[float], float]


_LESS: Final = r"(?:reduc\w{1,3}|decreas\w{1,3}|lower(?:ed|ing)?|cut(?:ting)?|shrink|drop(?:ped)?|less|fewer|shorter|smaller|minus|down|减少?|降低?|缩短?|少|砍掉?|下调)"
_MORE: Final = r"(?:increas\w{1,3}|rais\w{1,3}|bump|grow|add(?:ing)?|more|longer|larger|bigger|plus|another|extra|up|增加?|提高?|升高?|加长?|多|涨|上调)"
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
_TIMES: Final = re.compile(
    r"(?i)(?:翻|乘以?|变成?|提到|加到|扩大)\s?(?P<a>[一二两三四五六七八九十]|\d{1,3})\s?倍|\b(?P<b>\d{1,3})\s?(?:times|x)\b(?=\s?(?:\Z|[,.;!?]|the\b|as\b|more|long|larg|big|seq|len|batch|context))"
    rf"|(?:\s|^)[x×*]\s?(?P<c>\d{{1,3}})(?=\s|$)|\btimes\s(?P<d>{NUMBER})|(?<=[A-Za-z\s])[/÷]\s?(?P<by>\d{{1,2}})(?=\s*(?:\Z|[,.!?，。？]))"
)
_REDUCED: Final = re.compile(r"(?i)(?:reduce|cut|shrink|减|缩|降)\s?\Z")
_PERCENT: Final = re.compile(
    rf"(?i)(?P<verb>{_LESS}|{_MORE})[^%\d]{{0,40}}?(?P<n>\d{{1,3}}(?:\.\d)?)\s?(?:%|percent\b|个百分点)"
    r"|(?P<sign>[-+−])\s?(?P<m>\d{1,3})\s?%|(?P<k>\d{1,3})\s?%\s?(?P<after>more|less|longer|shorter|smaller|larger|bigger|fewer)"
)
_DIFFERENCE: Final = re.compile(
    rf"(?i)\b(?P<verb>{_LESS}|{_MORE})\b[^\d,.;]{{0,30}}?\bby\s(?P<n>{NUMBER})"
    rf"|(?<![最更差])(?P<zverb>减少?|降低?|缩短?|少|加|增加|多|提高)(?:了|上(?!\s?\d{{1,4}}\s?卡)|个)?\s?(?P<z>{NUMBER})(?!\s?(?:节点|node))"
    rf"|\b(?P<sum>plus|minus)\s(?P<t>{NUMBER})"
    rf"|\b(?P<p>{NUMBER})\s?(?:\w{{3,8}}\s)?(?P<what>more|extra|additional|fewer|less)\b|\badd\s(?P<add>{NUMBER})|\b(?P<another>another|one\smore|an?\sextra|an?\sadditional)\s(?P<q>{NUMBER})?"
    r"|(?P<plus>(?<=[\s\w])[+](?=\d))(?P<s>\d{1,7})(?![\d.%])"
)
_DOWN: Final = re.compile(rf"(?i)\A(?:{_LESS}|[-−])")


def find_operators(turn: str) -> list[Operator]:
    """All in a turn, in order of reading; of overlapping ones the first kind found."""
    found: list[Operator] = []
    for operator in (*_factors(turn), *_percents(turn), *_differences(turn)):
        if not any(o.start < operator.end and operator.start < o.end for o in found):
            found.append(operator)
    return sorted(found, key=lambda o: o.start)


def _scaled(factor: float) -> Callable[[float], float]:
    return lambda value: value * factor


def _moved(by: float) -> Callable[[float], float]:
    return lambda value: value + by


def _factors(turn: str) -> list[Operator]:
    found = []
    for m in _TIMES.finditer(turn):
        times = read_number(m["a"] or m["b"] or m["c"] or m["d"] or m["by"])
        if times > 0:
            down = m["by"] or _REDUCED.search(turn[max(0, m.start() - 12) : m.start()])
            found.append(Operator(m.start(), m.end(), _scaled(1 / times if down else times)))
    for pattern, factor in _FACTOR_PATTERNS:
        found += [Operator(m.start(), m.end(), _scaled(factor)) for m in pattern.finditer(turn)]
    return found


def _percents(turn: str) -> list[Operator]:
    found = []
    for m in _PERCENT.finditer(turn):
        share = float(m["n"] or m["m"] or m["k"]) / 100
        # "cut to 80 %" is a value, not a difference.
        if m["n"] and re.search(r"(?i)\bto\s?\Z|[到成为]\s?\Z", turn[m.start() : m.start("n")]):
            continue
        down = bool(_DOWN.match(m["verb"] or m["sign"] or m["after"]))
        found.append(Operator(m.start(), m.end(), _scaled(1 - min(share, 0.95) if down else 1 + share)))
    return found


def _differences(turn: str) -> list[Operator]:
    found = []
    for m in _DIFFERENCE.finditer(turn):
        try:
            number = read_number(m["n"] or m["z"] or m["t"] or m["p"] or m["add"] or m["q"] or m["s"] or "1")
        except ValueError:
            continue
        down = bool(_DOWN.match(m["verb"] or m["zverb"] or m["sum"] or m["what"] or "+"))
        found.append(Operator(m.start(), m.end(), _moved(-number if down else number)))
    return found
