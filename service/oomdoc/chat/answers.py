"""The chat's answers in words; every figure in them was computed by the memory model or read."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from oomdoc.chat import parts, questions
from oomdoc.chat.history import wanted
from oomdoc.chat.parts import joined
from oomdoc.chat.phrases import fields_named
from oomdoc.chat.session import Reply, Session, difference
from oomdoc.chat.sums import held_by, reasons
from oomdoc.chat.wording import patterns
from oomdoc.diagnosis.explaining import sentences_of
from oomdoc.diagnosis.forms import needed_of
from oomdoc.diagnosis.named_keys import keys_asked
from oomdoc.diagnosis.result import FoundTopic
from oomdoc.diagnosis.run_words import experts_held
from oomdoc.intake.asked import asked_in
from oomdoc.intake.named_fields import key_question
from oomdoc.report.estimates import without_cache
from oomdoc.report.words import render, word
from oomkb.errors import OomdocError
from oomkb.kept import compiled
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.pricing import Priced, price_planned

if TYPE_CHECKING:
    from oomdoc.report.report import Report

_OF_TOKEN: Final = patterns("sums")["of_token"]
_ACTIVE: Final = patterns("reading")["active"]
_TOPICS: Final = patterns("parts_asked")
_TERMS: Final = {
    "reference": ("reference",),
    "critic": ("critic",),
    "optimizer": ("optimizer", "master", "moment"),
    "logits": ("logit", "loss", "softmax"),
    "activations": ("activation", "checkpoint", "recompute"),
    "kv-cache": ("kv",),
    "gradients": ("gradient",),
    "weights": ("weight", "adapter"),
    "rollout": ("rollout",),
}
_DEGREE: Final = re.compile(r"(?i)\b[tpc]p\b|parallel|并行")
_COUNT: Final = re.compile(r"(?i)gpus?\b|\bcards?\b|\bnodes?\b|[张卡台]|节点")
_SURE: Final = 0.7
"""Probability of a cause below which a turn that states next to nothing is answered with questions."""
_FIGURE: Final = re.compile(r"(?<![\d.])\d{1,4}\.\d{1,2}(?![\d.])")
_SENTENCE: Final = re.compile(r"\n|(?<=\.)\s|(?<=。)")
_OF_PHASE: Final = re.compile(r"(?i)\bpeak\b|\b(?:for|back)ward\b|峰值|[前反]向")
_ALWAYS_NAMED: Final = frozenset({"gpu", "gpus", "model", "method", "objective", "nodes"})
"""Fields whose words stand in most questions."""


def described(report: Report, job: Job, changes: Mapping[str, Any], language: str) -> Reply:
    """The answer to a description or pasted material: what ``diagnose`` says of it, figures, questions.

    :param job: as it stands after it.
    """
    document, diagnosis = report.document(), report.diagnosis
    outcome, failures = diagnosis.evidence.outcome, diagnosis.evidence.failures
    failed = bool(failures) or (outcome is not None and outcome.fails)
    stands = parts.standing(diagnosis.job, language, plans=False)
    if _is_vague(report, stands.priced):
        said = [word("chat.tell-more", language)]
    elif stands.said and not diagnosis.outlook and not failed:
        said = [*parts.standing(job, language).said]  # nothing is asked, and nothing failed: how the run stands
    else:
        said = [render(message, language) for message in diagnosis.summary]
        agrees = stands.priced is None or stands.priced.estimate.fits is not True
        if diagnosis.verdict != "no-failure" and agrees and _same_run(report, stands.priced):
            said += [line for line in stands.said[:2] if not any(line in one for one in said)]
    questions_ = list(document["questions"])
    asked = parts.asks(job, language)
    known = {"model", "params_b"} if stands.priced is None else {*wanted(job), "log", "versions"}
    for question in [q for q in questions_ if q["fact"] not in known][: max(0, 2 - len(asked))]:
        if question.get("why"):
            asked.append(word("chat.question", language, fact=question["fact"], why=question["why"]))
    peak = diagnosis.estimate.process_bytes if diagnosis.estimate is not None else None
    return Reply(joined(said + asked), changes, job, peak, tuple(questions_), document)


_NEAR: Final = 0.15
"""How far two estimates of one run may be apart."""


def _same_run(report: Report, priced: Priced | None) -> bool:
    """Whether the run as it is taken to have failed is the one that a question about it would be answered for."""
    estimate = report.diagnosis.estimate
    if estimate is None or priced is None:
        return True
    return abs(estimate.process_bytes - priced.estimate.process_bytes) <= _NEAR * estimate.process_bytes


def _is_vague(report: Report, priced: Priced | None) -> bool:
    """Whether so little is stated that any cause would be a guess."""
    found = report.diagnosis
    sizes = any(f.requested_bytes or f.capacity_bytes for f in found.evidence.failures)
    best = max((c.probability for c in found.causes), default=0.0)
    return found.verdict != "no-failure" and priced is None and not sizes and best < _SURE


def changed(
    before: Priced | None,
    job: Job,
    changes: Mapping[str, Any],
    text: str,
    language: str,
    *,
    undone: bool = False,
    notes: Sequence[str] = (),
    held: Collection[str] = (),
) -> Reply:
    """What a change does."""
    stands = parts.standing(job, language, text, weighs=False, held=held)
    after = stands.priced
    verdict, *rest = stands.said or ("",)
    if not changes:
        said = [word("chat.unchanged", language), *notes, verdict, *rest]
        return Reply(joined([*said, *parts.asks(job, language)]), changes, job, _peak(after))
    told = [parts.changed_line(changes, language, undone=undone)]
    if before and after and "objective" not in changes:
        told.append(parts.versus(before.estimate, after.estimate, language))
    said = [verdict, parts.together(told, language), *notes, *parts.was_assumed(before, changes, language)]
    return Reply(joined([*said, *rest, *parts.asks(job, language)]), changes, job, _peak(after))


def _peak(priced: Priced | None) -> float | None:
    return priced.estimate.process_bytes if priced is not None else None


def adjusted(changes: Mapping[str, Any], before: Job, text: str, language: str) -> list[str]:
    """What had to follow from a change: more GPUs for more ranks, fewer ranks on fewer GPUs."""
    degrees = {n: changes[n] for n in ("tp", "pp", "cp") if n in changes}
    raised = (changes.get("world") or 0) > (before.world or before.gpus or 1)
    asked_for = (_COUNT if raised else _DEGREE).search(text)
    if not degrees or not changes.keys() & {"gpus", "world", "nodes"} or asked_for:
        return []
    values = {"degrees": parts.shown_changes(degrees, language), "world": changes.get("world", 1)}
    return [word("chat.gpus-raised" if raised else "chat.degrees-lowered", language, **values)]


def would(before: Priced | None, job: Job, other: Job, text: str, language: str, held: Collection[str] = ()) -> Reply:
    """What a change would do, without making it; the reply's job and peak are those that it is about."""
    stands = parts.standing(other, language, text, weighs=False, held=held)
    after, changes = stands.priced, difference(job, other)
    verdict, *rest = stands.said or ("",)
    told = [word("chat.would", language, changes=parts.shown_changes(changes, language))]
    if before and after and "objective" not in changes:
        told.append(parts.versus(before.estimate, after.estimate, language))
    said = [verdict, parts.together(told, language), *rest]
    said += [*parts.asks(other, language), word("chat.would-apply", language)]
    return Reply(joined(said), {}, other, _peak(after))


