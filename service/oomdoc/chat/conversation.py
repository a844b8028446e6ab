"""One turn of a conversation: (session, text) → (session, reply). Pure but for the diagnosis it may call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from oomdoc.chat import answers, parts
from oomdoc.chat.acts import asks_of_failure, explains, may_decide, meant
from oomdoc.chat.context import Context
from oomdoc.chat.describing import is_pasted, own_words, read_description, tells_of_failure
from oomdoc.chat.grammar import LONGEST_TURN, Turn, multiplied, understand
from oomdoc.chat.history import context_of, wanted
from oomdoc.chat.measures import held_against
from oomdoc.chat.observed import by_own_figures, observed, shown_bytes, usual_requests
from oomdoc.chat.parts import joined
from oomdoc.chat.prices import price_of, with_world
from oomdoc.chat.questions import (
    about,
    asks,
    asks_for_amount,
    asks_plainly,
    only_asks,
    says,
    still_fails,
    topic_of,
    without_echo,
)
from oomdoc.chat.reading import held_fields, holds_it
from oomdoc.chat.resolving import check_offered
from oomdoc.chat.session import Reply, Session, Step, difference
from oomdoc.chat.several_acts import in_order
from oomdoc.chat.side_by_side import side_by_side
from oomdoc.chat.speech import language_of
from oomdoc.chat.sums import moved_terms
from oomdoc.chat.undoing import target_of
from oomdoc.chat.unread import unread_names, unread_numbers
from oomdoc.chat.views import TOPICS
from oomdoc.chat.wording import patterns
from oomdoc.chat.written import edited
from oomdoc.diagnosis.explaining import (
    asked_topics,
    beside,
    concept_asked,
    explained_topics,
    found_topics,
    nearest_topic,
)
from oomdoc.diagnosis.forms import BASE
from oomdoc.diagnosis.planned import careful_job, counted
from oomdoc.diagnosis.result import IMPLIED, Diagnosis
from oomdoc.evidence import problem_of
from oomdoc.intake import read_text
from oomdoc.intake.asked import asked_in, asked_of
from oomdoc.intake.several import several_questions
from oomdoc.report.words import render, word
from oomdoc.stated import following
from oomkb.errors import JobError
from oomkb.memory.job import Job

_BESIDE: Final = 3
"""Sentences that stand before what is asked for beside them."""
_CONTEXT: Final = "serving.max_model_len"
_SAME: Final = frozenset({"world", "gpu", "nodes", "serving.kv_dtype"})
"""Fields that are held along with others, which are named."""
_TO_CHANGE: Final = patterns("conversation")["to_change"]
_PERCENT: Final = re.compile(r"[(（]\d.*?%[)）]")


def respond(session: Session, text: str) -> tuple[Session, Reply]:
    """Answer one turn. Never raises on what a person may say: an impossible job is answered with its reason.

    The items of a numbered list of questions are turns of their own.
    """
    several = several_questions(text)
    if several is None or not several.numbered:
        return _answered(session, text)
    described, reply = _answered(session, several.first)
    if not described.steps:
        return _answered(session, text)  # of concepts, not of a run
    session, replies = described, [reply]
    for item in several.further:
        session, reply = _answered(session, item)
        replies.append(reply)
    changed = {name: value for reply in replies for name, value in reply.changed.items()}
    answer = "\n\n".join(f"{number}) {reply.answer}" for number, reply in enumerate(replies, 1))
    return session, replace(replies[-1], answer=answer, changed=changed)


def _answered(session: Session, text: str) -> tuple[Session, Reply]:
    context = context_of(session)
    session = replace(session, language=language_of(session, text), refused=())
    try:
        whole = not session.steps or is_pasted(text)
        session, reply = _taken(session, text, context) if whole else in_order(session, text, context, _taken)
    except JobError as error:
        session = session.refusing(error.where)
        answer = word("chat.refused", session.language, problem=problem_of(error))
        reply = Reply(answer, {}, session.job)
    session, reply = _once(session, reply)
    return replace(session, asked=wanted(session.job) if session.steps else ()), reply


def _once(session: Session, reply: Reply) -> tuple[Session, Reply]:
    """The reply without what was said before beside the figures; where nothing changes, without remarks alone."""
    first, *rest = reply.answer.split("\n")
    if "```" in rest:
        return session, reply
    beside = [line for line in rest if not line.startswith("- ")]
    kept = "" if reply.changed else "GiB"
    said = [line for line in rest if line not in session.heard or (kept and kept in line)]
    return replace(session, heard=(*session.heard, *beside)[-_HEARD:]), replace(reply, answer="\n".join([first, *said]))


_HEARD: Final = 60
"""Sentences that are kept so that none is said twice."""


def _taken(session: Session, text: str, context: Context) -> tuple[Session, Reply]:
    """:raises JobError: for what no run can have."""
    if not session.steps or is_pasted(text):
        return _describe(session, text, context)
    text = without_echo(multiplied(text))
    session = session.proposing({}) if says(text, "without_it") else session
    if (keys := answers.of_keys(text, session)) is not None:
        return session, keys
    session, counted = usual_requests(session, text)
    if counted is not None:
        return session, counted
    context = replace(context, job=session.job)
    turn = meant(session, text, context)
    if turn.kind == "change" and says(text, "is_needed"):
        turn = replace(turn, kind="ask")
    holds = held_fields(text) or (tuple(turn.changes) if holds_it(text) else ()) or turn.held
    fresh = [name for name in holds if name not in session.held and name not in _SAME]
    session = replace(session, held=(session.held - turn.changes.keys()) | set(holds))
    evidence = read_text(text)
    if not session.job.has_model and not {"model", "params_b"}.isdisjoint(turn.changes):
        return _describe(session, text, context)  # the first that is said of the run, however it is put
    if tells_of_failure(evidence) and not asks_of_failure(text, evidence):
        return _describe(session, text, context)
    if (measured := held_against(session, text, turn.changes)) is not None:
        return session, measured
    seen = shown_bytes(evidence)
    if seen is not None and not turn.changes and not asks(text):
        return session, observed(session, text, seen)
    if turn.refused is not None:
        raise turn.refused
    if (by_figures := by_own_figures(session, turn, text)) is not None:
        return by_figures
    if asks_plainly(text):
        turn = Turn("ask", topic="breakdown")
    unread = turn.kind in ("off-topic", "ask") and not turn.changes and not turn.topic
    if unread and (changes := edited(session, text)):
        turn = Turn("change", MappingProxyType(changes))
    if holds and not turn.changes and turn.kind in ("ask", "off-topic", "talk"):
        turn = Turn("ask", topic="held")
    earlier = session
    session, reply = _HANDLERS[turn.kind](session, turn, text)
    reply = _naming_the_rest(reply, turn, text, earlier, context)
    fresh = [n for n in fresh if n != ("seq_len" if session.job.objective == "inference" else _CONTEXT)]
    if fresh:
        said = word("chat.held", session.language, names=fresh)
        reply = replace(reply, answer=joined([said, *reply.answer.split("\n")]))
    view = topic_of(text)
    beside_it = ("config", "diff", "setting", *(("pick",) if turn.kind == "change" else ()))
    if turn.changes and turn.kind in ("change", "ask") and view in beside_it:
        show = TOPICS["config" if view == "setting" else view]
        shown = show(session, price_of(session.job, session.language)[0], text)
        reply = replace(reply, answer="\n".join([*reply.answer.split("\n")[:_BESIDE], shown.answer]))
    session = replace(session, about=about(text, turn))
    if word("chat.as-proposed", session.language) in reply.answer:
        return session, replace(reply, answer="\n".join(reply.answer.split("\n")[:2]))
    return session, _with_topics(reply, turn, text, session)


def _with_topics(reply: Reply, turn: Turn, text: str, session: Session) -> Reply:
    """The reply to a question with the topics that it is about; to one of how something works these alone."""
    own = reply.answer.split("\n")
    why = turn.kind == "ask" and says(text, "why") and not asks_plainly(text)
    of_part, sized = answers.names_part(text), asks_for_amount(text) and not why
    if explains(turn, text):
        if not (why and of_part) and (found := explained_topics(text, session.job)):
            return replace(reply, answer=joined([*answers.of_topics(found, session.language), *own[:of_part]]))
        if not of_part and (near := nearest_topic(text)) is not None:
            return replace(reply, answer=render(near, session.language))
    if not why and (turn.kind not in ("ask", "off-topic") or turn.changes or turn.topic or sized):
        return reply
    concept = concept_asked(text, session.job)
    found = concept or beside(asked_topics(text, session.job))
    own = [] if turn.kind == "off-topic" and found else own
    topics = answers.of_topics(found, session.language)
    moved = _moved(session, text) if why and not turn.changes else []
    first = concept and not of_part
    return replace(reply, answer=joined([*topics, *moved, *own] if first else [*moved, *own, *topics]))


def _naming_the_rest(reply: Reply, turn: Turn, text: str, session: Session, context: Context) -> Reply:
    """The reply with what the turn says and nobody read: a number beside a change, a setting's name in any turn."""
    if turn.kind not in ("change", "ask", "off-topic"):
        return reply
    known, unknown = unread_names(text, context)
    numbers = unread_numbers(text, turn.changes, context) if turn.changes else ()
    said = [word("chat.no-effect", session.language, names=list(known))] if known else []
    if still_fails(text):
        priced, _ = price_of(reply.job, session.language)
        if priced is not None and priced.estimate.fits is not False:
            said.append(word("chat.contradicts", session.language))
    if not turn.changes and any(name.lstrip("-") in session.described for name in (*known, *unknown)):
        said = [word("chat.as-proposed", session.language)]
    elif unknown or numbers:
        quoted = [f"“{one}”" for one in (*numbers, *unknown)]
        said.append(word("chat.unread", session.language, parts=quoted))
    if not said:
        return reply
    first, *rest = reply.answer.split("\n")
    return replace(reply, answer=joined([first, *said, *rest] if turn.changes else [*said, first, *rest]))


