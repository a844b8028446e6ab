"""Planning before a run: a job document, a config or a launch script → does it fit, and which knob buys what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from oomdoc.diagnosis.answering import answer_of
from oomdoc.diagnosis.comparing import Plain
from oomdoc.diagnosis.planned import careful_job
from oomdoc.diagnosis.planning.prices import Table
from oomdoc.diagnosis.planning.table import fits_table
from oomdoc.diagnosis.throughput import relative_speed, throughput
from oomdoc.evidence import Evidence, Message, Source, problem_of
from oomdoc.intake import read
from oomdoc.intake.configs import to_job
from oomdoc.report.document import framework_document
from oomdoc.report.words import render
from oomkb.dataclass import dataclass
from oomkb.errors import InputError, JobError, OomdocError
from oomkb.frameworks import complete
from oomkb.memory.job import Job
from oomkb.pricing import Priced, check_device, price_planned
from oomkb.untrusted import yaml_document


@dataclass(frozen=True, slots=True)
class Compared:
    """One job of a comparison; ``priced`` is missing where the job has no price, and ``problem`` says why."""

    job: Job
    priced: Priced | None = None
    relative_speed: float | None = None
    """Optimizer steps per second beside those of the first job that has a price."""
    problem: Message | str | None = None


def compare(jobs: Sequence[Job]) -> list[Compared]:
    """Price each job; speeds are relative to the first that has a price."""
    rows: list[Compared] = []
    reference = None
    for job in jobs:
        try:
            priced = price_planned(job)
        except OomdocError as error:
            rows.append(Compared(job, problem=problem_of(error)))
            continue
        speed = throughput(priced.job, priced.shape, priced.device, priced.estimate.host_bytes)
        reference = reference or speed
        rows.append(Compared(job, priced, relative_speed(reference, speed)))
    return rows


@dataclass(frozen=True, slots=True)
class Planned:
    """A job before its run and the table of what changes would do."""

    job: Job
    table: Table
    sentences: tuple[Message, ...] = ()
    evidence: Evidence | None = None


def plan_job(
    text: str,
    filename: str,
    changes: Mapping[str, Any],
    others: Sequence[Source] = (),
    *,
    fixed_hardware: bool = False,
) -> Planned:
    """Plan what a file describes, with (dotted) job fields set on top.

    :param others: further files that it names (its DeepSpeed file, what it sources or includes).
    :param fixed_hardware: whether plans may change neither the cards nor their number.
    :raises JobError: where neither the file nor the fields name a model, or the job is impossible.
    """
    job, evidence, careful = planned_job(text, filename, changes, others)
    if not job.has_model:
        raise JobError("no model is named", where="model", hint="give a config that names one, or --set model=...")
    check_device(job)
    table = fits_table(job, careful=careful, fixed_hardware=fixed_hardware)
    completed = complete(job, careful=careful)
    return Planned(job, table, answer_of(Plain(job, completed, table.estimate, careful)), evidence)


def planned_job(
    text: str, filename: str, changes: Mapping[str, Any], others: Sequence[Source] = ()
) -> tuple[Job, Evidence | None, bool]:
    """The job that a file describes with (dotted) fields set on top, and whether its open fields are filled carefully.

    :param others: further files that it names.
    """
    job, evidence = job_of_text(text, filename, others)
    if "gpu" in changes and "capacity_gib" not in changes:
        job = job.with_fields({"capacity_gib": None})  # what the file says of another card
    job = job.with_fields(changes)
    # Degrees that a count of GPUs decides are worked out anew.
    if "gpus" in changes or "nodes" in changes:
        job = job.with_fields({"world": (job.gpus or 1) * (job.nodes or 1), "dp": None})
    return job, evidence, job.framework is None if evidence is None else careful_job(evidence, job)


def job_of_text(text: str, filename: str, others: Sequence[Source] = ()) -> tuple[Job, Evidence | None]:
    """The job that a job document (our own form) or a framework's config or script describes.

    :param others: further files that it names.
    """
    if not text.strip():
        return Job(), None
    document = _job_document(text)
    if document is not None:
        return Job.from_document(document), None
    evidence = read([Source(filename or "input", text), *others])
    return to_job(evidence.facts, evidence.framework, evidence.versions), evidence


_MAX_UNKNOWN_SHARE: Final = 0.15
"""Keys of a job document that no job has: misspelt ones, or somebody's own beside them."""


def _job_document(text: str) -> dict[str, Any] | None:
    """Our own form: a mapping of a job's fields, ``model`` or ``params_b`` among them, with few other keys."""
    try:
        document = yaml_document(text, where="text", finite=False)
    except InputError:
        return None
    if isinstance(document, dict) and isinstance(document.get("job"), dict):
        document = document["job"]
    if not isinstance(document, dict) or not {"model", "params_b"} & set(document):
        return None
    unknown = set(document) - set(Job.__dataclass_fields__)
    return {str(k): v for k, v in document.items()} if len(unknown) <= _MAX_UNKNOWN_SHARE * len(document) else None


def plan_document(planned: Planned, language: str) -> dict[str, Any]:
    """The JSON form of a plan before a run."""
    from oomdoc.report.plan import table_document  # draws on rich, which a diagnosis does without

    said = [render(sentence, language) for sentence in planned.sentences]
    evidence = planned.evidence
    return {
        "schema": "oomdoc.plan/1",
        "job": planned.job.document(),
        "framework": framework_document(evidence) if evidence is not None else None,
        "sentences": said,
        **table_document(planned.table, language),
        "warnings": [render(w, language) for w in evidence.warnings] if evidence is not None else [],
    }