def explained(job: Job, text: str, language: str, *, named: bool = True, held: Collection[str] = ()) -> Reply:
    """A question about the job as it stands: the part asked about, and what a question for it is answered.

    :param named: whether the values of the fields that it names are wanted.
    """
    stands = parts.standing(job, language, text, held=held)
    priced = stands.priced
    if priced is None:
        return Reply(joined([*stands.said, *parts.asks(job, language)]), {}, job)
    why = questions.says(text, "why")
    explains = why or asked_in(text).counts_active
    parts_said = _reasons(priced, text, language) if explains else _topics(priced, text, language)
    said = [*([] if why else _phases(priced, text, language)), *parts_said]
    if stands.compared:
        return Reply(joined([*stands.said, *(parts_said if why else [])]), {}, job, priced.estimate.process_bytes)
    asks_for = asked_in(text).wanted
    of_length = asks_for == "length" and _CAN.search(text) is not None
    sized = asks_for == "requests" or of_length or questions.says(text, "largest")
    if named and not why and not sized:
        said += _named(priced, text, language, beside=bool(parts_said))
    return Reply(joined([*said, *stands.said, *parts.asks(job, language)]), {}, job, priced.estimate.process_bytes)


_CAN: Final = compiled(r"(?i)\bcan\b|能|可以")
"""Of a question for the longest that fits: the length that the run has is no answer to it."""


