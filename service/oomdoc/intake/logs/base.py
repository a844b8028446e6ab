"""What a parser of one error family is, and what it hands back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

from oomdoc.evidence import Fact, Failure, Signal
from oomdoc.intake.lines import Line
from oomkb.dataclass import dataclass

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
_MARK: Final = re.compile(r"[\s|│╭╰─*`]{1,200}")


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

    def preceding(self, count: int) -> list[Line]:
        """Up to ``count`` earlier lines of the same writer, nearest first."""
        tag = self.line.tag
        out: list[Line] = []
        for line in reversed(self.lines[max(0, self.index - 8 * count) : self.index]):
            if line.tag == tag:
                out.append(line)
                if len(out) == count:
                    break
        return out

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
    return Signal(name, window.line.span(), MappingProxyType(data) if data else _EMPTY, window.line.rank)


def failure(
    kind: Literal["device", "host", "shared-memory", "other"], found: Signal, /, *, cascade: bool = False, **values: Any
) -> Reading:
    """A reading with one failure and its signal."""
    return Reading((found,), (Failure(kind=kind, signal=found, cascade=cascade, **values),))


def fact(name: str, value: Any, line: Line, confidence: float = 0.95) -> Fact:
    """A fact that a log line states."""
    return Fact(name, value, line.span(), "log", confidence)


def only(*found: Signal, facts: Iterable[Fact] = ()) -> Reading:
    """A reading of signals and facts without a failure."""
    return Reading(tuple(found), (), tuple(facts))
