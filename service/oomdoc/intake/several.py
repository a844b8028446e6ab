"""Several questions in one text: what describes the run and the first of them, and each further one on its own.

A list numbers its questions, and each item changes what it names for itself: read as one text, the items' settings
would become those of one run. Questions in a row mostly share the run; only the further ones' sentences stand apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import ends_as_question, with_question_marks
from oomdoc.intake.worded import ROWS
from oomkb.dataclass import dataclass

_RE: Final = patterns(__file__)
_MAX_CHARACTERS_OF_QUESTION: Final = 240
_MAX_QUESTIONS: Final = 6
_MAX_CHARACTERS: Final = 8_000
"""Of a text that is looked at: a longer one is a log."""
_LEAST_MARKS: Final = 2
"""Question marks of a text that puts several questions."""
_NUMBERS: Final = ("123456789", "①②③④⑤⑥⑦⑧⑨", "abcdef")


@dataclass(frozen=True, slots=True)
class Several:
    """A text that puts several questions."""

    first: str
    """The text without the further questions."""
    further: tuple[str, ...]
    numbered: bool
    """Whether they are the items of a numbered list."""


def several_questions(text: str) -> Several | None:
    """The questions of a text, where it puts more than one that can be told apart."""
    return _numbered(text) or _in_a_row(text) if len(text) <= _MAX_CHARACTERS else None


def _numbered(text: str) -> Several | None:
    marks: list[re.Match[str]] = []
    for mark in _RE["item"].finditer(text):
        sign = next(n for n in mark.groups() if n)
        if any(row.find(sign) == len(marks) for row in _NUMBERS):
            marks.append(mark)
    if not marks:
        return None
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    items = [text[mark.end() : end].strip(" \n\t;；,，") for mark, end in zip(marks, ends, strict=True)]
    if not 1 < len(items) <= _MAX_QUESTIONS or any(_is_long(item) for item in items):
        return None
    if 2 * sum(map(_asks, items)) <= len(items):
        return None  # a list of options or of advice
    return Several(f"{text[: marks[0].start()].rstrip()}\n{items[0]}".strip(), tuple(items[1:]), True)


def _in_a_row(text: str) -> Several | None:
    first, further, since = "", [], ""
    asked, marked = False, with_question_marks(text)
    if marked.count("?") + marked.count("？") < _LEAST_MARKS:
        return None
    for sentence in sentences_in(marked):
        since += sentence
        if ends_as_question(sentence):
            if asked and not _is_long(since):
                further.append(since.strip())
            else:
                first += since
            asked, since = True, ""
        elif "\n" in sentence:
            first, since = first + since, ""
    if not 0 < len(further) < _MAX_QUESTIONS:
        return None
    return Several((first + since).strip(), tuple(further), False)


def statement_and_question(text: str) -> tuple[str, str]:
    """What a turn says before its first question, and the rest; nothing of what puts none, or only questions."""
    said = ""
    sentences = list(sentences_in(with_question_marks(text.strip())))
    for number, sentence in enumerate(sentences):
        if ends_as_question(sentence):
            return said.strip(), "".join(sentences[number:]).strip()
        said += sentence
    return "", text


def _asks(item: str) -> bool:
    marked = with_question_marks(item)
    return "?" in marked or "？" in marked or ROWS["puts_question"].match(item) is not None


def sentences_in(text: str) -> Iterator[str]:
    """The sentences of a text with the signs that end them; a figure's point and a link's question mark end none."""
    return (found[0] for found in _RE["sentence"].finditer(text) if found[0])


def questions_in(text: str) -> list[str]:
    """The sentences of a text that a question mark ends."""
    return [sentence.strip() for sentence in sentences_in(text) if ends_as_question(sentence)]


def _is_long(item: str) -> bool:
    return len(item) > _MAX_CHARACTERS_OF_QUESTION or item.count("\n") > 1
