"""A diagnosis as the contract's JSON document; sizes in GiB, sentences in one language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from oomdoc.diagnosis.forms import Side
from oomdoc.diagnosis.result import (
    Change,
    Contribution,
    Diagnosis,
    FoundTopic,
    MatchedCase,
    Plan,
    SingleFix,
    TensorMatch,
)
from oomdoc.diagnosis.run_words import names_of
from oomdoc.evidence import Evidence, Fact, Failure, Message, Span, say
from oomdoc.report.case_page import standing_words
from oomdoc.report.estimates import estimate_document
from oomdoc.report.screen import first_screen
from oomdoc.report.words import render
from oomkb.units import GIB

SCHEMA: Final = "oomdoc.diagnosis/1"
_SIZES: Final = (
    "requested",
    "capacity",
    "allocated",
    "reserved",
    "reserved_unallocated",
    "free",
    "process",
    "other_process",
)


def diagnosis_document(
    found: Diagnosis, language: str, *, identifier: str | None = None, further: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """The document of ``oomdoc diagnose``, with what its first screen says.

    :param further: the further questions of the text, each with its answer.
    """
    document = _document(found, language, identifier)
    document["further"] = [{"question": question, "answer": answer} for question, answer in further]
    screen = asdict(first_screen(document, language))
    return {**document, "screen": {n: list(v) if isinstance(v, tuple) else v for n, v in screen.items()}}


def _document(found: Diagnosis, language: str, identifier: str | None) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "id": identifier,
        "verdict": found.verdict,
        "outlook": _outlook(found),
        "reported": _reported(found.evidence),
        "other_failure": _other_failure(found, language),
        "framework": framework_document(found.evidence),
        "summary": _joined([render(m, language) for m in found.summary], language),
        "sentences": [render(m, language) for m in found.summary],
        "answers": [render(m, language) for m in found.answers],
        "causes": [
            {
                "cause": cause.cause,
                "probability": round(cause.probability, 4),
                "proven": cause.is_proven,
                "why": [render(m, language) for m in cause.why],
                "evidence": [_span(s) for s in cause.evidence],
                "contributions": [_contribution(c) for c in cause.contributions],
            }
            for cause in found.causes
        ],
        "facts": {name: _fact(fact) for name, fact in found.evidence.facts.items()},
        "failure": _failure(found.evidence.root, found.tensors),
        "estimate": estimate_document(found.estimate, language=language) if found.estimate else None,
        "asked": [_side(side, language) for side in found.sides],
        "grid": _grid(found, language),
        "inferred": {
            i.field: {"value": i.value, "probability": round(i.probability, 3), "why": render(i.why, language)}
            for i in found.inferred
        },
        "job": found.job.document(),
        "matches": [match_document(m, language) for m in found.matches],
        "threads": [
            {"url": t.url, "cause": t.cause, "also": list(t.also), "likeness": round(t.likeness, 3)}
            for t in found.threads
        ],
        "plans": [plan_document(p, language) for p in found.plans],
        "nothing_fits": render(found.nothing_fits, language) if found.nothing_fits else None,
        "single_fixes": [_single(s, language) for s in found.singles],
        "questions": [
            {"fact": q.fact, "why": render(q.why, language), "how": render(q.how, language) if q.how else None}
            for q in found.questions
        ],
        "topics": [_topic(one, language) for one in found.topics],
        "explained": found.explained,
        "conflicts": [
            *(
                {
                    "fact": c.field or None,
                    "stated": c.stated,
                    "likely": c.likely,
                    "observed": True,
                    "why": render(c.why, language),
                }
                for c in found.conflicts
            ),
            *(
                {"fact": c.kept.name, "kept": _fact(c.kept), "dropped": _fact(c.dropped)}
                for c in found.evidence.conflicts
            ),
        ],
        "inactive": [
            {
                "setting": i.setting,
                "why": i.reason,
                "message": render(say(i.reason, **{"setting": i.setting, **i.values}), language),
                "source": i.span.source,
                "line": i.span.line,
            }
            for i in found.evidence.inactive
        ],
        "warnings": [render(w, language) for w in (*found.evidence.warnings, *found.warnings)],
        "error": None,
        **_language_model(found.evidence),
    }


def _language_model(evidence: Evidence) -> dict[str, Any]:
    """What a language model read and what of it was not taken; nothing where none was asked."""
    reading = evidence.language_model
    if reading is None:
        return {}
    counts = Counter(f"{one.claim}:{one.reason}" for one in reading.withheld)
    named = [{"cause": one.cause, "sure": one.sure, **_span(one.span)} for one in reading.causes]
    facts = sorted(name for name, fact in evidence.facts.items() if fact.origin == "language-model")
    said = {
        "causes": named,
        "facts": facts,
        "withheld": dict(sorted(counts.items())),
        "trouble": reading.trouble or None,
    }
    return {"language_model": said}


def _topic(one: FoundTopic, language: str) -> dict[str, Any]:
    return {
        "id": one.topic.id,
        "title": one.topic.title[language],
        "answer": one.topic.answer[language],
        "figure": render(one.figure, language) if one.figure is not None else None,
        "probability": round(one.probability, 4),
        "sources": list(one.topic.sources),
    }


def _joined(sentences: list[str], language: str) -> str:
    return ("" if language == "zh" else " ").join(sentences)


def _grid(found: Diagnosis, language: str) -> dict[str, Any] | None:
    grid = found.grid
    if grid is None:
        return None
    needs = [[None if need is None else round(need / GIB, 2) for need in row] for row in grid.needed_bytes]
    return {
        "name": grid.name,
        "rows": [render(name, language) for name in grid.rows],
        "columns": [render(name, language) for name in grid.columns],
        "needed_gib": needs,
        "fits": [list(row) for row in grid.fits],
    }


def _side(side: Side, language: str) -> dict[str, Any]:
    probability = side.priced.estimate.fits_probability if side.priced is not None else None
    return {
        "name": _listed(names_of(side.asked), language),
        "changes": {name: value for name, value in side.fields.items() if value is not None},
        "needed_gib": None if side.needed_bytes is None else round(side.needed_bytes / GIB, 2),
        "capacity_gib": None if side.capacity_bytes is None else round(side.capacity_bytes / GIB, 2),
        "fits": side.fits,
        "probability": None if probability is None else round(probability, 4),
    }


def _listed(names: list[Message | str], language: str) -> str:
    return render(say("answer.listed", names=names), language)


def _outlook(found: Diagnosis) -> dict[str, Any] | None:
    outlook = found.outlook
    if outlook is None:
        return None
    return {
        "answer": outlook.answer,
        "probability": None if outlook.probability is None else round(outlook.probability, 4),
    }


def _other_failure(found: Diagnosis, language: str) -> dict[str, Any] | None:
    other = found.other_failure
    if other is None:
        return None
    return {"kind": other.kind, "why": render(other.why, language), "next": render(other.next, language)}


def framework_document(evidence: Evidence) -> dict[str, Any] | None:
    """What framework the input is of, how sure that is, and the share of a configuration's keys that are not known."""
    found = evidence.recognised
    if found is None and evidence.framework is None:
        return None
    own = found is not None and (found.name == evidence.framework or evidence.framework is None)
    return {
        "name": found.name if found is not None and own else evidence.framework,
        "probability": found.probability if found is not None and own else None,
        "unknown_keys": found.unknown_keys if found is not None else None,
        "unread": [s.key for s in found.unread] if found is not None else [],
        "guessed": list(found.guessed) if found is not None else [],
    }


