"""Starting a case: from the template, or from a diagnosis of the failure itself."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from oomkb.errors import JobError, RecordError
from oomkb.frameworks import PLAIN
from oomkb.memory.job import Job
from oomkb.records.case import SCHEMA
from oomkb.records.taxonomy import CAUSES, FRAMEWORKS, PHASES

TEMPLATE: Final = Path(__file__).with_name("new_case.yaml").read_text(encoding="utf-8")
"""The text of a new case, every field with an example or FILL IN."""
_SLUG: Final = re.compile(r"[a-z0-9]{1,40}(?:-[a-z0-9]{1,40}){0,15}")
_JOB_FACTS: Final = {
    "model": "model",
    "params_b": "params_b",
    "method": "method",
    "objective": "objective",
    "micro_batch": "micro_batch",
    "grad_accum": "grad_accum",
    "seq_len": "seq_len",
    "gpu": "gpu",
    "gpu_count": "world",
    "capacity_gib": "capacity_gib",
    "tp": "tp",
    "pp": "pp",
    "grad_ckpt": "grad_ckpt",
    "attention": "attention",
    "gpu_memory_utilization": "serving.gpu_memory_utilization",
    "max_model_len": "serving.max_model_len",
}
"""Fact of a diagnosis -> field of a job."""
OURS: Final = [{"by": "inference"}]
"""The witness of what nobody else has said yet."""


def scaffold(cause: str, slug: str) -> str:
    """The text of a new case.

    :raises RecordError: for an unknown cause or a slug that is none.
    """
    _check_name(cause, slug)
    return TEMPLATE


def _check_name(cause: str, slug: str) -> None:
    if cause not in CAUSES:
        raise RecordError(f"{cause!r} is no cause", where="cause", hint=f"one of {', '.join(CAUSES)}")
    if not _SLUG.fullmatch(slug):
        raise RecordError(f"{slug!r} is no slug", where="slug", hint="small letters, digits and single hyphens")


def from_diagnosis(document: Mapping[str, Any]) -> str:
    """The text of a case prefilled from a diagnosis (the contract's document); what only a person knows says FILL IN.

    :raises RecordError: for what is no diagnosis, or one that found no failure.
    """
    causes = document.get("causes")
    if not isinstance(causes, list) or not causes:
        raise RecordError("names no cause", where="causes", hint="give the JSON of `oomdoc diagnose --format json`")
    facts = {k: f.get("value") for k, f in (document.get("facts") or {}).items() if f.get("stated")}
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "title": {"en": "FILL IN", "zh": "FILL IN"},
        "summary": {"en": f"FILL IN: {document.get('summary', '')}".strip(), "zh": "FILL IN"},
        "date": datetime.date.today(),
        "languages": ["en"],
        "frameworks": [_framework(facts)],
        "hardware": _hardware(facts),
        "phase": facts["phase"] if facts.get("phase") in PHASES else "unknown",
        "symptoms": _symptoms(causes, document),
        "before": _job(facts),
        "outcome": {"before": {"fits": False}, "witness": OURS},
        "cause": {"witness": OURS},
        "also": [c["cause"] for c in causes[1:3] if c.get("probability", 0.0) >= 0.2],
        "why": {"en": "FILL IN: " + "; ".join(map(str, causes[0].get("why") or [])), "zh": "FILL IN", "witness": OURS},
        "fixes": [_fix(plan) for plan in (document.get("plans") or [])[:2]],
        "references": [{"role": "report", "url": "FILL IN"}],
    }
    record = {k: v for k, v in record.items() if v not in ({}, [], None) or k == "fixes"}
    return record_text(record)


def record_text(record: Mapping[str, Any]) -> str:
    """A record as YAML without aliases, which a case file may not have."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    text: str = yaml.dump(dict(record), Dumper=Dumper, allow_unicode=True, sort_keys=False, width=118)
    return text


def _framework(facts: Mapping[str, Any]) -> str:
    name = str(facts.get("framework", "")).lower()
    return name if name in FRAMEWORKS else PLAIN


def _hardware(facts: Mapping[str, Any]) -> dict[str, Any]:
    names = {"gpu": "gpu", "gpu_count": "count", "capacity_gib": "capacity_gib"}
    return {key: facts[fact] for fact, key in names.items() if facts.get(fact)}


def _symptoms(causes: list[dict[str, Any]], document: Mapping[str, Any]) -> list[str]:
    lines: dict[str, None] = {}
    for cause in causes:
        for span in cause.get("evidence") or []:
            if str(span.get("text", "")).strip():
                lines[str(span["text"]).strip()] = None
    seen = "\n".join(list(lines)[:8])
    return [seen or "FILL IN: the log line", "FILL IN: how somebody would ask it"]


def _job(facts: Mapping[str, Any]) -> dict[str, Any]:
    job = Job()
    for fact, field in _JOB_FACTS.items():
        if facts.get(fact) is None:
            continue
        try:
            job = job.with_fields({field: facts[fact]})
        except JobError:
            continue  # read from a log, but no possible run: the person fills it in
    return job.document()


def _fix(plan: Mapping[str, Any]) -> dict[str, Any]:
    changes = [f"{c.get('key')}: {c.get('from')} -> {c.get('to')}" for c in plan.get("changes") or []]
    text = ", ".join(changes) or "FILL IN"
    return {
        "text": {"en": text, "zh": f"FILL IN：{text}"},
        "safety": plan.get("safety", "not-applicable"),
        "witness": OURS,
    }


def write_new(
    folder: Path, cause: str, slug: str, diagnosis: Path | Mapping[str, Any] | None = None, *, text: str | None = None
) -> Path:
    """Write a new case file ``folder/cause/slug.yaml`` and give its path.

    :param diagnosis: to prefill it from: a file, or the document itself.
    :param text: the record, where it is made already.
    :raises RecordError: where it exists, the name is none, or the diagnosis cannot be read.
    """
    _check_name(cause, slug)
    if text is None:
        document = read_diagnosis(diagnosis) if isinstance(diagnosis, Path) else diagnosis
        text = scaffold(cause, slug) if document is None else from_diagnosis(document)
    return create(folder / cause / f"{slug}.yaml", text, "exists already", "choose another slug")


def create(path: Path, text: str, taken: str, hint: str) -> Path:
    """Write a file that is not there yet, and its folder; its path.

    :raises RecordError: where it is there (``taken``, ``hint``), or cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise RecordError(taken, where=str(path), hint=hint) from error
    except OSError as error:
        raise RecordError(
            error.strerror or str(error), where=str(path), hint="give a --folder that can be written"
        ) from error
    return path


def read_diagnosis(path: Path) -> Mapping[str, Any]:
    """The document of a diagnosis in a file.

    :raises RecordError: for a file that cannot be read or holds none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        raise RecordError(
            "is no JSON", where=str(path), hint="give the output of `oomdoc diagnose --format json`"
        ) from error
    if not isinstance(found, dict):
        raise RecordError("is no diagnosis", where=str(path), hint="one JSON object")
    return found
