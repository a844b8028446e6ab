"""Frames of Python tracebacks, in the forms in which they are printed, wrapped by loggers, or shortened by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from oomdoc.evidence import Frame
from oomdoc.intake.lines import Line

__all__ = ["Placed", "read_frames"]

_PYTHON: Final = re.compile(
    r"[\s│|>]{0,12}File [\"“](?P<file>[^\"”]{1,300})[\"”], line (?P<number>\d{1,7})(?:, in ("
    r"?P<function>[\w.<>]{1,120}))?"
)
_CUT: Final = re.compile(
    r"\s{0,12}File [\"“](?P<file>[^\"”]{1,300})[\"”]?, (?:line (?P<number>\d{1,7}),?)?.{0,6}"
    r"in (?P<function>[\w.<>]{1,120})"
)
_SHORT: Final = re.compile(
    r"[\s\-*>│]{0,12}(?P<file>[\w./\-~]{1,200}\.py),? (?:line |in line )(?P<number>\d{1,7}),"
    r"? in (?P<function>[\w.<>]{1,120})(?:: ?(?P<code>.{1,200}))?"
)
_RICH: Final = re.compile(
    r"[\s│|>❱\-]{0,12}(?P<file>[\w./\-~]{1,200}\.(?:py|pyx)):(?P<number>\d{1,7}) in (?P<func"
    r"tion>[\w.<>]{1,120})"
)
_NOTEBOOK: Final = re.compile(
    r"[\s>]{0,8}(?:File )?(?P<file>[\w./\-~<>]{1,200}\.(?:py|pyx))(?::(?P<number>\d{1,7}),)?"
    r" in (?P<function>[\w.<>]{1,120})(?:\(|\s{0,4}\Z)"
)
"""IPython: ``File ~/lib/trainer.py:213, in train(self)``, before version 8 ``/usr/lib/trainer.py in train(self)``."""
_POINTED: Final = re.compile(r"[\s>]{0,4}-{1,5}> ?\d{1,6} (?P<code>\s{0,40}\S.{0,200})")
"""The line that IPython points at."""
_ARROW: Final = re.compile(
    r"(?:→|->|=>) ?(?P<function>[A-Za-z_][\w.]{1,100})(?: \((?P<file>[\w./\-]{1,120}\.py):(?"
    r"P<number>\d{1,6})[^)]{0,60}\))?"
)
_ARROW_FILE: Final = re.compile(r"[\s\-*]{0,8}(?P<file>[\w./\-]{1,160}\.py) ?(?:→|->|=>) ?(?P<code>.{1,200})")
_MARKS: Final = re.compile(r"[\s^~│❱|]{0,400}\Z")


@dataclass(frozen=True, slots=True)
class Placed:
    """A frame, and the index of its line."""

    index: int
    frame: Frame
    tag: str


def read_frames(lines: Sequence[Line]) -> list[Placed]:
    """Every frame in the order of lines, with the code line that follows it."""
    out: list[Placed] = []
    open_by_tag: dict[str, int] = {}
    last: dict[str, int] = {}
    for index, line in enumerate(lines):
        frames = list(_frames(line))
        for frame in frames:
            out.append(Placed(index, frame, line.tag))
        if frames:
            open_by_tag[line.tag] = last[line.tag] = len(out) - 1
        elif "> " in line.text[:12] and line.tag in last and (found := _POINTED.match(line.text)) is not None:
            at = last[line.tag]
            open_by_tag.pop(line.tag, None)
            if index - out[at].index <= 40:
                out[at] = replace(out[at], frame=replace(out[at].frame, code=found["code"].strip()[:200]))
        elif line.tag in open_by_tag and line.text.strip() and not _MARKS.match(line.text):
            at = open_by_tag.pop(line.tag)
            if index - out[at].index <= 40 and not out[at].frame.code:
                out[at] = replace(out[at], frame=replace(out[at].frame, code=line.text.strip()[:200]))
    return out


def _frames(line: Line) -> Iterator[Frame]:
    text = line.text[:700]
    if ".py" not in text and "→" not in text and "File " not in text and "->" not in text:
        return
    for pattern in (_PYTHON, _CUT, _SHORT, _RICH, _NOTEBOOK, _ARROW_FILE):
        if (found := pattern.search(text) if pattern is _PYTHON else pattern.match(text)) is not None:
            groups = found.groupdict()
            number = groups.get("number")
            code = (groups.get("code") or "").strip()
            yield Frame(
                found["file"],
                groups.get("function") or "",
                line.span(found.start() + 1),
                int(number) if number else None,
                code,
            )
            return
    for found in _ARROW.finditer(text[:2000]):
        if found["file"] or text.lstrip().startswith(("→", "->", "=>")):
            yield Frame(
                found["file"] or "",
                found["function"],
                line.span(found.start() + 1),
                int(found["number"]) if found["number"] else None,
            )