def match_document(match: MatchedCase, language: str) -> dict[str, Any]:
    """One matched case."""
    return {
        "case": match.case,
        "title": match.title.get(language) or match.title.get("en", ""),
        "score": round(match.score, 4),
        "why": [render(m, language) for m in match.why],
        "url": match.url,
        "fixes": [
            {
                "text": fix.text.get(language) or fix.text.get("en", ""),
                "status": fix.status,
                "standing": standing_words(standing, language),
                "safety": fix.safety,
                "ref": standing.ref or None,
            }
            for fix, standing in match.fixes
        ],
    }


def plan_document(plan: Plan, language: str) -> dict[str, Any]:
    """One plan. Instructions that no arithmetic judged have no figures: ``None``."""
    priced = plan.priced
    return {
        "name": plan.name,
        "changes": [change_document(c, language) for c in plan.changes],
        "peak_gib": round(plan.estimate.process_bytes / GIB, 2) if priced else None,
        "needed_gib": round(plan.needed_bytes / GIB, 2) if priced else None,
        "allocated_gib": round(plan.estimate.allocated_bytes / GIB, 2) if priced else None,
        "host_gib": round(plan.estimate.host_bytes / GIB, 1) if priced else None,
        "fits_probability": round(plan.fits_probability, 3) if priced else None,
        "relative_speed": round(plan.relative_speed, 3) if priced else None,
        "safety": plan.safety,
        "patch": plan.patch,
        "notes": [render(n, language) for n in plan.notes],
        "job": plan.job.document(),
    }


