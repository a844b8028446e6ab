"""A conversation's state as a value: the job after each turn. It can be stored as JSON and resumed anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from oomkb.memory.job import Job

__all__ = ["Reply", "Session", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """The job after a turn that changed it, and what the turn changed."""

    job: Job
    changed: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation."""

    language: str = "en"
    steps: tuple[Step, ...] = ()
    asked: tuple[str, ...] = ()
    """Facts that oomdoc has asked for and not been told."""

    @property
    def job(self) -> Job:
        """The job as it stands."""
        return self.steps[-1].job if self.steps else Job()

    def then(self, job: Job, changed: Mapping[str, Any]) -> Session:
        """The session after a change."""
        return replace(self, steps=(*self.steps[-99:], Step(job, MappingProxyType(dict(changed)))))

    def document(self) -> dict[str, Any]:
        """For the store."""
        return {
            "language": self.language,
            "asked": list(self.asked),
            "steps": [{"job": step.job.document(), "changed": dict(step.changed)} for step in self.steps],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Session:
        """From the store.

        :raises JobError: where a stored job is no longer valid.
        """
        steps = tuple(
            Step(Job.from_document(s["job"]), MappingProxyType(dict(s.get("changed") or {})))
            for s in document.get("steps") or ()
        )
        return cls(str(document.get("language") or "en"), steps, tuple(document.get("asked") or ()))


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; :meth:`document` is the contract's form."""

    answer: str
    changed: Mapping[str, Any]
    job: Job
    peak_bytes: float | None = None
    questions: tuple[Mapping[str, Any], ...] = ()
    diagnosis: Mapping[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """The contract's reply."""
        return {
            "answer": self.answer,
            "changed": dict(self.changed),
            "job": self.job.document(),
            "peak_gib": None if self.peak_bytes is None else round(self.peak_bytes / 2**30, 4),
            "questions": [dict(q) for q in self.questions],
            "diagnosis": dict(self.diagnosis) if self.diagnosis is not None else None,
        }
