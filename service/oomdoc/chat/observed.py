"""What a person saw a run hold or how it went, held against the estimate of the conversation's job."""

from __future__ import annotations

from typing import Final

from oomdoc.chat import parts
from oomdoc.chat.prices import price_of
from oomdoc.chat.session import Reply, Session, flat
from oomdoc.diagnosis.engine import diagnose
from oomdoc.evidence import Evidence, Source
from oomdoc.intake import read
from oomdoc.report.words import render, word
from oomkb.frameworks import has
from oomkb.memory.job import Job

NO_OPTIONS: Final = frozenset({"versions", "env", "buckets", "extra_models", "loop", "planned", "world", "dp"})
"""Parts of a job that no option states."""


def options_of(job: Job) -> dict[str, object]:
    """The job's fields as options beside a text that tells of the same run."""
    known = {n: v for n, v in flat(job).items() if n.partition(".")[0] not in NO_OPTIONS}
    return {n: list(v) if isinstance(v, tuple) else v for n, v in known.items()}


def shown_bytes(evidence: Evidence) -> float | None:
    """What a run is told to hold on a card, where nothing failed."""
    seen = next(evidence.find("in-use"), None) if not evidence.failures else None
    return float(seen.data["shown_bytes"]) if seen is not None else None


def observed(session: Session, text: str, seen_bytes: float) -> Reply:
    """Whether the figure agrees with the estimate, and what it implies of what nobody stated."""
    job, language = session.job, session.language
    priced, problem = price_of(job, language)
    if priced is None:
        return Reply(word("chat.cannot-price", language, problem=problem), {}, job)
    interval = priced.estimate.intervals["process"]
    sizes = {"seen_bytes": seen_bytes, "low_bytes": interval.low_bytes, "high_bytes": interval.high_bytes}
    claims = job.objective == "inference" and has(job.framework, "serving.utilization", serving=True)
    if claims:
        key = "observed-share"
    elif seen_bytes > interval.high_bytes:
        key = "observed-more"
    else:
        key = "observed-less" if seen_bytes < interval.low_bytes else "observed-agrees"
    said = [word(f"chat.{key}", language, **sizes)]
    if key in ("observed-more", "observed-less"):
        found = diagnose(read([Source("chat", text)], options_of(job)), plans=False, questions=False)
        said += [render(one.why, language) for one in found.inferred]
    capacity = priced.estimate.capacity_bytes
    if capacity is not None and capacity > seen_bytes:
        said.append(word("chat.observed-left", language, left_bytes=capacity - seen_bytes))
    said += parts.standing(job, language, plans=False).said[:2]
    return Reply(parts.joined(said), {}, job, priced.estimate.process_bytes)
