"""Frames of Python tracebacks, in the forms in which they are printed, wrapped by loggers, or shortened by hand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from oomdoc.evidence import Frame
from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns
from oomkb.dataclass import dataclass

_RE: Final = patterns(__file__)
_NEAR: Final = 40
"""Lines of a writer between a frame and its code."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A frame, and the index of its line."""

    index: int
    frame: Frame
    tag: str
    own: int = 0
    """The number of the line among those of its writer: where ranks share a log, lines of one are far apart."""


def read_frames(lines: Sequence[Line]) -> list[Placed]:
    """Every frame in the order of lines, with the code line that follows it."""
    out: list[Placed] = []
    open_by_tag: dict[str, int] = {}
    last: dict[str, int] = {}
    written: Counter[str] = Counter()
    for index, line in enumerate(lines):
        written[line.tag] += 1
        frames = list(_frames(line))
        for frame in frames:
            out.append(Placed(index, frame, line.tag, written[line.tag]))
        if frames:
            open_by_tag[line.tag] = last[line.tag] = len(out) - 1
        elif "> " in line.text[:12] and line.tag in last and (found := _RE["pointed"].match(line.text)) is not None:
            at = last[line.tag]
            open_by_tag.pop(line.tag, None)
            if written[line.tag] - out[at].own <= _NEAR:
                out[at] = replace(out[at], frame=replace(out[at].frame, code=found["code"].strip()[:200]))
        elif line.tag in open_by_tag and line.text.strip() and not _RE["marks"].match(line.text):
            at = open_by_tag.pop(line.tag)
            if written[line.tag] - out[at].own <= _NEAR and not out[at].frame.code:
                out[at] = replace(out[at], frame=replace(out[at].frame, code=line.text.strip()[:200]))
    return out


def _frames(line: Line) -> Iterator[Frame]:
    text = line.text[:700]
    if ".py" not in text and "→" not in text and "File " not in text and "->" not in text:
        return
    for pattern in (_RE["python"], _RE["cut"], _RE["short"], _RE["rich"], _RE["notebook"], _RE["arrow_file"]):
        if (found := pattern.search(text) if pattern is _RE["python"] else pattern.match(text)) is not None:
            yield _frame(line, found)
            return
    for found in _RE["arrow"].finditer(text[:2000]):
        if found["file"] or text.lstrip().startswith(("→", "->", "=>")):
            yield _frame(line, found)


def _frame(line: Line, found: re.Match[str]) -> Frame:
    told = {name: text or "" for name, text in found.groupdict().items()}
    number = int(told["number"]) if told.get("number") else None
    span = line.span(found.start() + 1)
    return Frame(told["file"], told.get("function", ""), span, number, told.get("code", "").strip())