def change_document(change: Change, language: str) -> dict[str, Any]:
    """One change of a plan."""
    return {
        "key": change.key,
        "from": change.old,
        "to": change.new,
        "file": change.file,
        "saves_gib": round(change.saves_bytes / GIB, 2),
        "remedy": change.remedy,
        "instruction": render(change.instruction, language) if change.instruction else None,
        "fields": dict(change.fields),
    }


def _single(single: SingleFix, language: str) -> dict[str, Any]:
    return {
        **change_document(single.change, language),
        "peak_gib": round(single.peak_bytes / GIB, 2),
        "fits_probability": None if single.probability is None else round(single.probability, 3),
        "fits": single.fits,
    }


def _contribution(one: Contribution) -> dict[str, Any]:
    place = next((span for span in one.feature.spans if span.line), None)
    return {
        "feature": one.feature.name,
        "log_odds": one.log_odds,
        "source": place.source if place else None,
        "line": place.line if place else None,
    }


def _span(span: Span) -> dict[str, Any]:
    return {"source": span.source, "line": span.line, "text": span.text}


def _fact(fact: Fact) -> dict[str, Any]:
    return {
        "value": fact.value,
        "stated": fact.stated,
        "source": fact.span.source,
        "line": fact.span.line,
        "column": fact.span.column,
        "confidence": round(fact.confidence, 2),
        **({"origin": fact.origin} if fact.origin == "language-model" else {}),
    }


def _refused_cache(failure: Failure) -> dict[str, Any] | None:
    """What an engine said of its cache when it refused to start: one request's need, and what was left for it."""
    needed, available, length = (failure.signal.data.get(n) for n in ("needed_bytes", "available_bytes", "length"))
    if not isinstance(needed, int | float) or not isinstance(available, int | float) or not length:
        return None
    return {"needed_gib": round(needed / GIB, 4), "available_gib": round(available / GIB, 4), "length": length}


_DESCRIBES_USE: Final = frozenset({"said-growth", "complaint"})
"""Outcomes of people who tell of more memory in use than they expect, in whose words nothing has run out."""


def _reported(evidence: Evidence) -> str | None:
    """How a shortage is known: ``printed`` by a program, ``said`` by a person, or only high use ``described``."""
    outcome = evidence.outcome
    if outcome is None or outcome.kind in ("question", "healthy", "other"):
        return None
    if outcome.kind != "said":
        return "printed"
    names = {o.name for o in (outcome, *evidence.other_outcomes) if o.kind == "said"}
    return "described" if names <= _DESCRIBES_USE else "said"


def _failure(failure: Failure | None, tensors: tuple[TensorMatch, ...]) -> dict[str, Any] | None:
    if failure is None:
        return None
    sizes: dict[str, Any] = {}
    for name in _SIZES:
        size = getattr(failure, f"{name}_bytes")
        sizes[f"{name}_gib"] = None if size is None else round(size / GIB, 4)
    return {
        "kind": failure.kind,
        "signal": failure.signal.name,
        "phase": failure.phase,
        "rank": failure.signal.rank,
        "step": failure.step,
        "line": failure.signal.span.line,
        "source": failure.signal.span.source,
        **sizes,
        "cache": _refused_cache(failure),
        "tensors": [
            {
                "name": t.name,
                "shape": list(t.shape),
                "dtype": t.dtype,
                "gib": round(t.size_bytes / GIB, 4),
                "match": round(t.match, 3),
                "cause": t.cause,
            }
            for t in tensors
        ],
    }
