"""Text into lines without the clutter that launchers put before them.

Every rank, worker and pod may print into one stream. A line's *tag* says which one wrote it, so that the parts of
one traceback can be put together again after several of them were interleaved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from oomdoc.evidence import Source, Span

__all__ = ["Line", "distinct", "read_lines"]

_ANSI: Final = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_LONGEST: Final = 4000
"""Characters of a line that are looked at: longer ones are dumps (base64, token ids), not messages."""

_WORKER: Final = re.compile(
    r"\s{0,8}\((?P<name>[A-Za-z_]\w{0,60}(?:[ .]\w{1,40}){0,3}?)[ _]?(?P<rest>(?:(?:rank"
    r"|pid|ip|TP|DP|PP|node)[= ]?[\w.:\-<>]{1,60},?\s?){1,5})\)\s?"
)
_RANK: Final = re.compile(r"\s{0,8}\[?(?:default|rank|Rank|RANK)[ _]?(?P<rank>\d{1,5})\]?:\s?")
_TASK: Final = re.compile(r"(?P<rank>\d{1,4}): (?=\S)")
_STAMP: Final = re.compile(
    r"\s{0,8}\[?(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z"
    r"|[+-]\d\d:?\d\d)?|\d\d-\d\d \d\d:\d\d:\d\d)\]?[ \t,:]{0,3}"
)
_LEVEL: Final = re.compile(r"(?:- )?\[?(?:INFO|ERROR|WARNING|WARN|DEBUG|CRITICAL|FATAL|ERR)\]?(?::)?[ \t]{1,4}(?=\S)")
_PLACE: Final = re.compile(r"(?:\[[\w./\-]{1,80}\.py:\d{1,6}(?::\w{1,60})?\]|[\w./\-]{1,80}\.py:\d{1,6}\])[ \t:]?")
_RANK_IN_WORKER: Final = re.compile(r"(?:rank|TP|DP)[= ]?(\d{1,5})", re.IGNORECASE)


class Line(NamedTuple):
    """One line: ``text`` without prefixes, ``raw`` as it stands, ``tag`` the writer (rank or worker)."""

    source: str
    number: int
    text: str
    raw: str
    tag: str = ""
    rank: int | None = None
    logged: bool = False
    """Whether a launcher's or logger's prefix stood before the text: such a line is not prose."""
    low: str = ""
    """``raw`` in lower case."""

    def span(self, column: int = 1) -> Span:
        """The place of this line."""
        return Span(self.source, self.number, column, self.raw.strip()[:300])


def distinct(lines: Iterable[Line], *, repeats: int = 3, characters: int = 100_000) -> list[Line]:
    """Lines without those that differ from ``repeats`` earlier ones in digits only: step after step says one thing.

    At most so many characters: what is said about a job is said early, and work on untrusted text is bounded.
    """
    given = lines if isinstance(lines, Sequence) else list(lines)
    seen: dict[str, int] = {}
    out: list[Line] = []
    for line, whole in zip(given, _without_digits(given), strict=True):
        shape = whole[:120]
        count = seen.get(shape, 0)
        if count < repeats:
            seen[shape] = count + 1
            out.append(line)
            characters -= len(line.text)
            if characters < 0:
                break
    return out


def _without_digits(lines: Sequence[Line]) -> list[str]:
    """The texts without their digits; all at once, because that is what bytes are quick at."""
    joined = "\n".join([line.text for line in lines]).encode("utf-8", "surrogatepass")
    return joined.translate(None, b"0123456789").decode("utf-8", "surrogatepass").split("\n") if lines else []


def read_lines(source: Source) -> Iterator[Line]:
    """Lines of a source, numbered from 1; carriage returns of progress bars separate lines too."""
    for number, physical in enumerate(source.text.split("\n"), start=1):
        for piece in physical.split("\r"):
            raw = piece[:_LONGEST]
            if "\x1b" in raw:
                raw = _ANSI.sub("", raw)
            if raw or physical == "":
                yield _line(source.name, number, raw)


def _line(source: str, number: int, raw: str) -> Line:
    """Peel prefixes in the order in which launchers, engines and loggers put them on."""
    if _PREFIX.match(raw) is None:
        return Line(source, number, raw, raw, low=raw.lower())
    text, tag, rank, logged = raw, "", None, False
    for _ in range(6):
        if logged and _LATER.match(text) is None and ".py:" not in text:
            break
        before, first = text, text[:12].lstrip()[:1]
        if first == "(" and (found := _WORKER.match(text)) is not None:
            tag += found[0].strip()
            inner = _RANK_IN_WORKER.search(found[0])
            rank = int(inner[1]) if inner and rank is None else rank
            text, logged = text[found.end() :], True
        elif first in "[drR" and (found := _RANK.match(text)) is not None:
            rank, tag = int(found["rank"]), tag + found[0].strip()
            text, logged = text[found.end() :], True
        elif (
            ((first == "[" or first.isdigit()) and (found := _STAMP.match(text)) is not None)
            or (logged and (found := _LEVEL.match(text) or _PLACE.match(text)) is not None)
            or (number and (found := _LEVEL.match(text)) is not None and _LEVEL_STARTS.match(text))
        ):
            text, logged = text[found.end() :], True
        if text is before or text == before:
            break
    return Line(source, number, text, raw, tag, rank, logged, raw.lower())


_PREFIX: Final = re.compile(r"\s{0,8}(?:[(\[]|\d|default|rank|Rank|RANK|INFO|ERROR|WARNING|DEBUG)")
"""How any of the prefixes begins."""
_LATER: Final = re.compile(r"\s{0,8}(?:[(\[]|\d|default|rank|Rank|RANK|INFO|ERR|WARN|DEBUG|CRITICAL|FATAL|- )")
"""How one begins that follows another, unless it is the place in a script."""
_LEVEL_STARTS: Final = re.compile(r"\[?(?:INFO|ERROR|WARNING|DEBUG)\]? ")
