"""Parsers made of rules: one expression, one signal, and what its groups mean.

Named groups end in what they hold: ``free__n`` with ``free__u`` is a size (number and unit; bytes without a unit
group) and becomes ``free_bytes``; ``peak__g`` is GiB without a unit; ``slots__i`` is a whole number, ``share__f`` a
fraction, any other a word.

A table (``<family>.toml``) holds ``triggers``, where it is not 50 ``priority``, where its lines repeat ``repeats``, and
``rules``: each the fields of :class:`Rule`, in whose ``pattern`` ``<<free>>`` stands for the size ``free``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from oomdoc.evidence import Fact, Failure, Signal
from oomdoc.intake.lines import Line
from oomdoc.intake.numbers import to_bytes
from oomdoc.intake.sieve import Expression
from oomkb.dataclass import dataclass
from oomkb.kept import lazy
from oomkb.tables import read_toml
from oomkb.units import GIB

_NO_DATA: Final[Mapping[str, Any]] = MappingProxyType({})
_MARK: Final = lazy(r"[\s|│╭╰─*`]{1,200}")


@dataclass(frozen=True, slots=True)
class Window:
    """A line that holds one of a parser's triggers, and the lines around it."""

    lines: Sequence[Line]
    index: int

    @property
    def line(self) -> Line:
        """The line with the trigger."""
        return self.lines[self.index]

    @property
    def text(self) -> str:
        """Its text without prefixes."""
        return self.line.text

    def following(self, count: int) -> list[Line]:
        """Up to ``count`` later lines of the same writer (rank or worker)."""
        tag, whole = self.line.tag, True
        out: list[Line] = []
        for line in self.lines[self.index + 1 : self.index + 1 + 8 * count]:
            # A wrapped message goes on in lines without a prefix, as long as nobody else's line comes between.
            if line.tag == tag or (not line.tag and not line.logged and whole):
                out.append(line)
                if len(out) == count:
                    break
            else:
                whole = False
        return out

    def preceding(self) -> str:
        """The text of the nearest earlier line of the same writer, among the last eight."""
        earlier = reversed(self.lines[max(0, self.index - 8) : self.index])
        return next((line.text for line in earlier if line.tag == self.line.tag), "")

    def squeezed(self, start: int, count: int) -> str:
        """The text from ``start`` with up to ``count`` lines after it, without blanks, boxes and marks of emphasis.

        A message that a terminal wrapped in the middle of a word reads as one piece again.
        """
        parts = [self.text[start:], *(line.text for line in self.following(count))]
        return _MARK.sub("", "".join(parts))[:2500]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one parser read at one place."""

    signals: tuple[Signal, ...] = ()
    failures: tuple[Failure, ...] = ()
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Parser:
    """One error family.

    ``triggers`` are literals in lower case; ``parse`` is called once for each line that holds one of them and may
    answer ``None``. ``priority`` orders families that match the same line: a lower one wins the failure.
    """

    name: str
    triggers: tuple[str, ...]
    parse: Callable[[Window], Reading | None]
    priority: int = 50
    repeats: bool = False
    """Whether its lines say the same of one moment after the other. Read are the first two of them, those that another
    family reads too, and the last before each failure and before the end."""


def signal(name: str, window: Window, /, **data: Any) -> Signal:
    """A signal at the window's line."""
    return Signal(name, window.line.span(), MappingProxyType(data) if data else _NO_DATA, window.line.rank)


def failure(
    kind: Literal["device", "host", "shared-memory", "other"], found: Signal, /, *, cascade: bool = False, **values: Any
) -> Reading:
    """A reading with one failure and its signal."""
    return Reading((found,), (Failure(kind=kind, signal=found, cascade=cascade, **values),))


_FIELDS: Final = frozenset(f.name for f in fields(Failure)) - {"kind", "signal", "cascade"}
_SIZE: Final = lazy(r"<<(\w{1,40})>>")
_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})
Kind = Literal["device", "host", "shared-memory", "other"]


