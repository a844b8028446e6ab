"""One turn of a conversation: (session, text) → (session, reply). Pure but for the diagnosis it may call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from oomdoc.chat import answers, parts
from oomdoc.chat.context import Context
from oomdoc.chat.describing import is_pasted, own_words, read_description, tells_of_failure
from oomdoc.chat.explicit import SENTENCE_WORDS
from oomdoc.chat.grammar import LONGEST_TURN, Turn, understand
from oomdoc.chat.history import context_of, wanted
from oomdoc.chat.observed import observed, shown_bytes
from oomdoc.chat.parts import joined
from oomdoc.chat.prices import price_of, with_world
from oomdoc.chat.questions import (
    about,
    asks,
    asks_of_change,
    asks_plainly,
    asks_why,
    refers,
    still_fails,
    suggests,
    topic_of,
)
from oomdoc.chat.reading import held_fields, holds_it
from oomdoc.chat.session import Reply, Session, difference
from oomdoc.chat.undoing import takes_back, target_of
from oomdoc.chat.unread import unread_names, unread_numbers
from oomdoc.chat.views import TOPICS
from oomdoc.chat.wording import patterns
from oomdoc.chat.written import edited
from oomdoc.diagnosis.explaining import asked_topics, beside, concept_asked, found_topics
from oomdoc.diagnosis.forms import BASE
from oomdoc.diagnosis.planned import LOCAL, careful_job, counted
from oomdoc.diagnosis.result import Diagnosis
from oomdoc.evidence import Source
from oomdoc.intake import read
from oomdoc.planner import compare
from oomdoc.report.words import word
from oomdoc.stated import following
from oomkb.errors import JobError, note
from oomkb.frameworks import ENGINES, supports
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.pricing import Priced


def small_talk(session: Session, priced: Priced | None, topic: str) -> Reply:
    """Small talk, and what is none of oomdoc's business."""
    language = session.language
    said = [word(f"chat.{topic}" if topic else "chat.off-topic", language)]
    if topic == "greeting" and not session.steps:
        said.append(word("chat.begin", language))
    peak = priced.estimate.process_bytes if priced is not None else None
    return Reply(joined(said), {}, session.job, peak)


_MAX_ROWS: Final = 8
_BESIDE: Final = 3
"""Sentences of a change that stand before the configuration that is asked for with it."""
_CONTEXT: Final = "serving.max_model_len"
_SAME: Final = frozenset({"world", "gpu", "nodes", "serving.kv_dtype"})
"""Fields that are held along with others, which are named."""


def compared(setups: Sequence[tuple[Job, Mapping[str, Any]]], job: Job, language: str) -> Reply:
    """A row a set-up, the first and the latest ones, and the fastest that fits."""
    named = _distinct(setups, language)
    now, *found = compare([job, *(setup for _, setup in named)])
    if now.priced is None:
        return Reply(word("chat.cannot-price", language, problem=now.problem), {}, job)
    rows: list[tuple[str, float, Estimate]] = [
        (name, one.relative_speed, one.priced.estimate)
        for (name, _), one in zip(named, found, strict=True)
        if one.priced is not None and one.relative_speed is not None
    ]
    lines = [word("chat.speed-head", language)]
    lines += [
        "- "
        + word(
            "chat.speed-row",
            language,
            name=n,
            speed=f"{s:.2f}",
            peak_bytes=e.process_bytes,
            fits=parts.fit_word(e, language),
        )
        for n, s, e in rows
    ]
    fitting = [row for row in rows if row[2].fits is not False]
    best = max(fitting, key=lambda row: row[1], default=None)
    lines.append(word("chat.speed-best", language, name=best[0]) if best else word("chat.speed-none", language))
    return Reply("\n".join(lines), {}, job, now.priced.estimate.process_bytes)


