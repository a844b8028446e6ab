"""The text that is sent, with the place of each of its lines, and quotes found in it again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from oomdoc.evidence import Evidence, Source, Span
from oomkb.dataclass import dataclass

_GAP: Final = "[...]"
_LONGEST_LINE: Final = 600
"""Characters of a line that are sent where the text has to be condensed."""
_AROUND: Final = 2
"""Lines on both sides of one that something was read from."""
_ENDS: Final = 12
"""Lines at the beginning and at the end of a source that are sent before others."""
_LONGEST_QUOTE: Final = 400
_WRAPPING: Final = " \t\r\n\"'`“”‘’"


def estimated_tokens(text: str) -> int:
    """Tokens of a text, on the careful side: three Latin characters each, one of any other script."""
    other = sum(1 for c in text if ord(c) > 0x2E7F)
    return (len(text) - other) // 3 + other + 1


@dataclass(frozen=True)
class Passage:
    """Lines as they are sent: (source, line from 1, text); line 0 is one of ours, which no quote may lie in."""

    lines: tuple[tuple[str, int, str], ...]

    @cached_property
    def text(self) -> str:
        """What is sent."""
        return "\n".join(text for *_, text in self.lines)

    @cached_property
    def _squeezed(self) -> tuple[str, list[int]]:
        """The words of all lines with one blank between them, and where each line begins in it."""
        parts, starts, at = [], [], 0
        for *_, text in self.lines:
            words = " ".join(text.split())
            starts.append(at)
            parts.append(words)
            at += len(words) + bool(words)
        return " ".join(part for part in parts if part), starts

    def find(self, quote: str) -> Span | None:
        """Where a quote stands word for word (blanks and line ends aside); ``None`` where it does not."""
        wanted = " ".join(quote[: _LONGEST_QUOTE + 1].split())
        if not wanted or len(wanted) > _LONGEST_QUOTE:
            return None
        whole, starts = self._squeezed
        at = whole.find(wanted)
        if at < 0:
            wanted = wanted.strip(_WRAPPING)
            at = whole.find(wanted) if wanted else -1
        if at < 0:
            return None
        first, last = bisect_right(starts, at) - 1, bisect_right(starts, at + len(wanted) - 1) - 1
        while first < last and not self.lines[first][2].strip():
            first += 1
        if any(line == 0 for _, line, _ in self.lines[first : last + 1]):
            return None
        source, line, text = self.lines[first]
        column = max(text.find(wanted.split(" ", 1)[0]), 0) + 1
        return Span(source, line, column, text.strip()[:300])


def passage_of(sources: Sequence[Source], evidence: Evidence, most_tokens: int) -> Passage:
    """The masked text of all sources; of a long one, what was read from, what was written, and the ends.

    :param sources: masked.
    :param most_tokens: estimated tokens that it may have.
    """
    several = len(sources) > 1
    whole = Passage(tuple(line for source in sources for line in _lines(source, several)))
    if estimated_tokens(whole.text) <= most_tokens:
        return whole
    return _condensed(whole, evidence, most_tokens)


def _lines(source: Source, named: bool) -> list[tuple[str, int, str]]:
    head = [(source.name, 0, f"== {source.name}")] if named else []
    return head + [(source.name, n, text) for n, text in enumerate(source.text.splitlines(), 1)]


def _condensed(whole: Passage, evidence: Evidence, most_tokens: int) -> Passage:
    chosen: set[int] = set()
    left = most_tokens
    for at in _by_importance(whole, evidence):
        if at in chosen:
            continue
        cost = estimated_tokens(whole.lines[at][2][:_LONGEST_LINE]) + 1
        if cost <= left:
            chosen.add(at)
            left -= cost
        if left < 20:
            break
    out: list[tuple[str, int, str]] = []
    last = -1
    for at in sorted(chosen):
        if at > last + 1:
            out.append((whole.lines[at][0], 0, _GAP))
        source, line, text = whole.lines[at]
        out.append((source, line, text[:_LONGEST_LINE]))
        last = at
    return Passage(tuple(out))


def _by_importance(whole: Passage, evidence: Evidence) -> list[int]:
    """Line indexes: the failure, what was read, both ends, what the person wrote, what stands around it, the rest."""
    index = {(source, line): at for at, (source, line, _) in enumerate(whole.lines)}

    def at(span: Span) -> list[int]:
        found = index.get((span.source, span.line))
        return [] if found is None else [found]

    failing = [span for f in evidence.failures for span in (f.signal.span, *(frame.span for frame in f.frames[-12:]))]
    failing += [evidence.outcome.span] if evidence.outcome is not None else []
    read = [
        *(fact.span for fact in evidence.facts.values()),
        *(statement.span for statement in evidence.statements),
        *(sign.span for sign in evidence.signs),
        *(setting.span for setting in evidence.inactive),
        *(signal.span for signal in evidence.signals),
    ]
    first = [n for span in (*failing, *read) for n in at(span)]
    written = set(evidence.prose.splitlines())
    prose = [n for n, (*_, text) in enumerate(whole.lines) if text.strip() and text.strip() in written]
    near = [n + d for n in first for d in range(-_AROUND, _AROUND + 1) if 0 <= n + d < len(whole.lines)]
    ends = [n for n in range(len(whole.lines)) if n < _ENDS or n >= len(whole.lines) - _ENDS]
    names = [n for n, (_, line, _) in enumerate(whole.lines) if line == 0]
    return [*names, *first, *ends, *prose, *near, *range(len(whole.lines))]
