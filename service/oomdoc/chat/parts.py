"""Sentences that several kinds of answer share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from oomdoc.chat.history import wanted
from oomdoc.diagnosis.forms import needed_of
from oomdoc.diagnosis.known_run import answer_about
from oomdoc.evidence import problem_of
from oomdoc.report.words import has, render, word
from oomkb.dataclass import dataclass
from oomkb.errors import CatalogError, JobError, OomdocError
from oomkb.frameworks.circumstances import own_context
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.pricing import Priced
from oomkb.units import GIB, KIB

if TYPE_CHECKING:
    from oomdoc.diagnosis.result import Plan

SAME_BYTES: Final = 0.005 * GIB
_DECISIVE: Final = (
    "seq_len",
    "prompt_len",
    "completion_len",
    "micro_batch",
    "method",
    "serving.max_model_len",
    "max_pixels",
)
"""Assumed values that move the peak so much that they are said."""


def joined(sentences: Iterable[str]) -> str:
    """One sentence a line, none twice."""
    return "\n".join(dict.fromkeys(s for s in sentences if s))


def together(sentences: Iterable[str], language: str) -> str:
    """Sentences on one line."""
    return (" " if language == "en" else "").join(sentences)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands, in sentences, and its price where it has one."""

    said: tuple[str, ...]
    priced: Priced | None = None
    problem: str = ""
    compared: bool = False


def standing(
    job: Job, language: str, words: str = "", *, weighs: bool = True, plans: bool = True, held: Collection[str] = ()
) -> Standing:
    """How a run stands: what a question for it is answered, the words of the turn being the question.

    :param weighs: whether the words may set alternatives against each other.
    :param plans: whether to say what would fit.
    :param held: fields that no proposal may touch.
    """
    try:
        found = answer_about(job, words, weighs=weighs)
    except (JobError, CatalogError) as error:
        problem = render(problem_of(error), language)
        unpriced = (word("chat.cannot-price", language, problem=problem),) if job.has_model else ()
        return Standing(unpriced, None, problem)
    first, *rest = (render(message, language) for message in found.messages)
    estimate, engine = found.priced.estimate, found.priced.estimate.served
    said = [first]
    if plans and estimate.fits is False and not found.compared:
        said += planned(found.priced, language, held=held)
    said += [
        text
        for message, text in zip(found.messages[1:], rest, strict=True)
        if message.key != "answer.instead" or _FORM.isdisjoint(held)
    ]
    if engine is not None and engine.cache_bytes > 0 and not found.compared:
        values = {"cache_bytes": engine.cache_bytes, "tokens": f"{engine.tokens:,}"}
        said.append(word("chat.served", language, token_kib=f"{engine.token_bytes / KIB:.4g}", **values))
        own = own_context(found.priced.job)
        if own is not None and engine.length > own:
            said.append(word("chat.beyond-context", language, length=f"{engine.length:,}", own=f"{own:,}"))
    said += [word(warning.key, language, **dict(warning.values)) for warning in estimate.warnings]
    return Standing(tuple(said), found.priced, compared=found.compared)


def limits(estimate: Estimate) -> dict[str, float]:
    """The peak of the process, and between what sizes it lies."""
    interval = estimate.intervals["process"]
    sizes = {"low_bytes": interval.low_bytes, "high_bytes": interval.high_bytes}
    return {"peak_bytes": estimate.process_bytes, **sizes}


def owner(estimate: Estimate, language: str) -> list[str]:
    """The largest terms of the peak phase."""
    terms = sorted(estimate.phases[estimate.peak_phase].terms_bytes.items(), key=lambda t: -t[1])[:4]
    comma = word("chat.comma", language)
    shown = comma.join(f"{term(n, language)} {s / GIB:.2f} GiB" for n, s in terms if s > 0)
    return [word("chat.explain-owner", language, phase=word(f"phase.{estimate.peak_phase}", language), terms=shown)]


def term(name: str, language: str) -> str:
    """A term of the estimate in words."""
    key = f"term.{name}"
    return word(key, language) if has(key, language) else name


def versus(before: Estimate, after: Estimate, language: str) -> str:
    """How what is needed moves; where it does not, what does."""
    old, new = needed_of(before), needed_of(after)
    moved = _moved_terms(before, after, language)
    if abs(new - old) < SAME_BYTES:
        return word("chat.same-peak", language, after_bytes=new) + moved
    sizes = {"before_bytes": old, "after_bytes": new, "delta_bytes": abs(new - old)}
    return word("chat.compare-peaks", language, direction=direction(before, after, language), **sizes) + moved