def _distinct(setups: Sequence[tuple[Job, Mapping[str, Any]]], language: str) -> list[tuple[str, Job]]:
    seen: list[Job] = []
    rows: list[tuple[str, Job]] = []
    for index, (setup, changes) in enumerate(setups):
        if setup not in seen:
            seen.append(setup)
            name = parts.shown_changes(changes, language) if index else word("chat.original", language)
            rows.append((name, setup))
    return rows if len(rows) <= _MAX_ROWS else [rows[0], *rows[1 - _MAX_ROWS :]]


_CHINESE: Final = re.compile(r"[一-鿿]")
_TO_CHANGE: Final = patterns("conversation")["to_change"]
_LATIN_WORD: Final = re.compile(r"[A-Za-z]{2,}")


def respond(session: Session, text: str) -> tuple[Session, Reply]:
    """Answer one turn. Never raises on what a person may say: an impossible job is answered with its reason."""
    context = context_of(session)
    session = replace(session, language=language_of(session, text), refused=())
    try:
        session, reply = _taken(session, text, context)
    except JobError as error:
        session = session.refusing(error.where)
        reply = Reply(answers.refused(error, session.language), {}, session.job)
    return replace(session, asked=wanted(session.job) if session.steps else ()), reply


def _taken(session: Session, text: str, context: Context) -> tuple[Session, Reply]:
    """:raises JobError: for what no run can have."""
    if not session.steps or is_pasted(text):
        return _describe(session, text, context)
    turn = _on_proposal(session, text, context) or understand(text, session.job, context)
    holds = held_fields(text) or (tuple(turn.changes) if holds_it(text) else ())
    fresh = [name for name in holds if name not in session.held and name not in _SAME]
    session = replace(session, held=(session.held - turn.changes.keys()) | set(holds))
    evidence = read([Source("chat", text)])
    if tells_of_failure(evidence):
        return _describe(session, text, context)
    seen = shown_bytes(evidence)
    if seen is not None and not turn.changes and not asks(text):
        return session, observed(session, text, seen)
    if turn.refused is not None:
        raise turn.refused
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
        shown = TOPICS["config" if view == "setting" else view](
            session, price_of(session.job, session.language)[0], text
        )
        reply = replace(reply, answer="\n".join([*reply.answer.split("\n")[:_BESIDE], shown.answer]))
    session = replace(session, about=about(text, turn))
    why = turn.kind == "ask" and asks_why(text) and not asks_plainly(text)
    if why or (turn.kind in ("ask", "off-topic") and not turn.changes and not turn.topic):
        found = concept_asked(text, session.job) or beside(asked_topics(text, session.job))
        own = "" if turn.kind == "off-topic" and found else reply.answer
        topics = answers.of_topics(found, session.language) or (
            _moved(session, text) if why and not turn.changes else []
        )
        first = (why or concept_asked(text, session.job)) and not answers.names_part(text)
        reply = replace(reply, answer=joined([*topics, own] if first else [own, *topics]))
    return session, reply


def _on_proposal(session: Session, text: str, context: Context) -> Turn | None:
    """The turn where it goes on from what was only asked about: "and with 4 cards?" after "would zero3 fit?"."""
    if not session.proposed or takes_back(text):
        return None
    base = with_world(session.job.with_fields(session.proposed))
    turn = understand(text, base, replace(context, job=base, proposed={}))
    if turn.kind not in ("change", "ask") or not turn.changes:
        return None
    return replace(turn, changes=MappingProxyType({**session.proposed, **turn.changes}))


def _naming_the_rest(reply: Reply, turn: Turn, text: str, session: Session, context: Context) -> Reply:
    """The reply with what the turn says and nobody read: a number beside a change, a setting's name in any turn."""
    if turn.kind not in ("change", "ask", "off-topic"):
        return reply
    known, unknown = unread_names(text, context)
    numbers = unread_numbers(text, turn.changes, context) if turn.changes else ()
    said = [word("chat.no-effect", session.language, names=list(known))] if known else []
    if still_fails(text):
        priced, _ = price_of(reply.job, session.language)
        if priced is not None and priced.estimate.fits:
            said.append(word("chat.contradicts", session.language))
    if unknown or numbers:
        quoted = [f"“{one}”" for one in (*numbers, *unknown)]
        said.append(word("chat.unread", session.language, parts=quoted))
    if not said:
        return reply
    first, *rest = reply.answer.split("\n")
    return replace(reply, answer=joined([first, *said, *rest] if turn.changes else [*said, first, *rest]))


