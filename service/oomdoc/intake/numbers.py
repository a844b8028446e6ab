"""Numbers as people write and say them (``8k``, ``16,384``, ``two``, ``十六``), and those of one setting in a list.

In a list (``8, 16 or 32 cards``, ``bs 1/2/4``, ``2048 和 4096``, ``2x or 4x A100``): one run has one value of each
setting, so that a list of them is a list of runs. What a number counts is said once, by the words before the first or
the unit behind any of them; the rows are those of ``asked.tsv``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from oomdoc.intake.patterns import Patterns
from oomkb.dataclass import dataclass
from oomkb.kept import lazy

_WORDS: Final = {
    **{"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10},
    **{"a": 1, "an": 1, "single": 1, "both": 2, "dual": 2, "pair of": 2, "couple of": 2},
    **{"twelve": 12, "sixteen": 16, "twenty": 20, "thirty-two": 32, "sixty-four": 64},
}
_DIGITS: Final = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"两": 2, "俩": 2, "双": 2, "单": 1}
_ENGLISH: Final = "two|three|four|five|six|seven|eight|nine|ten|twelve|sixteen|thirty-two|sixty-four"
NUMBER: Final = (
    r"(?:\d{1,3}(?:,\d{3}){1,3}|\d{1,9}(?:\.\d{1,3})?\s?[kK万]?(?![A-Za-z0-9])"
    r"|(?<!第)(?!一\s?[半点下些样起步直次定般会共切遍旦边])[零一二两三四五六七八九十百]{1,5}(?!\s?(?:分之|倍))"
    r"|[单双](?=\s?(?:张|块|卡|机|台|个?节点|gpu|GPU))"
    rf"|(?:one|single|twenty|{_ENGLISH})\b(?:\sk\b)?)"
)
"""A pattern of what :func:`read_number` understands; bounded, without groups."""
COUNT: Final = (
    rf"(?:\d{{1,4}}(?![\d.])|one|single|pair of|couple of|an?|dual|{_ENGLISH}"
    r"|[一二三四五六七八九]?十[一二三四五六七八九]?|[单一两俩双二三四五六七八九])"
)
"""One count, case-insensitively."""
DIGITS: Final = frozenset("0123456789")
_SHORT: Final = lazy(r"(\d{1,9}(?:\.\d{1,6})?|\.\d{1,6}) ?([km万]?)")


def read_number(text: str) -> float:
    """The number; ``8k``, ``32k`` and ``131k`` are the powers of two that models are built for, ``10k`` is round.

    :raises ValueError: where it is none.
    """
    text = text.strip().lower().replace(",", "").replace("_", "")
    if text in _WORDS:
        return float(_WORDS[text])
    if text.endswith(" k") and text[:-2] in _WORDS:
        text = f"{_WORDS[text[:-2]]}k"
    if (match := _SHORT.fullmatch(text)) is None:
        return float(_chinese(text))
    value = float(match[1])
    if match[2] == "k":
        return _thousands(value)
    return value * {"": 1, "m": 1024**2, "万": 10_000}[match[2]]


def _thousands(count: float) -> float:
    """``131k`` and ``262k`` are 131,072 and 262,144 in decimal thousands, ``16k`` is sixteen times 1,024."""
    power = 1 << max(0, int(1000 * count) - 1).bit_length()
    if count and power // 1000 == count:
        return float(power)
    is_round = (count % 10 == 0 or count % 25 == 0) and count != 40
    return count * (1000 if is_round else 1024)


def to_count(word: str) -> int:
    """The number that :data:`COUNT` matched."""
    return int(read_number(word))


def to_tokens(text: str) -> int | None:
    """Tokens of ``2048``, ``8k``, ``1,024``, ``0.5M``, ``65_536``; ``None`` where it is none of them."""
    try:
        return round(read_number(text.replace(" ", "")))
    except ValueError:
        return None


def _chinese(text: str) -> int:
    total, digit = 0, 0
    for character in text:
        if character in _DIGITS:
            digit = _DIGITS[character]
        elif character in "十百":
            total, digit = total + (digit or 1) * (10 if character == "十" else 100), 0
        else:
            raise ValueError(f"{text!r} is not a number")
    if not text:
        raise ValueError("no number")
    return total + digit


def numbers_in(text: str) -> list[float]:
    """The numbers in a value's words; those of ``bf16`` and ``zero3`` are parts of names."""
    return [float(found) for found in _WRITTEN.findall(text[:400])]


_WRITTEN: Final = lazy(r"(?<![a-z])(?<![a-z]_)\d+(?:\.\d+)?|(?<=rtx)\d+", re.IGNORECASE)


def typed(text: str) -> Any:
    """A value as the tables write it: ``true``, ``3``, ``lora``; what is offloaded is a tuple, ``optimizer+param``."""
    if text in ("true", "false"):
        return text == "true"
    if text.isdigit():
        return int(text)
    return tuple(text.split("+")) if text.split("+", maxsplit=1)[0] in ("optimizer", "param") else text


SIZE: Final = r"([0-9]{1,20}(?:\.[0-9]{1,12})?) ?((?:[KMGTPE]i?B|[KMGT]i?b|[kKMGT](?![A-Za-z])|bytes?|B)(?![A-Za-z]))"
"""Two groups: number and unit, as in ``4.64 GiB``; bounded, for a line as it stands."""

SQUEEZED_SIZE: Final = r"([0-9]{1,20}(?:\.[0-9]{1,12})?)([KMGTPE]iB|[KMGTPE]B|bytes?|B)"
"""The same in a text without any blanks, where the next word follows at once."""

