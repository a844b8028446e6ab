"""The further questions of one text, each answered as a turn of a conversation about the run that it describes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from oomdoc.chat.conversation import respond
from oomdoc.chat.session import Session
from oomdoc.diagnosis.result import Diagnosis
from oomdoc.intake.asked import asked_in
from oomdoc.intake.several import Several
from oomdoc.report.report import Report
from oomdoc.report.words import word
from oomkb.catalog.gpus import find_all
from oomkb.memory.job import Job

_SIZE: Final = re.compile(r"[\d,.]+ [GM]iB")
_COUNTED: Final = frozenset({"cards", "layers", "requests"})
"""Quantities for which a further question may ask beside a comparison."""
_PROPOSAL: Final = "chat.plan"
_ROOM: Final = ("answer.room", "answer.room-one", "answer.room-then")
_OF_ALL: Final = ("answer.own-", "answer.reserved")
"""Messages that answer all questions of a text: from figures which the person measured, or why an engine holds them."""


def in_parts(whole: Report, found: Several, report_of: Callable[[str], Report]) -> Report:
    """The answer to the first question with those to the further ones.

    The items of a list are answered one by one. Of questions in a row the whole text is read at once, as what one of
    them names is mostly meant by all; a further one is answered beside it where that brings a size not yet said.

    :param whole: the answer to the whole text.
    :param report_of: the answer to a part of it.
    """
    own = any(message.key.startswith(_OF_ALL) for message in whole.diagnosis.summary)
    of_usual_sizes = whole.diagnosis.estimate is None and whole.diagnosis.grid is not None
    if own or whole.diagnosis.explained or of_usual_sizes:
        return whole
    if not found.numbered and whole.diagnosis.sides:
        # What is set against each other is all that is asked, but for a number of something.
        found = replace(found, further=tuple(one for one in found.further if asked_in(one).wanted in _COUNTED))
    apart = found.numbered or (not whole.diagnosis.sides and _names_card_later(found))
    first = report_of(found.first) if apart else whole
    answers = _answers(found, "" if apart else first.text(full=True), whole.diagnosis)
    return replace(first, further=tuple(answers)) if answers else first


def _names_card_later(found: Several) -> bool:
    """Whether a further question asks how many of a card are needed that the first one does not name."""
    named = asked_in(found.first).card or find_all(found.first)
    return not named and any(asked_in(one).wanted == "cards" and find_all(one) for one in found.further)


def _answers(found: Several, said: str, whole: Diagnosis) -> list[tuple[str, str]]:
    """:param said: what the answer to the whole text, ``whole``, says already."""
    session, _ = respond(Session(), found.first)
    counts = asked_in(found.first).wanted == "requests"
    answers = []
    described = session
    for question in found.further if session.steps else ():
        session, reply = respond(described if found.numbered else session, question)
        language = session.language
        lines = _to_the_point(reply.answer.split("\n"), language, counts=counts)
        if not said:
            answers.append((question, "\n".join(lines) or word("chat.unheard", language)))
        elif _is_answered(question, whole.job):
            continue
        elif whole.verdict != "no-failure" and not session.proposed and not reply.changed:
            continue  # why it failed and what to do is what the diagnosis says
        elif not set(_SIZE.findall("\n".join(lines))) <= set(_SIZE.findall(said)):
            answers.append((question, "\n".join(lines)))
    return answers


def _is_answered(question: str, job: Job) -> bool:
    """Whether a question names a length, and that and all else it names is what the whole text was answered for."""
    asked = asked_in(question)
    lengths = (job.get("serving.max_model_len"), job.seq_len)
    if asked.length is None or asked.length not in lengths or asked.wanted not in ("fit", "amount", "length"):
        return False
    return all(job.get(name) == value for name, value in asked.settings.items() if "len" not in name)


def _to_the_point(lines: Sequence[str], language: str, *, counts: bool) -> list[str]:
    """The first line with one more: what would fit, the requests that are counted, else a size where it brings none."""
    first, *rest = lines
    if first == word("chat.unheard", language):
        return []
    shown = tuple(word(key, language).partition("{")[0] for key in (_PROPOSAL, *(_ROOM if counts else ())))
    unsized = not _SIZE.search(first)
    more = [line for line in rest if line.startswith(shown) or (unsized and _SIZE.search(line))]
    return [first, *more[:1]]