_SIZED: Final = (
    r"(?P<\1__n>-?[0-9]{1,20}(?:\.[0-9]{0,12})?) ?"
    r"(?P<\1__u>[KMGTPE]i?B|[KMGT]i?b|bytes?|[KMGT](?![A-Za-z])|B(?![A-Za-z]))"
)
"""What stands for a size, whose bytes become ``<name>_bytes``."""


@dataclass(frozen=True, slots=True)
class Rule:
    """``kind`` is the failure that the line states, ``None`` for a state that only explains one."""

    signal: str
    pattern: str
    """Case-insensitive; compiled when a line first needs it, so that a cold start pays for few of them."""
    kind: Kind | None = None
    cascade: bool = False
    phase: str | None = None
    facts: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    """Data name -> fact name; names that end in ``_bytes`` become GiB."""
    confidence: float = 0.9
    lines: int = 0
    """How many lines after the trigger belong to the message."""
    behind_output: bool = False
    """Whether it counts only where something was printed in the twenty lines before."""


@cache
def _expression(pattern: str) -> Expression:
    return Expression(pattern, re.IGNORECASE)


def parser_of(path: Path) -> Parser:
    """The parser of a table: it answers with the first rule that matches the line."""
    table = read_toml(path)
    rules = [
        Rule(**{**row, "pattern": _SIZE.sub(lambda at: _SIZED.replace(r"\1", at[1]), row["pattern"])})
        for row in table["rules"]
    ]
    expressions = tuple((one, one.lines, _expression(one.pattern)) for one in rules)

    def parse(window: Window) -> Reading | None:
        line = window.line
        low = line.low
        for one, more, expression in expressions:
            text = line.text
            if more:
                text = " ".join([text, *(line.text.strip() for line in window.following(more))])[:6000]
            elif not expression.may_match(low):
                continue
            if one.behind_output and not any(before.text.strip() for before in window.lines[: window.index][-20:]):
                continue
            # A message of several lines is read where it begins.
            if (found := expression.search(text)) is not None and found.start() < max(1, len(line.text)):
                return _reading(one, found, window)
        return None

    return Parser(path.stem, tuple(table["triggers"]), parse, table.get("priority", 50), table.get("repeats", False))


def _reading(one: Rule, found: re.Match[str], window: Window) -> Reading:
    data = _data(found)
    hit, span = signal(one.signal, window, **data), window.line.span()
    told = {
        name: round(data[k] / GIB, 5) if k.endswith("_bytes") else data[k] for k, name in one.facts.items() if k in data
    }
    facts = tuple(Fact(name, value, span, "log", one.confidence) for name, value in told.items())
    if one.kind is None:
        return Reading((hit,), (), facts)
    values = {k: v for k, v in data.items() if k in _FIELDS} | ({"phase": one.phase} if one.phase is not None else {})
    return Reading((hit,), (Failure(kind=one.kind, signal=hit, cascade=one.cascade, **values),), facts)


@cache
def _groups(pattern: re.Pattern[str]) -> tuple[tuple[str, str, str], ...]:
    """Group, name and kind of what a rule reads."""
    parts = ((group, *group.partition("__")[::2]) for group in pattern.groupindex)
    return tuple((group, name, kind) for group, name, kind in parts if kind != "u")


def _data(found: re.Match[str]) -> dict[str, Any]:
    groups = found.groupdict()
    out: dict[str, Any] = {}
    for group, name, kind in _groups(found.re):
        text = groups[group]
        if text is None:
            continue
        if kind == "n":
            out[f"{name}_bytes"] = to_bytes(text.replace(",", ""), groups.get(f"{name}__u") or "")
        elif kind == "g":
            out[f"{name}_bytes"] = round(float(text) * GIB)
        elif kind == "i":
            out[name] = int(text.replace(",", ""))
        elif kind == "f":
            out[name] = float(text)
        else:
            out[name] = text.strip()
    return out