_POWER: Final = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}


def to_bytes(number: str, unit: str = "") -> int:
    """Bytes of a logged size; every prefix is read as binary, which is what allocators and engines print.

    >>> to_bytes("1.50", "GiB")
    1610612736
    """
    prefix = unit[:1].lower()
    return round(float(number) * (1 << 10 * _POWER.get(prefix, 0)))


_MAX_RATIO: Final = 32
"""Between two values of one setting that stand side by side in a list."""
_LONGEST: Final = 12
"""Values of a list."""
_WINDOW: Final = 48
"""Characters from one value of a list to the next."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One value where it stands."""

    field: str
    value: int | float
    start: int
    end: int


def number_of(written: str) -> int | float:
    """``16k``, ``4,096``, ``1m``, ``0.9``, ``two``, ``双``."""
    if "." in written and written[-1:].isdigit():
        return float(written)
    if written[0].isdigit():
        return to_tokens(written) or 0
    return to_count(written.lower())


def lists_in(
    text: str,
    rows: Patterns,
    names: Sequence[tuple[int, int]] = (),
    *,
    sized: Sequence[Listed] = (),
    refuted: Callable[[str, int, int], bool] = lambda field, start, end: False,
    turn: bool = False,
) -> list[tuple[Listed, ...]]:
    """Every value of a setting, those of one list together; lists in the order of the text, each in its own order.

    :param names: places of names, whose numbers are none of a setting.
    :param sized: values that are known otherwise.
    :param refuted: whether a number (field, start, end) is known to be of something else.
    :param turn: whether it goes on about a run: a rank is one of adapters, and what no run can have is read too.
    """
    named = [one for one in _anchors(text, rows, turn=turn) if not refuted(one.field, one.start, one.end)]
    named += [one for one in sized if not any(one.start < n.end and n.start < one.end for n in named)]
    anchors = sorted(named, key=lambda one: (one.start, one.end))
    anchors = [a for a in anchors if not any(start <= a.start < end for start, end in names)]
    reader = _Reader(text, rows, {(one.start, one.end): one.field for one in anchors}, names)
    found = [[anchor] for anchor in anchors]
    for close in (True, False):  # what "or" and "/" join is one list before a comma can join it to another
        for chain in found:
            chain[:0] = reader.further(chain[0], back=True, close=close)[::-1]
            chain.extend(reader.further(chain[-1], back=False, close=close))
    out: list[tuple[Listed, ...]] = []
    for chain in found:
        if not any(chain[0] in other and chain[0].field == other[0].field for other in out):
            out.append(tuple(chain))
    return out


def _anchors(text: str, rows: Patterns, *, turn: bool) -> Iterator[Listed]:
    """Values beside which it stands what they are of."""
    low, taken = text.lower(), set[tuple[int, int]]()
    for field, pattern in rows.group("number").items():
        if not pattern.may_match(low) or (field == "lora.r" and "lora" not in low and not turn):
            continue  # a rank without adapters is that of a process
        for match in pattern.finditer(text):
            place = next(n for n in range(1, len(match.groups()) + 1) if match[n])
            if match.span(place) in taken:
                continue  # an earlier row names it more closely
            taken.add(match.span(place))
            value = number_of(match[place].rstrip("% "))
            share = field.endswith("utilization")
            value = as_share(value) if share else value
            if turn or share or value == int(value):
                yield Listed(field, value, *match.span(place))


def as_share(number: float) -> float:
    """A share as it is meant: from five on it is in percent."""
    return number / 100 if number >= 5 else number


def is_near(one: float, other: float) -> bool:
    """Whether two numbers may be values of one setting, by their ratio and their kind: whole or a share."""
    if isinstance(one, int) is not isinstance(other, int):
        return False
    low, high = sorted((one, other))
    return 0 < low <= high <= _MAX_RATIO * low


@dataclass(frozen=True, slots=True)
class _Reader:
    """A text, and what its numbers are already known to be."""

    text: str
    rows: Patterns
    taken: dict[tuple[int, int], str]
    """The setting of each number that has its own words or unit."""
    apart: Sequence[tuple[int, int]]
    """Places whose numbers are none of a setting."""

    def further(self, last: Listed, *, back: bool, close: bool) -> list[Listed]:
        """Further values on one side of a value, the nearest first.

        :param close: whether only those that more than a comma joins.
        """
        found: list[Listed] = []
        while len(found) < _LONGEST:
            if back:
                match = self.rows["listed_before"].search(self.text, max(0, last.start - _WINDOW), last.start)
            else:
                match = self.rows["listed_behind"].match(self.text, last.end, last.end + _WINDOW)
            if match is None or (close and match["loose"]) or not self._continues(match, last, back=back):
                break
            last = Listed(last.field, number_of(match["n"]), *match.span("n"))
            self.taken[last.start, last.end] = last.field
            found.append(last)
        return found

    def _continues(self, match: re.Match[str], last: Listed, *, back: bool) -> bool:
        """Whether the next number is a value of the same setting: not of another, and counting nothing else."""
        start, end = match.span("n")
        if self.taken.get((start, end), last.field) != last.field or not is_near(number_of(match["n"]), last.value):
            return False
        if any(first <= start < stop for first, stop in self.apart):
            return False
        units = self.rows.group("unit")
        if last.field in units and units[last.field].match(self.text, end):
            return True
        if any(unit.match(self.text, end) for unit in units.values()):
            return False
        ends = self.rows["list_ends"].match(self.text, end) is not None
        return back or ends or not match["loose"]
