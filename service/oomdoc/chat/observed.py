"""What a person saw a run hold or how it went: held against the estimate, and carried on to other sizes of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from oomdoc.chat import answers, parts
from oomdoc.chat.describing import options_of
from oomdoc.chat.grammar import Turn
from oomdoc.chat.prices import price_of
from oomdoc.chat.questions import asks, says
from oomdoc.chat.session import Reply, Session, difference, flat
from oomdoc.diagnosis.engine import diagnose
from oomdoc.diagnosis.own_lines import Size, by_measured_line, measured_line
from oomdoc.evidence import Evidence, Source
from oomdoc.intake import read, read_text
from oomdoc.intake.asked import asked_in
from oomdoc.intake.polarity import ends_as_question
from oomdoc.report.words import render, word
from oomkb.frameworks import has


def shown_bytes(evidence: Evidence) -> float | None:
    """What a run is told to hold on a card, where nothing failed."""
    seen = next(evidence.find("in-use"), None) if not evidence.failures else None
    return float(seen.data["shown_bytes"]) if seen is not None else None


def by_own_figures(session: Session, turn: Turn, text: str) -> tuple[Session, Reply] | None:
    """Another size of a run that was measured at several, by the line through those figures, as the first answer was.

    ``None`` where nothing was measured, where something else of the run has changed since, or something else is asked.
    """
    asks_largest = not turn.changes and says(text, "largest")
    sized = len(turn.changes) == 1 and not turn.changes.keys().isdisjoint(_LINES)
    if turn.kind not in ("change", "ask") or not session.material or not (asks_largest or sized):
        return None
    priced, _ = price_of(session.job, session.language)
    line = measured_line(read_text(session.material), priced.estimate.capacity_bytes if priced is not None else None)
    if line is None or len(line.points) < 2 or line.field not in _LINES:
        return None
    job = session.job.with_fields(turn.changes)
    if difference(session.steps[0].job, job).keys() - {line.field} or turn.changes.keys() - {line.field}:
        return None
    line = replace(line, asked=tuple(Size(size) for size in turn.changes.values()))
    said = [render(message, session.language) for message in by_measured_line(line)]
    if turn.kind == "change" and not ends_as_question(text):
        session = session.then(job, difference(session.job, job))
    return session, Reply(parts.joined(said), {}, session.job)


_LINES: Final = frozenset({"micro_batch", "seq_len"})
"""Fields that follow-ups carry a person's own figures over."""


def observed(session: Session, text: str, seen_bytes: float) -> Reply:
    """Whether the figure agrees with the estimate, and what it implies of what nobody stated."""
    job, language = session.job, session.language
    priced, problem = price_of(job, language)
    if priced is None:
        return Reply(word("chat.cannot-price", language, problem=problem), {}, job)
    sizes = {"seen_bytes": seen_bytes, **parts.limits(priced.estimate)}
    claims = job.objective == "inference" and has(job.framework, "serving.utilization", serving=True)
    if claims:
        key = "observed-share"
    elif seen_bytes > sizes["high_bytes"]:
        key = "observed-more"
    else:
        key = "observed-less" if seen_bytes < sizes["low_bytes"] else "observed-agrees"
    said = [word(f"chat.{key}", language, **sizes)]
    if key in ("observed-more", "observed-less"):
        found = diagnose(read([Source("chat", text)], options_of(flat(job))), plans=False, questions=False)
        said += [render(one.why, language) for one in found.inferred]
    capacity = priced.estimate.capacity_bytes
    if capacity is not None and capacity > seen_bytes:
        said.append(word("chat.observed-left", language, left_bytes=capacity - seen_bytes))
    said += parts.standing(job, language, plans=False).said[:2]
    return Reply(parts.joined(said), {}, job, priced.estimate.process_bytes)


def usual_requests(session: Session, text: str) -> tuple[Session, Reply | None]:
    """The session with the length of a usual request, where it is told with a question for how many there may be.

    Told on its own after such a question, the length is answered with how many of these there may be.
    """
    asked, longest = asked_in(text), session.job.get("serving.max_model_len") or session.job.seq_len
    counted = asked.wanted == "requests" or _AT_ONCE in session.about
    each = asked.request_length if counted and session.job.objective == "inference" else None
    if not each or not longest or each >= longest:
        return session, None
    session = session.noting({"seq_len": each, "serving.max_model_len": longest})
    if asked.wanted != "fit" or asks(text):
        return session, None
    question = word("chat.ask-requests", session.language)
    return session, answers.explained(session.job, question, session.language)


_AT_ONCE: Final = "serving.concurrency"
