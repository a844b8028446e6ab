"""A conversation's state as a value: the job after each turn. It can be stored as JSON and resumed anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from types import MappingProxyType
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.memory.job import Job

# What describes the job; the rest of a document (versions, environment) is not something a turn "changed".
_QUIET: Final = frozenset({"versions", "env", "buckets", "planned", "failed"})
_REMEMBERED: Final = 6
_SAID_CHARS: Final = 1_200
_ANSWER_CHARS: Final = 800
_MATERIAL_CHARS: Final = 20_000
_TRIED: Final = 12
"""What is kept of what was said, of an answer, of what was pasted, and of the runs that were priced."""
DERIVED: Final = frozenset({"world", "dp"})
"""Degrees that follow from the number of GPUs."""


@dataclass(frozen=True, slots=True)
class Step:
    """The job after a turn that changed it, and what the turn changed."""

    job: Job
    changed: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def document(self) -> dict[str, Any]:
        """For the store."""
        return {"job": self.job.document(), "changed": dict(self.changed)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Step:
        """From the store.

        :raises JobError: where the job is no longer valid.
        """
        return cls(Job.from_document(document["job"]), MappingProxyType(dict(document.get("changed") or {})))


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation."""

    language: str = "en"
    steps: tuple[Step, ...] = ()
    asked: tuple[str, ...] = ()
    """Facts that oomdoc has asked for and got no answer to."""
    proposed: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Changes that were asked about and not made: "ok, do it" makes them."""
    refused: tuple[str, ...] = ()
    """Fields whose value in the last turn was impossible: a bare number after it is for them."""
    described: str = ""
    """The answer to what was pasted last: a figure in it may be asked about."""
    material: str = ""
    """What was pasted last, for those functions that read it."""
    dialogue: tuple[tuple[str, str], ...] = ()
    """The latest turns with a language model: what was said, and the answer."""
    written: str = ""
    """The configuration or command that was pasted last."""
    held: frozenset[str] = frozenset()
    """Fields of which the person says that they stay: no proposal touches them."""
    described_at: int = 0
    """How many steps there were when material was described last."""
    about: tuple[str, ...] = ()
    """Fields that the last turn asked about without a value: a number in the next one is for them."""
    tried: tuple[Step, ...] = ()
    """Every run that was priced, those that were only asked about too, in order."""
    offered: tuple[Mapping[str, Any], ...] = ()
    """The alternatives that the last answer set side by side, as job fields."""
    heard: tuple[str, ...] = ()
    """Sentences beside the figures that were said: none is said twice."""

    @property
    def job(self) -> Job:
        """The job as it stands."""
        return self.steps[-1].job if self.steps else Job()

    @property
    def fresh(self) -> bool:
        """Whether nothing was changed since material was described."""
        return len(self.steps) == self.described_at

    def then(self, job: Job, changed: Mapping[str, Any]) -> Session:
        """The session after a change."""
        step = Step(job, MappingProxyType(dict(changed)))
        return replace(self, steps=(*self.steps[-99:], step), proposed=MappingProxyType({})).trying(step)

    def noting(self, fact: Mapping[str, Any]) -> Session:
        """The session with what was told of the run as it is: no change of it."""
        *earlier, last = self.steps
        return replace(self, steps=(*earlier, replace(last, job=last.job.with_fields(fact))))

    def proposing(self, changes: Mapping[str, Any], step: Step | None = None) -> Session:
        """The session after a question about changes, and the run that it was about."""
        return replace(self, proposed=MappingProxyType(dict(changes))).trying(step)

    def trying(self, *steps: Step | None) -> Session:
        """The session with runs that were priced; what is tried again counts where it stood first."""
        known = [one.job for one in self.tried]
        new = [step for step in steps if step is not None and step.job not in known]
        return replace(self, tried=(*self.tried, *new)[-_TRIED:]) if new else self

    def remembering(self, said: str, answer: str) -> Session:
        """The session with a turn that a language model answered, for its next one."""
        return replace(self, dialogue=(*self.dialogue, (said[:_SAID_CHARS], answer[:_ANSWER_CHARS]))[-_REMEMBERED:])

    def describing(self, text: str, answer: str, *, configures: bool) -> Session:
        """The session after a description or a log; of a long one both ends are kept.

        :param configures: whether a configuration or command stands in it.
        """
        half = _MATERIAL_CHARS // 2
        kept = text if len(text) <= _MATERIAL_CHARS else f"{text[:half]}\n[...]\n{text[-half:]}"
        return replace(
            self,
            described=answer,
            described_at=len(self.steps),
            tried=self.tried[-1:],
            offered=(),
            material=kept,
            written=kept if configures else self.written,
        )

    def refusing(self, *names: str) -> Session:
        """The session after an impossible value."""
        return replace(self, refused=names)

    def document(self) -> dict[str, Any]:
        """For the store."""
        return {part.name: _stored(getattr(self, part.name)) for part in fields(self)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Session:
        """From the store.

        :raises JobError: where a stored job is no longer valid.
        """
        given = {part.name: document[part.name] for part in fields(cls) if document.get(part.name)}
        made = {name: _MADE.get(name, tuple)(v) if isinstance(v, list | dict) else v for name, v in given.items()}
        return cls(**made)


def _steps(documents: Iterable[Mapping[str, Any]]) -> tuple[Step, ...]:
    return tuple(map(Step.from_document, documents))


_MADE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "steps": _steps,
    "tried": _steps,
    "held": frozenset,
    "proposed": lambda changes: MappingProxyType(dict(changes)),
    "dialogue": lambda pairs: tuple(map(tuple, pairs)),
}
"""How what was stored becomes a part of a session again, where it is no plain list."""


def _stored(value: Any) -> Any:
    if isinstance(value, Step):
        return value.document()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return [_stored(one) for one in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; :meth:`document` is the contract's form."""

    answer: str
    changed: Mapping[str, Any]
    job: Job
    peak_bytes: float | None = None
    questions: tuple[Mapping[str, Any], ...] = ()
    diagnosis: Mapping[str, Any] | None = None
    tools: tuple[str, ...] = ()
    """The functions that a language model called."""
    withheld: tuple[tuple[str, str], ...] = ()
    """Its sentences that were not given, as something in them came from nowhere, and what."""

    def document(self) -> dict[str, Any]:
        """The contract's reply."""
        found: dict[str, Any] = {
            "answer": self.answer,
            "changed": dict(self.changed),
            "job": self.job.document(),
            "peak_gib": None if self.peak_bytes is None else round(self.peak_bytes / 2**30, 4),
            "questions": [dict(q) for q in self.questions],
            "diagnosis": dict(self.diagnosis) if self.diagnosis is not None else None,
        }
        if self.tools or self.withheld:  # what a language model did; what was withheld stays unsaid here, too
            found |= {"tools": list(self.tools), "withheld": len(self.withheld)}
        if self.withheld:
            found["withheld_why"] = list(dict.fromkeys(reason for _, reason in self.withheld))
        return found


def difference(old: Job, new: Job) -> dict[str, Any]:
    """The (dotted) job fields that a turn altered; ``None`` for one that is gone."""
    before, after = flat(old), flat(new)
    names = sorted(set(before) | set(after))
    quiet = _QUIET | new.assumed.keys()
    changed = {n: after.get(n) for n in names if before.get(n) != after.get(n) and n.partition(".")[0] not in quiet}
    if set(changed) <= DERIVED:
        return {}
    return {n: v for n, v in changed.items() if n != "dp"}


def moved_to(job: Job, target: Job) -> dict[str, Any]:
    """Every field in which another job differs, ``None`` for one that it does not have."""
    before, after = flat(job), flat(target)
    names = sorted({*before, *after} - {"versions", "env", "buckets", "assumed"})
    return {name: after.get(name) for name in names if before.get(name) != after.get(name)}


def flat(job: Job) -> dict[str, Any]:
    """The job's fields, those of its parts dotted."""
    found: dict[str, Any] = {}
    for name, value in job.document().items():
        if name in ("lora", "rollout", "serving", "loop") and isinstance(value, Mapping):
            found.update({f"{name}.{k}": v for k, v in value.items()})
        else:
            found[name] = dict(value) if isinstance(value, Mapping) else value
    return found