def _moved(session: Session, text: str) -> list[str]:
    """What the last change moved, where it is asked why it did and no topic answers; else what holds the memory."""
    if len(session.steps) < 2 or not asks_of_change(text):
        priced, _ = price_of(session.job, session.language)
        return parts.owner(priced.estimate, session.language) if priced is not None else []
    before, after = session.steps[-2:]
    (old, _), (new, _) = (price_of(step.job, session.language) for step in (before, after))
    if old is None or new is None:
        return []
    changes = parts.changed_line(after.changed, session.language)
    return [changes, parts.versus(old.estimate, new.estimate, session.language)]


def _not_understood(turn: Turn, text: str) -> bool:
    """Neither a change nor a question; a question that names no change is answered from the figures."""
    asked = text.rstrip().endswith(("?", "？", "吗", "呢"))
    known = turn.changes or turn.topic or turn.invented or asked
    return turn.kind == "off-topic" or (turn.kind == "ask" and not known)


def language_of(session: Session, text: str) -> str:
    """The language that a turn is answered in: the conversation's, until the person clearly writes in the other.

    Keys, flags, names and pasted material are written in Latin letters by everybody.
    """
    if _CHINESE.search(text):
        return "zh"
    if not session.steps:
        return "en"
    if session.language == "en" or is_pasted(text):
        return session.language
    return "en" if sum(word.lower() in SENTENCE_WORDS for word in _LATIN_WORD.findall(text)) >= 2 else "zh"


def _describe(session: Session, text: str, context: Context) -> tuple[Session, Reply]:
    """A first turn, or later material or a failure that is told of: read it, diagnose it, merge what it states."""
    from oomdoc.diagnosis.engine import diagnose
    from oomdoc.report.report import Report

    turn = understand(own_words(text), session.job, context) if len(text) <= LONGEST_TURN else None
    evidence, fields = read_description(text, turn, session.job, first=not session.steps)
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
    planned = bool(diagnosis.job.planned) or (not diagnosis.careful and careful_job(evidence, job))
    job = job.with_fields({"planned": planned or None})  # what is asked of a run that was told of is a plan
    report = Report(diagnosis, session.language)
    changed = difference(session.job, job)
    reply = answers.described(report, job, changed, session.language)
    return session.then(job, changed).describing(text, reply.answer, configures=bool(evidence.documents)), reply


def _stated(diagnosis: Diagnosis) -> Job:
    """The job without what was chosen for a question: that is chosen anew for the next one. What the words imply stays,
    and the number of cards that was worked out. A server is spread over its cards, where none are compared.
    """
    job = diagnosis.job
    kept = {"objective", *(("gpus", "tp", "sharding") if counted(job) and not diagnosis.sides else ())}
    kept |= {name for name, assumption in job.assumed.items() if assumption.why == BASE}
    job = job.with_fields({n: job.get(n) if n in kept else None for n in job.assumed}) if job.assumed else job
    spread = following({"gpus": job.gpus}, job) if job.gpus and not diagnosis.sides else {}
    return job.with_fields({"tp": spread["tp"]}) if "tp" in spread and not diagnosis.evidence.documents else job


