"""One turn of a conversation: (session, text) → (session, reply). Pure but for the diagnosis it may call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from oomdoc.chat import answers
from oomdoc.chat.grammar import LONGEST_TURN, Turn, understand
from oomdoc.chat.session import DERIVED, Reply, Session, difference
from oomdoc.evidence import Evidence, Source
from oomkb.errors import CatalogError, JobError
from oomkb.memory.job import Job
from oomkb.pricing import Priced, price

__all__ = ["Parse", "respond"]

Parse = Callable[[str, Job], Mapping[str, Any]]

_CHINESE: Final = re.compile(r"[一-鿿]")
_LATIN_WORD: Final = re.compile(r"[A-Za-z]{2,}")
_PASTED: Final = re.compile(
    r"(?m)^\s{0,8}[\w.-]{2,60}\s?[:=]\s?\S|Traceback|[Ee]rror:|(?:^|\s)--[\w-]{3,40}|out of memory|^\s{0,8}[{}]\s*$"
)


def respond(session: Session, text: str, parse: Parse | None = None) -> tuple[Session, Reply]:
    """Answer one turn. Never raises on what a person may say: an impossible job is answered with its reason.

    :param parse: asked for the changes in a turn that the grammar did not understand.
    """
    session = replace(session, language=_language(session, text))
    if not session.steps or _is_pasted(text):
        return _describe(session, text)
    turn = understand(text, session.job)
    if parse is not None and _not_understood(turn, text):
        found = parse(text, session.job)
        turn = Turn("change", found) if found else turn
    handler = {"undo": _undo, "compare": _compare, "ask": _ask, "off-topic": _off_topic}.get(turn.kind, _change)
    return handler(session, turn, text)


def _not_understood(turn: Turn, text: str) -> bool:
    """Neither a change nor a question; a question that names no change is answered from the figures."""
    asked = text.rstrip().endswith(("?", "？", "吗", "呢"))
    return turn.kind == "off-topic" or (turn.kind == "ask" and not (turn.changes or turn.invented or asked))


def _language(session: Session, text: str) -> str:
    if _CHINESE.search(text):
        return "zh"
    if session.steps and len(_LATIN_WORD.findall(text)) < 3:
        return session.language
    return "en"


def _is_pasted(text: str) -> bool:
    stripped = text.strip()
    return len(stripped) > LONGEST_TURN or (stripped.count("\n") >= 1 and bool(_PASTED.search(stripped)))


def _describe(session: Session, text: str) -> tuple[Session, Reply]:
    """A first turn, or pasted material later: read it, diagnose it, merge what it states into the job."""
    from oomdoc.diagnosis.engine import diagnose
    from oomdoc.intake import read
    from oomdoc.report.report import Report

    evidence = read([Source("chat", text)])
    fields = _fields(evidence)
    if len(text) <= LONGEST_TURN:
        turn = understand(text, session.job)
        if turn.kind == "off-topic" and not fields and not evidence.failures:
            return _off_topic(session, turn, text)
        said = turn.changes if turn.kind == "change" or not session.steps else {}
        fields.update({k: v for k, v in said.items() if v is not None and not _known(k, fields)})
    try:
        job = _settled(session.job.with_fields(fields))
    except JobError as error:
        return session, Reply(answers.refused(error, session.language), {}, session.job)
    diagnosis = diagnose(evidence)
    report = Report(replace(diagnosis, job=job), session.language)
    changed = difference(session.job, job)
    priced, problem = _price(job)
    reply = answers.described(report, priced, problem, job, changed, session.language)
    return session.then(job, changed), reply


def _known(name: str, fields: Mapping[str, Any]) -> bool:
    """A field that intake has read is not read again from the phrase; so is one inside or around it."""
    head = name.partition(".")[0]
    return name in fields or head in fields or any(f.startswith(f"{name}.") for f in fields)


def _fields(evidence: Evidence) -> dict[str, Any]:
    from oomdoc.intake.configs import to_job

    job = to_job(evidence.facts, evidence.framework, evidence.versions)
    document = {k: v for k, v in job.document().items() if not k.endswith("_text")}
    known = set(Job.__dataclass_fields__) - {"extra", "assumed"}
    flat: dict[str, Any] = {}
    for name, value in document.items():
        if name not in known:
            continue
        if name in ("lora", "rollout", "serving") and isinstance(value, Mapping):
            flat.update({f"{name}.{k}": v for k, v in value.items()})
        else:
            flat[name] = value
    return flat


def _settled(job: Job) -> Job:
    """The world follows from machines and GPUs."""
    if job.gpus and job.world != job.gpus * (job.nodes or 1):
        return job.with_fields({"world": job.gpus * (job.nodes or 1), "dp": None})
    return job


def _change(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    before, problem = _price(session.job)
    try:
        job = _settled(session.job.with_fields(turn.changes))
        after, problem = _price(job, strict=True)
    except JobError as error:
        return session, Reply(answers.refused(error, session.language), {}, session.job)
    changed = difference(session.job, job)
    session = session.then(job, changed) if changed else session
    return session, answers.changed(before, after, problem, job, changed, session.language)


def _undo(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    if len(session.steps) < 2:
        return session, Reply(answers.nothing_to_undo(session.language), {}, session.job)
    if turn.undo_all:
        target = session.steps[0].job
    elif turn.undo_fields:
        target = _without(session, turn.undo_fields)
    else:
        target = session.steps[max(0, len(session.steps) - 1 - turn.undo_steps)].job
    try:
        target = _settled(target.with_fields(turn.changes)) if turn.changes else target
    except JobError as error:
        return session, Reply(answers.refused(error, session.language), {}, session.job)
    before, _ = _price(session.job)
    after, problem = _price(target)
    changed = difference(session.job, target)
    session = session.then(target, changed) if changed else session
    return session, answers.changed(before, after, problem, target, changed, session.language, undone=True)


def _without(session: Session, names: tuple[str, ...]) -> Job:
    """The job with the latest change of the named fields taken back; without such a change, one step back."""
    for index in range(len(session.steps) - 1, 0, -1):
        touched = [f for f in session.steps[index].changed if any(f.partition(".")[0] == n for n in names)]
        if touched:
            old = session.steps[index - 1].job
            # Degrees derived from the number of GPUs go back with it.
            touched += [f for f in DERIVED if "gpus" in touched or "nodes" in touched]
            return session.job.with_fields({f: _plain(old.get(f)) for f in touched})
    return session.steps[-2].job


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _compare(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    setups = [(step.job, step.changed) for step in session.steps]
    return session, answers.compared(setups, session.job, session.language)


def _ask(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    before, problem = _price(session.job)
    if turn.invented:
        return session, answers.invented(before, session.job, session.language)
    if turn.changes:
        try:
            job = _settled(session.job.with_fields(turn.changes))
            after, problem = _price(job, strict=True)
        except JobError as error:
            return session, Reply(answers.refused(error, session.language), {}, session.job)
        if difference(session.job, job):
            return session, answers.would(before, after, problem, session.job, job, session.language)
    return session, answers.explained(before, problem, session.job, text, session.language)


def _off_topic(session: Session, turn: Turn, text: str) -> tuple[Session, Reply]:
    return session, Reply(answers.off_topic(session.language), {}, session.job)


def _price(job: Job, *, strict: bool = False) -> tuple[Priced | None, str]:
    """The price, or why there is none. ``strict``: an impossible job is an error of this turn."""
    try:
        return price(job), ""
    except JobError as error:
        if strict and error.where not in ("model", "params_b"):
            raise
        return None, str(error)
    except CatalogError as error:
        return None, str(error)