def _moved(session: Session, text: str) -> list[str]:
    """What the last change moved and what it left, where it is asked why it did."""
    if len(session.steps) < 2 or not says(text, "of_change"):
        return []
    before, after = session.steps[-2:]
    (old, _), (new, _) = (price_of(step.job, session.language) for step in (before, after))
    if old is None or new is None:
        return []
    changes = parts.changed_line(after.changed, session.language)
    return [changes, moved_terms(old.estimate, new.estimate, session.language)]


def _not_understood(turn: Turn, text: str) -> bool:
    """Neither a change nor a question; a question that names no change is answered from the figures."""
    known = turn.changes or turn.topic or turn.invented or asks(text) or says(text, "ask")
    return turn.kind == "off-topic" or (turn.kind == "ask" and not known)


def _describe(session: Session, text: str, context: Context) -> tuple[Session, Reply]:
    """A first turn, or later material or a failure that is told of: read it, diagnose it, merge what it states."""
    from oomdoc.diagnosis.engine import diagnose
    from oomdoc.report.report import Report

    turn = understand(own_words(text), session.job, context) if len(text) <= LONGEST_TURN else None
    evidence, fields = read_description(text, session.job, first=not session.steps)
    asks = evidence.outcome is not None and evidence.outcome.kind == "question"
    if turn is not None and not fields and not evidence.failures:
        if asks and (found := found_topics(evidence, session.job)):
            return session, Reply(joined(answers.of_topics(found, session.language)), {}, session.job)
        if turn.kind in ("off-topic", "talk"):
            return _talk(session, turn, text)
        if session.steps and not turn.changes:
            return _HANDLERS[turn.kind](session, turn, text)
    diagnosis = diagnose(evidence)
    job = with_world(session.job.with_fields(fields) if session.steps else _stated(diagnosis))
    asked = asked_of(evidence, failed=bool(evidence.failures))
    if job.objective is None and asked.serves and not asked.trains:
        job = job.with_fields({"objective": "inference"})
    planned = bool(diagnosis.job.planned) or (not diagnosis.careful and careful_job(evidence, job))
    seen = {"failed": (diagnosis.verdict == "device-oom" and bool(evidence.failures)) or None}
    job = job.with_fields({"planned": planned or None, **seen})  # what is asked of a run that was told of is a plan
    report = Report(diagnosis, session.language)
    changed = difference(session.job, job)
    reply = answers.described(report, job, changed, session.language)
    return session.then(job, changed).describing(text, reply.answer, configures=bool(evidence.documents)), reply


