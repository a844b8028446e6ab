"""The chat's answers in words; every figure in them was computed by the memory model or read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from oomdoc.chat.session import Reply, difference
from oomdoc.report.words import has, word
from oomkb.errors import JobError, OomdocError
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.pricing import Priced, price
from oomkb.units import GIB

if TYPE_CHECKING:
    from oomdoc.report.report import Report

__all__ = [
    "changed",
    "compared",
    "described",
    "explained",
    "invented",
    "nothing_to_undo",
    "off_topic",
    "refused",
    "would",
]

_SAME: Final = 0.005
_LARGEST: Final = re.compile(r"(?i)\b(?:big|larg|long|max)\w{0,5}\b|最大|最长|多大|多长|上限")
_TOPICS: Final[tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...]] = (
    ("reference", re.compile(r"(?i)\bref(?:erence)?\b|参考"), ("reference",)),
    ("optimizer", re.compile(r"(?i)optimi[sz]er|\badam|优化器"), ("optimizer", "master", "moment")),
    ("logits", re.compile(r"(?i)logit|vocab|\bloss\b|词表|损失"), ("logit", "loss", "softmax")),
    ("activations", re.compile(r"(?i)activation|激活"), ("activation", "checkpoint", "recompute")),
    ("kv-cache", re.compile(r"(?i)\bkv\b|cache|缓存"), ("kv",)),
    ("gradients", re.compile(r"(?i)gradient(?!\s?(?:accum|check))|梯度(?!累积|检查)"), ("gradient",)),
    ("weights", re.compile(r"(?i)weight|parameter|权重|参数"), ("weight", "adapter")),
)


def described(
    report: Report, priced: Priced | None, problem: str, job: Job, changes: Mapping[str, Any], language: str
) -> Reply:
    """The answer to a description or pasted material: cause, figures, a plan, questions."""
    document = report.document()
    # Without a failure the summary only says so; the figures of the described job are the answer then.
    silent = report.diagnosis.verdict == "no-failure" and priced is not None
    parts = [] if silent or not document["summary"] else [document["summary"]]
    parts += _state(priced, problem, job, language)
    fits = priced.estimate.fits if priced else None
    if fits is not True:
        parts += _plan_lines(document["plans"], language)
    questions = list(document["questions"])
    asked = [q["why"] for q in questions[:2] if q.get("why")]
    parts += _asks(job, language) if not asked else asked + _asks(job, language)[:1]
    return Reply(
        _join(parts),
        changes,
        job,
        priced.estimate.process_bytes if priced else None,
        tuple(questions),
        document,
    )


def changed(
    before: Priced | None,
    after: Priced | None,
    problem: str,
    job: Job,
    changes: Mapping[str, Any],
    language: str,
    *,
    undone: bool = False,
) -> Reply:
    """What a change does."""
    if changes:
        parts = [word("chat.undone" if undone else "chat.changed", language, changes=_changes(changes, language))]
    else:
        parts = [word("chat.unchanged", language)]
    if before and after and changes:
        parts.append(_versus(before.estimate, after.estimate, language))
    parts += _state(after, problem, job, language)
    if after and after.estimate.fits is False:
        parts += _planned(after, language)
    parts += _asks(job, language)
    return Reply(_join(parts), changes, job, after.estimate.process_bytes if after else None)


def would(before: Priced | None, after: Priced | None, problem: str, job: Job, other: Job, language: str) -> Reply:
    """What a change would do, without making it."""
    if before is None or after is None:
        return Reply(word("chat.cannot-price", language, problem=problem), {}, job)
    old, new = before.estimate, after.estimate
    verdict = "unknown" if new.fits is None else "fit" if new.fits else "fit-not"
    parts = [
        word(
            "chat.would",
            language,
            changes=_changes(difference(job, other), language),
            before_bytes=old.process_bytes,
            after_bytes=new.process_bytes,
            direction=_direction(old, new, language),
            delta_bytes=abs(new.process_bytes - old.process_bytes),
            verdict=word(f"chat.would-{verdict}", language),
        ),
        *_owner(new, language),
    ]
    return Reply(_join(parts), {}, job, old.process_bytes)


def explained(priced: Priced | None, problem: str, job: Job, text: str, language: str) -> Reply:
    """A question about the job as it stands: the part asked about, and where the memory goes."""
    if priced is None:
        return Reply(_join([word("chat.cannot-price", language, problem=problem), *_asks(job, language)]), {}, job)
    estimate = priced.estimate
    terms = estimate.phases[estimate.peak_phase].terms_bytes
    parts = []
    for topic, pattern, names in _TOPICS:
        if not pattern.search(text):
            continue
        size_bytes = sum(s for t, s in terms.items() if any(n in t for n in names))
        name = word(f"topic.{topic}", language)
        key = "chat.topic-term" if size_bytes > 0 else "chat.topic-none"
        parts.append(word(key, language, name=name, size_bytes=size_bytes, peak_bytes=estimate.process_bytes))
        if topic == "reference":
            parts.append(word(f"chat.topic-reference-{_reference(priced.job)}", language))
    if not parts:
        parts += _owner(estimate, language)
    parts += _state(priced, problem, job, language)
    if _LARGEST.search(text):
        parts += _largest(priced, language)
    if estimate.fits is False:
        parts += _planned(priced, language)
    return Reply(_join(parts), {}, job, estimate.process_bytes)


def _largest(priced: Priced, language: str) -> list[str]:
    from oomdoc.diagnosis.planning import plan

    try:
        largest = plan(priced.job).largest
    except OomdocError:
        return []
    if not largest:
        return []
    values = {"micro_batch": largest.get("micro_batch", "–"), "seq_len": largest.get("seq_len", "–")}
    return [word("chat.largest", language, **values)]


def invented(priced: Priced | None, job: Job, language: str) -> Reply:
    """Asked for a number that is not computed: the computed one."""
    if priced is None:
        return Reply(word("chat.invented-nothing", language), {}, job)
    interval = priced.estimate.intervals["process"]
    answer = word(
        "chat.invented",
        language,
        peak_bytes=priced.estimate.process_bytes,
        low_bytes=interval.low_bytes,
        high_bytes=interval.high_bytes,
    )
    return Reply(answer, {}, job, priced.estimate.process_bytes)


def compared(setups: Sequence[tuple[Job, Mapping[str, Any]]], job: Job, language: str) -> Reply:
    """The relative speed of the set-ups this conversation has seen."""
    from oomdoc.diagnosis.throughput import relative_speed, throughput

    rows: list[tuple[str, float, Estimate]] = []
    try:
        now = price(job)
    except OomdocError as error:
        return Reply(word("chat.cannot-price", language, problem=str(error)), {}, job)
    base = throughput(now.job, now.shape, now.device)
    seen: list[Job] = []
    for index, (setup, changes) in enumerate(setups):
        if setup in seen:
            continue
        seen.append(setup)
        try:
            priced = price(setup)
        except OomdocError:
            continue
        speed = relative_speed(base, throughput(priced.job, priced.shape, priced.device))
        name = word("chat.original", language) if index == 0 else _changes(changes, language)
        rows.append((name, speed, priced.estimate))
    lines = [word("chat.speed-head", language)]
    lines += [
        "- "
        + word(
            "chat.speed-row", language, name=n, speed=f"{s:.2f}", peak_bytes=e.process_bytes, fits=_fits(e, language)
        )
        for n, s, e in rows
    ]
    fitting = [row for row in rows if row[2].fits is not False]
    best = max(fitting, key=lambda row: row[1], default=None)
    lines.append(word("chat.speed-best", language, name=best[0]) if best else word("chat.speed-none", language))
    return Reply("\n".join(lines), {}, job, now.estimate.process_bytes)


def refused(error: JobError, language: str) -> str:
    """An impossible job, with the field and what would be valid."""
    return word("chat.refused", language, problem=str(error))


def nothing_to_undo(language: str) -> str:
    """Before any change."""
    return word("chat.nothing-to-undo", language)


def off_topic(language: str) -> str:
    """What oomdoc is for."""
    return word("chat.off-topic", language)


def _join(parts: Sequence[str]) -> str:
    return "\n".join(dict.fromkeys(p for p in parts if p))


def _reference(job: Job) -> str:
    if job.objective not in ("dpo", "kto", "grpo", "ppo"):
        return "none"
    return "adapter" if job.method in ("lora", "qlora") else "full"


def _state(priced: Priced | None, problem: str, job: Job, language: str) -> list[str]:
    if priced is None:
        return (
            [] if job.model is None and job.params_b is None else [word("chat.cannot-price", language, problem=problem)]
        )
    estimate = priced.estimate
    owner = estimate.owner
    parts = [
        word(
            "chat.peak",
            language,
            peak_bytes=estimate.process_bytes,
            phase=word(f"phase.{estimate.peak_phase}", language),
            owner=_term(owner, language),
            owner_bytes=estimate.phases[estimate.peak_phase].terms_bytes[owner],
        )
    ]
    if estimate.capacity_bytes is not None:
        probability = f"{estimate.fits_probability or 0.0:.0%}"
        short_bytes = max(0.0, estimate.process_bytes - estimate.capacity_bytes)
        key = "chat.fits" if estimate.fits else "chat.fits-not"
        parts.append(
            word(
                key, language, capacity_bytes=estimate.capacity_bytes, probability=probability, short_bytes=short_bytes
            )
        )
    if priced.job.offload and estimate.host_bytes > 0:
        parts.append(word("chat.host", language, host_bytes=estimate.host_bytes))
    return parts


def _owner(estimate: Estimate, language: str) -> list[str]:
    terms = sorted(estimate.phases[estimate.peak_phase].terms_bytes.items(), key=lambda t: -t[1])[:4]
    shown = ", ".join(f"{_term(n, language)} {s / GIB:.2f} GiB" for n, s in terms if s > 0)
    return [word("chat.explain-owner", language, phase=word(f"phase.{estimate.peak_phase}", language), terms=shown)]


def _term(name: str, language: str) -> str:
    return word(f"term.{name}", language) if has(f"term.{name}", language) else name


def _versus(before: Estimate, after: Estimate, language: str) -> str:
    delta = after.process_bytes - before.process_bytes
    if abs(delta) < _SAME * before.process_bytes:
        return word("chat.same-peak", language, after_bytes=after.process_bytes)
    return word(
        "chat.compare-peaks",
        language,
        before_bytes=before.process_bytes,
        after_bytes=after.process_bytes,
        direction=_direction(before, after, language),
        delta_bytes=abs(delta),
    )


def _direction(before: Estimate, after: Estimate, language: str) -> str:
    return word("chat.down" if after.process_bytes <= before.process_bytes else "chat.up", language)


def _fits(estimate: Estimate, language: str) -> str:
    if estimate.fits is None:
        return ""
    return word("chat.speed-fits" if estimate.fits else "chat.speed-fits-not", language)


def _changes(changes: Mapping[str, Any], language: str) -> str:
    if not changes:
        return word("chat.current", language)
    shown = {n: v for n, v in changes.items() if n != "world"} or changes
    return ", ".join(f"{name} = {_value(value)}" for name, value in shown.items())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "+".join(str(v) for v in value) or "none"
    if isinstance(value, Mapping):
        return str(value.get("name") or value.get("model_type") or "config.json")
    return "none" if value is None else str(value)


def _planned(priced: Priced, language: str) -> list[str]:
    from oomdoc.diagnosis.planning import plan
    from oomdoc.report.document import plan_document

    try:
        planning = plan(priced.job)
    except OomdocError:
        return []
    return _plan_lines([plan_document(p, language) for p in planning.plans], language)


def _plan_lines(plans: Sequence[Mapping[str, Any]], language: str) -> list[str]:
    for found in plans:
        changes = [c["instruction"] or f"{c['key']}: {_value(c['from'])} → {_value(c['to'])}" for c in found["changes"]]
        if not changes:
            continue
        said = "; ".join(changes)
        if found["peak_gib"] is None:
            return [word("chat.plan-plain", language, changes=said)]
        return [
            word(
                "chat.plan",
                language,
                changes=said,
                peak_bytes=found["peak_gib"] * GIB,
                probability=f"{found['fits_probability']:.0%}",
                speed=f"{found['relative_speed']:.2f}",
            )
        ]
    return []


def _asks(job: Job, language: str) -> list[str]:
    """The facts without which no verdict is possible."""
    if job.model is None and job.params_b is None:
        return [word("chat.need-model", language)]
    asks = []
    if job.gpu is None and job.capacity_gib is None:
        asks.append(word("chat.ask-gpu", language))
    if job.seq_len is None and job.objective != "inference":
        asks.append(word("chat.ask-seq", language))
    return asks
