"""What the loader cannot see of one topic alone: ``python -m oomkb.topics.lint`` prints the problems."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Final

from oomkb.errors import OomdocError
from oomkb.memory.job import Job
from oomkb.pricing import price_planned
from oomkb.records.loader import cached_cases
from oomkb.topics.records import DATA, Topic, topics

OPENED: Final = DATA / "opened.tsv"
"""A source and a day per line; a source that is not in it is counted by this program and shown as any other."""
_CHINESE: Final = re.compile(r"[一-鿿]")
_SENTENCES: Final = {"en": re.compile(r"[.!?](?=\s|$)"), "zh": re.compile(r"[。！？]")}
_MOST: Final = 6
"""Sentences of an answer."""
_LONGEST: Final = {"en": 1000, "zh": 460}
"""Characters of an answer: what one screen shows."""


def opened(path: Path = OPENED) -> dict[str, str]:
    """The day on which each source was last read and found to support the answers that name it.

    :raises ValueError: for a line that is not a source, a tab and a day.
    """
    found: dict[str, str] = {}
    for line in path.read_text("utf-8").splitlines():
        source, _, day = line.partition("\t")
        found[source] = date.fromisoformat(day).isoformat()
    return found


def problems(found: Iterable[Topic]) -> Iterator[str]:
    """One line per problem."""
    cases = {case.id for case in cached_cases()}
    asked: dict[str, str] = {}
    for topic in found:
        yield from _of_texts(topic)
        for question in (text for texts in topic.questions.values() for text in texts):
            if asked.setdefault(question.lower(), topic.id) != topic.id:
                yield f"{topic.id}: {question!r} is an example of {asked[question.lower()]} as well"
        yield from (f"{topic.id}: no case {case}" for case in topic.cases if case not in cases)
        for side in topic.shown.sides if topic.shown is not None else ():
            try:
                price_planned(Job.from_document(topic.shown.job if topic.shown is not None else {}).with_fields(side))
            except OomdocError as error:
                yield f"{topic.id}: {dict(side)} cannot be priced: {error}"


def _of_texts(topic: Topic) -> Iterator[str]:
    for language, answer in topic.answer.items():
        count = len(_SENTENCES[language].findall(answer))
        if not 2 <= count <= _MOST or len(answer) > _LONGEST[language]:
            yield f"{topic.id}: the answer ({language}) has {count} sentences, {len(answer)} characters"
    for language, texts in topic.questions.items():
        for text in (topic.title[language], topic.answer[language], *texts):
            # A Chinese title may be a name in Latin letters alone.
            if (_CHINESE.search(text) is not None) != (language == "zh") and text != topic.title["en"]:
                yield f"{topic.id}: {text[:40]!r} is not {language}"


if __name__ == "__main__":
    unopened = sorted({source for topic in topics().values() for source in topic.sources} - opened().keys())
    sys.stdout.write(
        "".join(f"not opened yet: {source}\n" for source in unopened) + f"{len(unopened)} sources not opened yet\n"
    )
    raise SystemExit("\n".join(problems(topics().values())) or None)