def _reasons(priced: Priced, text: str, language: str) -> list[str]:
    """Why it takes so much: of a mixture, where it is asked about what works of it, that all its experts are held."""
    experts = experts_held(priced.job) if _ACTIVE.search(text) else None
    named = terms_in(priced, text)
    if not named and priced.estimate.served is not None and _OF_TOKEN.search(text):
        named = ["kv cache"]
    return [render(experts, language)] if experts else list(reasons(named, priced, language))


def terms_in(priced: Priced, text: str) -> list[str]:
    """The terms of the fullest phase that the words name."""
    held = held_by(priced.estimate)
    named = [part for topic, pattern in _TOPICS.items() if pattern.search(text) for part in _TERMS[topic]]
    return [name for name in sorted(held, key=lambda n: -held[n]) if any(part in name for part in named)][:2]


def _topics(priced: Priced, text: str, language: str) -> list[str]:
    estimate = priced.estimate
    said = []
    for topic in (t for t, pattern in _TOPICS.items() if pattern.search(text)):
        sizes = {
            name: sum(s for t, s in phase.terms_bytes.items() if any(n in t for n in _TERMS[topic]))
            for name, phase in estimate.phases.items()
        }
        size_bytes, fullest = sizes[estimate.peak_phase], max(sizes, key=lambda p: sizes[p])
        name = word(f"topic.{topic}", language)
        if not size_bytes and sizes[fullest]:
            phase = word(f"phase.{fullest}", language)
            said.append(word("chat.topic-phase", language, name=name, size_bytes=sizes[fullest], phase=phase))
            continue
        if topic not in ("reference", "critic") or size_bytes > 0:
            key = "chat.topic-term" if size_bytes > 0 else "chat.topic-none"
            said.append(word(key, language, name=name, size_bytes=size_bytes, peak_bytes=estimate.process_bytes))
        if topic == "reference":
            said.append(word(f"chat.topic-reference-{_reference(priced.job)}", language))
        if topic == "critic":
            said.append(word(f"chat.topic-critic-{'full' if priced.job.objective == 'ppo' else 'none'}", language))
    return said


def _phases(priced: Priced, text: str, language: str) -> list[str]:
    """The totals of the phases that a question names."""
    names = {phase: word(f"phase.{phase}", language) for phase in priced.estimate.phases}
    return [
        word("chat.phase-total", language, phase=name, size_bytes=priced.estimate.phases[phase].total_bytes)
        for phase, name in names.items()
        if name in text.lower()
    ]


def quoted(session: Session, text: str) -> str:
    """The sentences of the answer to what was pasted that hold a figure which the question quotes."""
    figures = _FIGURE.findall(text)
    return joined(line for line in _SENTENCE.split(session.described) if any(figure in line for figure in figures))


def names_part(text: str) -> bool:
    """Whether a question is about a part of the memory."""
    return bool(_OF_PHASE.search(text)) or any(pattern.search(text) for pattern in _TOPICS.values())


def saved(steps: Sequence[tuple[Mapping[str, Any], Priced, Priced]], language: str) -> list[str]:
    """What each change brought, the largest saving first."""
    rows = [(changes, without_cache(b.estimate), without_cache(a.estimate)) for changes, b, a in steps]
    rows.sort(key=lambda row: row[2] - row[1])
    lines = []
    for changes, before, after in rows:
        sizes = {"before_bytes": before, "after_bytes": after, "delta_bytes": abs(after - before)}
        values = {"changes": parts.shown_changes(changes, language), "sign": "−" if after <= before else "+"}
        lines.append(f"- {word('chat.step', language, **values, **sizes)}")
    return lines