def _check_offered(changes: Mapping[str, Any], job: Job) -> None:
    """:raises JobError: for a way to share the states, or a format of weights, that the framework does not have."""
    framework = changes.get("framework", job.framework)
    sharding, quant = changes.get("sharding"), changes.get("quant")
    if framework in LOCAL and quant in _NOT_LOCAL:
        why = note("job.only-gguf", framework=framework, value=quant)
        raise JobError(f"{framework} runs GGUF files, not {quant}", where="quant", note=why)
    ways = [way for way in _WAYS if supports(framework, "sharding", way, job.versions)]
    near = sharding in ways or (sharding in ("fsdp", "fsdp2") and bool({"fsdp", "fsdp2"} & set(ways)))
    if framework and framework not in ENGINES and sharding in _WAYS and ways and not near:
        values = {"framework": framework, "value": sharding, "ways": ", ".join(ways)}
        raise JobError(f"{framework} has no {sharding}", where="sharding", note=note("job.no-sharding", **values))


_WAYS: Final = ("zero1", "zero2", "zero3", "fsdp", "fsdp2", "distributed-optimizer")
_NOT_LOCAL: Final = frozenset({"awq-int4", "gptq-int4", "fp8"})


def _change(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    _check_offered(turn.changes, session.job)
    before, _ = price_of(session.job, session.language)
    job = with_world(session.job.with_fields(turn.changes))
    price_of(job, session.language, strict=True)
    changed = difference(session.job, job)
    earlier = session.job
    session = session.then(job, changed) if changed else session.proposing({})
    notes = answers.adjusted(changed, earlier, text, session.language)
    return session, answers.changed(before, job, changed, text, session.language, notes=notes, held=session.held)


def _undo(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    if len(session.steps) < 2:
        return session, Reply(answers.nothing_to_undo(session.language), {}, session.job)
    target = target_of(session, turn.undo)
    target = with_world(target.with_fields(turn.changes)) if turn.changes else target
    before, _ = price_of(session.job, session.language)
    changed = difference(session.job, target)
    session = session.then(target, changed) if changed else session
    return session, answers.changed(before, target, changed, text, session.language, undone=True, held=session.held)


def _compare(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    setups = [(step.job, step.changed) for step in session.steps]
    if turn.changes:
        other = with_world(session.job.with_fields(turn.changes))
        setups.append((other, difference(session.job, other)))
    return session, compared(setups, session.job, session.language)


def _ask(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    before, _ = price_of(session.job, session.language)
    if turn.invented:
        return session, answers.invented(before, session.job, session.language)
    if turn.changes and (suggests(text) or not asks_why(text)):
        _check_offered(turn.changes, session.job)
        job = with_world(session.job.with_fields(turn.changes))
        price_of(job, session.language, strict=True)
        if difference(session.job, job):
            return session.proposing(turn.changes), answers.would(
                before, session.job, job, text, session.language, session.held
            )
    if turn.topic in TOPICS:
        return session, TOPICS[turn.topic](session, before, text)
    reply = answers.explained(
        session.job, text, session.language, named=not turn.changes and turn.topic != "held", held=session.held
    )
    reply = replace(reply, answer=joined([answers.quoted(session, text), reply.answer]))
    lost = _not_understood(turn, text) and _TO_CHANGE.search(text) and not answers.names_part(text)
    return session, answers.not_understood(reply, session.language) if lost else reply


def _accept_plan(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    """Oomdoc's own proposal is taken."""
    before, _ = price_of(session.job, session.language)
    found = parts.plans_of(before, session.held) if before else ()
    plans = [plan for plan in found if plan.priced and plan.name != "spilled"]
    if not plans:
        return session, answers.explained(session.job, text, session.language)
    changes: dict[str, Any] = {}
    for change in plans[0].changes:
        changes.update(change.fields)
    return _change(session, Turn("change", MappingProxyType(changes)), text)


def _talk(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    if turn.topic == "dropped":
        session = session.proposing({})
    if session.steps and turn.kind == "off-topic" and refers(text):
        reply = answers.explained(session.job, text, session.language, named=False, held=session.held)
        return session, reply if answers.names_part(text) else answers.not_understood(reply, session.language)
    priced, _ = price_of(session.job, session.language) if session.steps else (None, "")
    return session, small_talk(session, priced, turn.topic if turn.kind == "talk" else "")


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
