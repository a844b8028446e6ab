"""The diagnosis: the value that every interface formats. Nothing here prints or computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final, Literal

from oomdoc.diagnosis.forms import Side, needed_of
from oomdoc.evidence import Evidence, Message, Span
from oomdoc.intake.asked import Asked
from oomkb.dataclass import dataclass
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.pricing import Priced
from oomkb.records.case import Fix, Standing
from oomkb.retrieval.threads import KnownThread
from oomkb.topics import Topic

Verdict = Literal["device-oom", "host-oom", "shared-memory", "not-oom", "no-failure", "unclear"]
Answer = Literal["fits", "tight", "does-not-fit", "unknown"]
Safety = Literal["same-numbers", "changed-numerics", "changed-training"]


@dataclass(frozen=True, slots=True)
class Feature:
    """One observation that the ranker weighs: ``phase:backward``, ``share:logits``, ``says:grows-with-steps`` ...

    ``value`` is 0..1, most often 1. A feature speaks for and against many causes at once, by the weights of the table.
    """

    name: str
    value: float = 1.0
    message: Message | None = None
    """What it says to a person; ``None`` where its name's own words do."""
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one feature says of one cause, in log-odds against the average cause."""

    feature: Feature
    log_odds: float


@dataclass(frozen=True, slots=True)
class CauseFinding:
    """A cause of the taxonomy with its calibrated probability and the reasons for it."""

    cause: str
    probability: float
    why: tuple[Message, ...] = ()
    evidence: tuple[Span, ...] = ()
    contributions: tuple[Contribution, ...] = ()
    """What spoke for it and against it, strongest first."""
    is_proven: bool = False
    """Whether printed figures prove it: the first reason is their sum."""


@dataclass(frozen=True, slots=True)
class TensorMatch:
    """A tensor whose size equals what was asked for. ``match`` in 0..1, chance coincidences priced in."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    match: float
    cause: str | None = None
    """The taxonomy cause this tensor speaks for."""
    note: Message | None = None


@dataclass(frozen=True, slots=True)
class MatchedCase:
    """A known case that looks like it."""

    case: str
    title: Mapping[str, str]
    """language -> title"""
    score: float
    why: tuple[Message, ...] = ()
    url: str = ""
    cause: str = ""
    fixes: tuple[tuple[Fix, Standing], ...] = ()
    """What the case says that helps, each with what its witnesses bear out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a plan, in the person's own key where their file has one."""

    remedy: str
    key: str
    old: Any = None
    new: Any = None
    file: str | None = None
    saves_bytes: int = 0
    """What this change alone saves on the job as it is."""
    instruction: Message | None = None
    """Where the fix is not a key: what to do, with the exact line."""
    fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The job fields it sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A set of changes predicted to fit (or said not to)."""

    name: str
    """``keep-numerics keep-speed keep-hardware more-hardware`` ...: a key of the words catalogue."""
    changes: tuple[Change, ...]
    job: Job
    estimate: Estimate
    fits_probability: float
    relative_speed: float
    safety: Safety
    patch: str = ""
    notes: tuple[Message, ...] = ()

    @property
    def priced(self) -> bool:
        """Whether its figures mean anything: it changes the job, and the changed job was estimated."""
        return bool(self.estimate.phases) and any(change.fields for change in self.changes)

    @property
    def needed_bytes(self) -> float:
        """What the process cannot do without; of another share of the card, what the engine takes with it."""
        if any("serving.gpu_memory_utilization" in change.fields for change in self.changes):
            return self.estimate.process_bytes
        return needed_of(self.estimate)


@dataclass(frozen=True, slots=True)
class SingleFix:
    """What one remedy alone would do: "saves 6.2 GiB: not enough"."""

    change: Change
    peak_bytes: int
    fits: bool | None
    """``None`` where the card is not known."""
    probability: float | None = None
    """That it fits."""
    cost: float = 0.0
    """Effort, what happens to the training, and time, in one number."""


@dataclass(frozen=True, slots=True)
class Question:
    """A missing fact that decides something, and how to find it."""

    fact: str
    why: Message
    how: Message | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """A small table of what neighbouring runs would need of one card, in bytes."""

    name: str
    """What rows and columns are: a key of the words catalogue, ``batch-length methods-cards formats-context``."""
    rows: tuple[Message | str, ...]
    columns: tuple[Message | str, ...]
    needed_bytes: tuple[tuple[float | None, ...], ...]
    fits: tuple[tuple[bool | None, ...], ...]


IMPLIED: Final = "the observed figures imply it"
"""Why a field has a value that nobody stated and the figures mean."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """An unstated field that the observed figures imply."""

    field: str
    value: Any
    probability: float
    why: Message


@dataclass(frozen=True, slots=True)
class Conflict:
    """Something stated that the observed figures contradict, or figures that no plausible run explains."""

    field: str
    """Empty where no single field is at fault."""
    stated: Any
    likely: Any
    why: Message


@dataclass(frozen=True, slots=True)
class Inference:
    """The job with what was inferred, priced."""

    job: Job
    priced: Priced
    inferred: tuple[Inferred, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    """One without a field: no plausible run explains what was seen, and none is priced."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Whether a job that was asked about or is planned would fit on its card."""

    answer: Answer
    probability: float | None = None
    """That it fits, 0..1; ``None`` where it is not known."""