def _named(priced: Priced, text: str, language: str, *, beside: bool) -> list[str]:
    """The values of the fields that a question names, and the peak with twice as much of the first.

    :param beside: whether the part of the memory that is asked about has been said: then no sizes of settings are.
    """
    named = [n for n in fields_named(text) if n not in _ALWAYS_NAMED][:2]
    if beside:
        named = [n for n in named if not isinstance(priced.job.get(n), int | float | None)]
    said = []
    for name in named:
        value = priced.job.get(name)
        if value is None and name in ("seq_len", "serving.concurrency"):
            continue
        shown = word("chat.unset", language) if value is None else parts.shown_value(value)
        key = "chat.field-assumed" if name in priced.job.assumed else "chat.field-now"
        said.append(word(key, language, field=name, value=shown))
    present = priced.job.get(named[0]) if named else None
    if named and isinstance(present, int) and not isinstance(present, bool):
        try:
            double = 2 * present
            other = price_planned(priced.job.with_fields({named[0]: double}))
        except OomdocError:
            return said
        peak_bytes = other.estimate.process_bytes
        said.append(word("chat.field-double", language, field=named[0], value=double, peak_bytes=peak_bytes))
    return said


def largest(priced: Priced, language: str) -> list[str]:
    """The largest micro-batch and length that fit as the job stands."""
    from oomdoc.diagnosis.planning.planner import plan

    engine = priced.estimate.served
    if engine is not None and engine.largest_length:
        return [word("chat.largest-served", language, length=f"{engine.largest_length:,}")]
    if priced.estimate.capacity_bytes is None:
        return [word("chat.no-capacity", language)]
    try:
        found = plan(priced.job).largest
    except OomdocError:
        return []
    if not any(found.values()):
        return [word("chat.largest-none", language)]
    names = {
        "micro_batch": "chat.largest-batch",
        "seq_len": "chat.largest-length",
        "serving.max_model_len": "chat.largest-served",
    }
    return [word(key, language, length=f"{found[n]:,}", name=n) for n, key in names.items() if found.get(n)]


def invented(priced: Priced | None, job: Job, language: str) -> Reply:
    """Asked for a number that is not computed: the computed one."""
    if priced is None:
        return Reply(word("chat.invented-nothing", language), {}, job)
    answer = word("chat.invented", language, **parts.limits(priced.estimate))
    return Reply(joined([answer, *parts.standing(job, language).said[:1]]), {}, job, priced.estimate.process_bytes)


def of_topics(found: Sequence[FoundTopic], language: str) -> list[str]:
    """What is known of the concepts that a turn asks about."""
    return [render(message, language) for message in sentences_of(found, titled=True)]


def of_keys(text: str, session: Session) -> Reply | None:
    """The keys of the settings that a turn asks the name of; nothing is changed by it."""
    known = (session.job.framework,) if session.job.framework else ()
    lines = [render(message, session.language) for message in keys_asked(key_question(text, known))]
    return Reply(joined(lines), {}, session.job) if lines else None


_SURE_TO_FIT: Final = 0.9
"""Probability from which a run needs no further change."""


def unless_needless(reply: Reply, before: Estimate, language: str) -> Reply:
    """The reply to whether a change is needed: it is not where the run fits as it is."""
    if (before.fits_probability or 0.0) < _SURE_TO_FIT:
        return reply
    sizes = {"peak_bytes": needed_of(before), "capacity_bytes": before.capacity_bytes or 0.0}
    _, *rest = reply.answer.split("\n")
    return replace(reply, answer=joined([word("chat.not-needed", language, **sizes), *rest]))


def not_understood(reply: Reply, language: str) -> Reply:
    """Something was to be changed, and what was not found in the words: said before how things stand."""
    return replace(reply, answer=joined([word("chat.unheard", language), reply.answer]))


def _reference(job: Job) -> str:
    if job.objective not in ("dpo", "kto", "grpo", "ppo"):
        return "none"
    return "adapter" if job.method in ("lora", "qlora") else "full"
