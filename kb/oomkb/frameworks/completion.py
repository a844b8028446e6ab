"""Filling what a job leaves unsaid with what its framework would do, each value with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from oomkb.errors import JobError
from oomkb.frameworks.abilities import has
from oomkb.frameworks.dates import timely
from oomkb.frameworks.declared import default_of
from oomkb.frameworks.lookup import find, lineage
from oomkb.frameworks.model import ENGINE, PLAIN, Default, in_range
from oomkb.memory.job import Assumption, Job, JobDraft
from oomkb.memory.job_reading import read_dotted
from oomkb.toml_files import read_toml

UNKNOWN: Final = "unknown"
"""A framework that a configuration showed and that is not known."""
_ANY: Final = "any framework"
_PLANNED: Final = "a plan, not a run: a careful start"
_TABLE: Final = read_toml(Path(__file__).with_name("defaults.toml"))
_TRAINING_ONLY: Final = frozenset(_TABLE["training_only"].split())


def stages_filled(job: Job) -> int | None:
    """As many micro-batches as a pipeline has stages, where a job trains through one."""
    trained = job.objective != "inference" and has(job.framework, "pp") and "pp" not in job.assumed
    return job.pp if (job.pp or 1) > 1 and trained else None


class _Step:
    """One default, ready to be applied: what does not depend on the job is worked out once."""

    __slots__ = ("assumption", "default", "dotted", "field", "read", "training", "when")

    def __init__(self, default: Default) -> None:
        self.default, self.field = default, default.field
        self.when = default.when if default.conditional else None
        self.dotted = "." in default.field
        self.training = default.field in _TRAINING_ONLY
        self.read: Any = None
        self.assumption: Assumption | None = None
        if not callable(default.value):
            self.assumption = Assumption(default.value, self.why)
            self.read = read_dotted(default.field, default.value)

    @property
    def why(self) -> str:
        source = "" if self.default.source == _ANY else f" ({self.default.source})"
        return self.default.why + source

    def compute(self, draft: JobDraft) -> None:
        """Fill the field with a value that follows from the job."""
        value: Any = self.default.of(draft.job)
        if value is None:
            return
        try:
            draft.assume(self.field, read_dotted(self.field, value), Assumption(value, self.why))
        except JobError:  # a stated field of odd form: leave this one open
            return


def _apply(steps: Iterable[_Step], draft: JobDraft) -> None:
    """Fill the fields that are open and whose circumstances hold, in order: this runs seventy times for every job."""
    job, assume = draft.job, draft.assume
    for step in steps:
        field = step.field
        if (job.get(field) if step.dotted else getattr(job, field)) is not None:
            continue
        when = step.when
        if (when is not None and not when(job)) or (step.training and job.objective == "inference"):
            continue
        if step.assumption is not None:
            assume(field, step.read, step.assumption)
        else:
            step.compute(draft)


@lru_cache(maxsize=256)
def _own(framework: str, version: str | None) -> tuple[_Step, ...]:
    """The steps of one framework's own defaults, those of the release."""
    (member, *_) = lineage(framework)
    return tuple(_Step(d) for d in member.defaults if in_range(d.versions, version))


@cache
def _common(part: str) -> tuple[_Step, ...]:
    """The steps of one part of ``defaults.toml``."""
    source = _PLANNED if part == "careful" else _ANY
    return tuple(_Step(default_of(row, source, stages_filled=stages_filled)) for row in _TABLE[part])


def complete(job: Job, *, careful: bool = False) -> Job:
    """The job with every field that decides memory filled in; what was filled is under ``assumed`` with its reason.

    Stated fields are never changed. Where no framework is stated, it is taken for plain transformers; of one that is
    stated and ``unknown`` no framework's defaults are applied.

    :param careful: whether it is a run that somebody only plans: what is open is then as a careful person starts (one
        sample, checkpointing, a fused optimizer, up to 2,048 tokens) rather than as the framework's defaults have it.
    """
    framework = find(job.framework)
    careful = careful or bool(job.planned)
    draft = JobDraft(job)
    if careful and job.framework is None and job.objective == "inference":
        framework = find(ENGINE)
        draft.assume("framework", ENGINE, _ENGINE)
    elif job.framework is None:
        draft.assume("framework", PLAIN, _PLAIN)
    _apply(_common("first"), draft)
    if careful:
        _apply(_common("careful"), draft)
        _apply(_common("described"), draft)
    named = framework.name if framework else None if job.framework == UNKNOWN else PLAIN
    versions = timely(tuple(job.versions.items()))
    for member in lineage(named):
        _apply(_own(member.name, versions.get(member.package) or versions.get(member.name)), draft)
    _apply(_common("last"), draft)
    return draft.done()


def otherwise(job: Job, done: Job) -> Job | None:
    """The run with the other checkpointing, where what it does is assumed of a script nobody has seen, or of a release
    nobody states and other releases do otherwise; ``None`` for any other, and for one that is only planned.
    """
    if job.grad_ckpt is not None or done.grad_ckpt is None or job.planned:
        return None
    members = lineage(done.framework)
    script = not members or members[0].name == PLAIN
    releases = not timely(tuple(job.versions.items())) and any(
        d.field == "grad_ckpt" and d.versions for m in members for d in m.defaults
    )
    return replace(done, grad_ckpt=not done.grad_ckpt) if script or releases else None


def described(job: Job) -> Job:
    """With the precision that nearly everybody sets, for a run whose configuration is out of sight."""
    draft = JobDraft(job)
    _apply(_common("described"), draft)
    return draft.done()


_PLAIN: Final = Assumption(PLAIN, "no framework is stated")
_ENGINE: Final = Assumption(ENGINE, "no engine is stated")
