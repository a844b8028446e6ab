"""Lines of prose as sentences, and long sentences as parts short enough to say one thing or two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns

_RE: Final = patterns(__file__)
_MIN_CHARS: Final = 6
_MAX_CHARS: Final = 160
"""Characters of a part: about 25 words."""
_READ: Final = 1200
"""Characters of a sentence that are read."""
_WRAPPED: Final = 60
"""A line at least so long that does not end a sentence goes on in the next one where that begins in lower case."""


class Sentence(NamedTuple):
    """A sentence, the line where it begins, and its column there (from 1)."""

    text: str
    line: Line
    column: int


def sentences_of(lines: Iterable[Line]) -> Iterator[Sentence]:
    """The sentences of so many lines of prose, in order; wrapped lines are put together."""
    held: tuple[str, Line] | None = None
    for line in lines:
        text = line.text.strip()
        if held is not None:
            before, first = held
            if text[:1].islower() and first.source == line.source and 0 < line.number - first.number <= 8:
                text, line = f"{before} {text}", first  # noqa: PLW2901
            else:
                yield from _split(before, first)
        held = (text, line)
        if len(line.text) < _WRAPPED or text[-1:] in ".!?。！？:：;；" or len(text) > 1000:
            yield from _split(text, line)
            held = None
    if held is not None:
        yield from _split(*held)


def _split(text: str, line: Line) -> Iterator[Sentence]:
    start = 0
    for end in [found.start() for found in _RE["end"].finditer(text)] + [len(text)]:
        piece = text[start:end]
        said = _RE["marks"].sub("", piece[:_READ])
        if "](" in said or "http" in said or "<" in said:
            said = _RE["link"].sub(lambda found: found[1] or " ", said)
        said = said.strip(" *_")
        if len(said) >= (_MIN_CHARS if said.isascii() else 4) and _is_said(said):
            yield Sentence(said, line, max(1, line.raw.find(piece.strip()[:20]) + 1))
        start = end


def _is_said(text: str) -> bool:
    """Whether it holds two words of ordinary writing, or Chinese; a line of code, a path or a figure holds fewer."""
    if _RE["han"].search(text) is not None:
        return True
    words = (word.strip(".,:;!?()\"'`*") for word in text[:_MAX_CHARS].split())
    return sum(word[:1].isalpha() and _RE["joins"].sub("", word).isalnum() for word in words) >= 2


def parts_of(sentence: str) -> list[str]:
    """The sentence, or where it is long its clauses, joined while they stay short; neighbours overlap by a clause."""
    if _weight(sentence) <= _MAX_CHARS:
        return [sentence]
    clauses = [clause for clause in _RE["clause"].split(sentence) if clause and clause.strip()]
    out: list[str] = []
    here: list[str] = []
    for clause in clauses:
        if here and _weight(" ".join([*here, clause])) > _MAX_CHARS:
            out.append(" ".join(here))
            here = here[-1:] if _weight(here[-1] + clause) <= _MAX_CHARS else []
        here.append(clause)
    return [*out, " ".join(here)]


def _weight(text: str) -> int:
    """Its length in bytes: a Chinese character, which says as much as three letters, has three."""
    return len(text.encode())