@dataclass(frozen=True, slots=True)
class OtherFailure:
    """A failure that is not memory, and where to look instead."""

    kind: str
    """The name of its row in ``intake/outcomes``: ``nccl-timeout``, ``disk-full`` ..."""
    why: Message
    next: Message


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic of the knowledge base that the person's words ask about."""

    topic: Topic
    probability: float
    figure: Message | None = None
    """What the memory model computes for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The whole answer."""

    verdict: Verdict
    summary: tuple[Message, ...]
    evidence: Evidence
    job: Job
    causes: tuple[CauseFinding, ...] = ()
    tensors: tuple[TensorMatch, ...] = ()
    estimate: Estimate | None = None
    outlook: Outlook | None = None
    careful: bool = False
    """Whether open fields were filled as a careful person starts, not as the framework's defaults have it."""
    asked: Asked | None = None
    """What a question wants to know."""
    sides: tuple[Side, ...] = ()
    """Every run that a question asks about, where these are several: answer, table and document show these."""
    grid: Grid | None = None
    inferred: tuple[Inferred, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    other_failure: OtherFailure | None = None
    matches: tuple[MatchedCase, ...] = ()
    threads: tuple[KnownThread, ...] = ()
    """Public threads that read so much like it that they may tell of the same failure."""
    plans: tuple[Plan, ...] = ()
    singles: tuple[SingleFix, ...] = ()
    nothing_fits: Message | None = None
    """Where no setting of the hardware that is there fits: so, and the least hardware that would do."""
    questions: tuple[Question, ...] = ()
    warnings: tuple[Message, ...] = ()
    answers: tuple[Message, ...] = ()
    """To what is asked beside a failure."""
    topics: tuple[FoundTopic, ...] = ()
    explained: bool = False
    """Whether the topics are the answer: a concept is asked about, not a run."""


def action_key(cause: str, objective: str | None, checkpointing: object = None) -> str:
    """Which words say what to do about a cause where no plan fits: a model that is only run has no backward pass.

    :param checkpointing: the run's ``grad_ckpt``: what is on is not advised.
    """
    if cause in _OF_INFERENCE and objective == "inference":
        return f"cause.{cause}.action-of-inference"
    return f"cause.{cause}.action{'-checkpointed' if cause == 'activations' and checkpointing is True else ''}"


_OF_INFERENCE: Final = frozenset(
    {"activations", "logits", "inactive-setting", "version-regression", "long-sample", "host-ram", "weights-load"}
)
"""Causes that have words of their own for a model that is only run."""