def _moved_terms(before: Estimate, after: Estimate, language: str) -> str:
    """The largest move below the peak: a cache's room, or a term in some phase."""
    old, new = before.served, after.served
    if old and new and f"{old.requests:.1f}" != f"{new.requests:.1f}":
        return word("chat.moved-requests", language, before=f"{old.requests:.1f}", after=f"{new.requests:.1f}")
    # The peak's own phase first: there the move tells why the peak stays.
    phases = [before.peak_phase, *sorted(after.phases, key=lambda name: -after.phases[name].total_bytes)]
    for phase in phases:
        if phase not in before.phases or phase not in after.phases:
            continue
        was, now = before.phases[phase].terms_bytes, after.phases[phase].terms_bytes
        moves = {name: abs(now.get(name, 0.0) - was.get(name, 0.0)) for name in {*was, *now}}
        name = max(moves, key=lambda n: (moves[n], n), default="")
        if not name or moves[name] < SAME_BYTES:
            continue
        total = before.phases[phase].total_bytes, after.phases[phase].total_bytes
        if phase != before.peak_phase and abs(total[1] - total[0]) >= SAME_BYTES:
            # Another moment of the phase may be its fullest: its terms are not those of before.
            shown = word(f"phase.{phase}", language)
            return word("chat.moved-phase", language, phase=shown, before_bytes=total[0], after_bytes=total[1])
        sizes = {"before_bytes": was.get(name, 0.0), "after_bytes": now.get(name, 0.0)}
        return word("chat.moved", language, term=term(name, language), phase=word(f"phase.{phase}", language), **sizes)
    return ""


def was_assumed(before: Priced | None, changes: Mapping[str, Any], language: str) -> list[str]:
    """Values that were only assumed before they were changed: the peak before is that of an assumption."""
    assumed = before.job.assumed if before is not None else {}
    values = {n: before.job.get(n) for n in changes if n in assumed and n in _DECISIVE} if before is not None else {}
    values = {n: v for n, v in values.items() if v not in (None, "none")}
    return [word("chat.was-assumed", language, values=shown_changes(values, language))] if values else []


def direction(before: Estimate, after: Estimate, language: str) -> str:
    """Down or up."""
    return word("chat.down" if needed_of(after) <= needed_of(before) else "chat.up", language)


def fit_word(estimate: Estimate, language: str) -> str:
    """Appended to a row of a list."""
    if estimate.fits is None:
        return ""
    return word("chat.speed-fits" if estimate.fits else "chat.speed-fits-not", language)


def changed_line(changes: Mapping[str, Any], language: str, *, undone: bool = False) -> str:
    """What was changed, as a sentence."""
    return word("chat.undone" if undone else "chat.changed", language, changes=shown_changes(changes, language))


def shown_changes(changes: Mapping[str, Any], language: str) -> str:
    """``seq_len = 2048, micro_batch = 1``."""
    if not changes:
        return word("chat.current", language)
    hidden = {"world", "params_b"} | ({"capacity_gib"} if "gpu" in changes else set())
    if "serving.max_model_len" in changes:
        hidden.add("seq_len")
    if changes.get("objective") is not None:  # the other purpose has settings of its own
        hidden |= {name for name, value in changes.items() if value is None}
    shown = {n: v for n, v in changes.items() if n not in hidden} or changes
    unset = word("chat.unset", language)
    return word("chat.comma", language).join(
        f"{name} = {unset if value is None else shown_value(value)}" for name, value in shown.items()
    )


def shown_value(value: Any) -> str:
    """A job field's value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "+".join(str(v.get("role", v) if isinstance(v, Mapping) else v) for v in value) or "none"
    if isinstance(value, Mapping):
        return str(value.get("name") or value.get("model_type") or "config.json")
    return "none" if value is None else str(value)


_FORM: Final = frozenset({"method", "quant"})


def plans_of(priced: Priced, held: Collection[str]) -> tuple[Plan, ...]:
    """What the planner would do without touching the fields that are held."""
    from oomdoc.diagnosis.fixes import Context
    from oomdoc.diagnosis.planning.planner import plan

    try:
        return plan(priced.job, context=Context(kept=frozenset(held))).plans
    except OomdocError:
        return ()


def planned(priced: Priced, language: str, most: int = 1, held: Collection[str] = ()) -> list[str]:
    """What the planner would do, a line a plan."""
    from oomdoc.report.document import plan_document

    return plan_lines([plan_document(p, language) for p in plans_of(priced, held)], language, most)


def plan_lines(plans: Sequence[Mapping[str, Any]], language: str, most: int = 1) -> list[str]:
    """The first plans, a line each."""
    lines: list[str] = []
    for found in plans:
        changes = [
            c["instruction"] or f"{c['key']}: {shown_value(c['from'])} → {shown_value(c['to'])}"
            for c in found["changes"]
        ]
        if not changes or (found["needed_gib"] is not None and found["fits_probability"] < _LIKELY):
            continue
        said = word("chat.semicolon", language).join(changes)
        if found["needed_gib"] is None:
            lines.append(word("chat.plan-plain", language, changes=said))
        else:
            sure, speed = f"{found['fits_probability']:.0%}", f"{found['relative_speed']:.2f}"
            values = {"peak_bytes": found["needed_gib"] * GIB, "probability": sure, "speed": speed}
            lines.append(word("chat.plan", language, changes=said, **values))
        if len(lines) >= most:
            break
    return lines


_LIKELY: Final = 0.5
"""Probability from which a plan is one that would fit."""


def asks(job: Job, language: str) -> list[str]:
    """The facts without which no verdict is possible."""
    missing = wanted(job)
    said = [word("chat.need-model", language)] if "model" in missing else []
    if "gpu" in missing or ("model" in missing and not job.has_card):
        said.append(word("chat.ask-gpu" if job.gpus is None else "chat.ask-card", language))
    elif "gpus" in missing:
        said.append(word("chat.ask-count", language))
    if "seq_len" in missing:
        said.append(word("chat.ask-seq", language))
    return said