def _stated(diagnosis: Diagnosis) -> Job:
    """The job without what was chosen for a question: that is chosen anew for the next one. What the words imply stays,
    and the number of cards that was worked out. A server is spread over its cards, where none are compared.
    """
    job = diagnosis.job
    kept = {
        *(("objective",) if job.has_model else ()),  # of machines alone nothing says what they are for
        *(("gpus", "tp", "sharding") if counted(job) and not diagnosis.sides else ()),
    }
    kept |= {
        n for n, assumption in job.assumed.items() if assumption.why in (BASE, IMPLIED) or n.startswith("rollout.")
    }
    job = job.with_fields({n: job.get(n) if n in kept else None for n in job.assumed}) if job.assumed else job
    spread = following({"gpus": job.gpus}, job) if job.gpus and not diagnosis.sides else {}
    return job.with_fields({"tp": spread["tp"]}) if "tp" in spread and not diagnosis.evidence.documents else job


def _change(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    check_offered(turn.changes, session.job)
    before, _ = price_of(session.job, session.language)
    if before is None and session.fresh and any(f.requested_bytes for f in read_text(session.material).failures):
        again = _describe(session, f"{session.material}\n\n{text}", context_of(session))
        old, new = (_PERCENT.sub("", told).partition("\n")[0] for told in (session.described, again[1].answer))
        if old != new:
            return again  # with what was asked for, another cause is likelier
    job = with_world(session.job.with_fields(turn.changes))
    price_of(job, session.language, strict=True)
    changed = difference(session.job, job)
    earlier = session.job
    session = session.then(job, changed) if changed else session.proposing({})
    notes = answers.adjusted(changed, earlier, text, session.language)
    return session, answers.changed(before, job, changed, text, session.language, notes=notes, held=session.held)


def _undo(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    if len(session.steps) < 2:
        return session, Reply(word("chat.nothing-to-undo", session.language), {}, session.job)
    target = target_of(session, turn.undo)
    target = with_world(target.with_fields(turn.changes)) if turn.changes else target
    before, _ = price_of(session.job, session.language)
    changed = difference(session.job, target)
    session = session.then(target, changed) if changed else session
    return session, answers.changed(before, target, changed, text, session.language, undone=True, held=session.held)


def _compare(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    jobs = [step.job for step in session.tried]
    if turn.sides:
        session = replace(session, offered=turn.sides)
    if session.offered and not turn.changes:
        jobs = [with_world(session.job.with_fields(fields)) for fields in session.offered]
    if turn.changes:
        jobs.append(with_world(session.job.with_fields(turn.changes)))
    return session, side_by_side(jobs, session, text)


def _ask(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    before, _ = price_of(session.job, session.language)
    if turn.invented:
        return session, answers.invented(before, session.job, session.language)
    if turn.changes and (says(text, "why_not") or not says(text, "why")):
        check_offered(turn.changes, session.job)
        job = with_world(session.job.with_fields(turn.changes))
        price_of(job, session.language, strict=True)
        if difference(session.job, job):
            step = Step(job, MappingProxyType(difference(session.job, job)))
            about = job.with_fields({"gpu": None, "capacity_gib": None}) if says(text, "which_card") else job
            reply = answers.would(before, session.job, about, text, session.language, session.held)
            if before is not None and says(text, "is_needed"):
                reply = answers.unless_needless(reply, before.estimate, session.language)
            return session.proposing(turn.changes, step), reply
    if turn.topic in TOPICS:
        return session, TOPICS[turn.topic](session, before, text)
    if only_asks(text) and session.fresh and read_text(session.material).failures:
        return session, Reply("\n".join(session.described.split("\n")[:_BESIDE]), {}, session.job)
    job = session.job.with_fields({"gpu": None, "capacity_gib": None}) if says(text, "which_card") else session.job
    sides = asked_in(text).alternatives
    if job.objective == "inference" and any("gpu" in side.fields or "gpus" in side.fields for side in sides):
        job = job.with_fields({"tp": None, "world": None})  # each is spread over its own cards
    named = not turn.changes and turn.topic != "held"
    reply = answers.explained(job, text, session.language, named=named, held=session.held)
    if sides:
        jobs = [with_world(session.job.with_fields(side.fields)) for side in sides]
        steps = [Step(one, difference(session.job, one)) for one in jobs]
        session = replace(session.trying(*steps), offered=tuple(dict(side.fields) for side in sides))
    reply = replace(reply, answer=joined([answers.quoted(session, text), reply.answer]))
    known = still_fails(text) or answers.names_part(text) or bool(sides) or says(text, "why") or asks_for_amount(text)
    lost = _not_understood(turn, text) and _TO_CHANGE.search(text) and not known and may_decide(text)
    return session, answers.not_understood(reply, session.language) if lost else reply


def _accept_plan(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    """Oomdoc's own proposal is taken."""
    before, _ = price_of(session.job, session.language)
    found = parts.plans_of(before, session.held) if before else ()
    plans = [plan for plan in found if plan.priced]
    if not plans:
        return session, answers.explained(session.job, text, session.language)
    changes: dict[str, Any] = {}
    for change in plans[0].changes:
        changes.update(change.fields)
    return _change(session, Turn("change", MappingProxyType(changes)), text)


def _talk(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    """Small talk, and what is none of oomdoc's business."""
    language = session.language
    if turn.topic == "dropped":
        session = session.proposing({})
    if session.steps and turn.kind == "off-topic" and says(text, "refers"):
        reply = answers.explained(session.job, text, language, named=False, held=session.held)
        known = answers.names_part(text) or still_fails(text)
        return session, reply if known else answers.not_understood(reply, language)
    priced, _ = price_of(session.job, language) if session.steps else (None, "")
    said = [word(f"chat.{turn.topic}" if turn.kind == "talk" else "chat.off-topic", language)]
    if turn.topic == "greeting" and not session.steps:
        said.append(word("chat.begin", language))
    return session, Reply(joined(said), {}, session.job, priced.estimate.process_bytes if priced is not None else None)


_HANDLERS: Final[Mapping[str, Callable[[Session, Turn, str], tuple[Session, Reply]]]] = MappingProxyType(
    {
        "change": _change,
        "ask": _ask,
        "compare": _compare,
        "undo": _undo,
        "accept-plan": _accept_plan,
        "talk": _talk,
        "off-topic": _talk,
    }
)
