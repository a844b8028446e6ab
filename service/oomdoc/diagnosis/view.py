"""What a rule may look at: the evidence, the job, its price, the matched tensors and cases. Nothing else.

A rule describes most of what it knows as :class:`Clue` values: a phrase, a frame of a traceback or a signal, and
how much it says (:data:`WEAK` ... :data:`DECISIVE`, the only weights there are).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from oomdoc.diagnosis.cases import Vote
from oomdoc.diagnosis.regressions import Advisory
from oomdoc.diagnosis.result import Reason, TensorMatch
from oomdoc.evidence import Evidence, Failure, Span
from oomdoc.intake.sieve import alternatives
from oomdoc.messages import say
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.memory.shape import ModelShape
from oomkb.retrieval.threads import KnownThread
from oomkb.units import GIB

__all__ = ["DECISIVE", "FAIR", "STRONG", "WEAK", "Clue", "View", "weigh_clues"]

# The four grades of evidence, in log-odds: a factor of about 2, 4, 12 and 55 on the odds of the cause.
WEAK: Final = 0.7
FAIR: Final = 1.4
STRONG: Final = 2.5
DECISIVE: Final = 4.0

_NAMED: Final = 2.0
"""The most that a function named in passing says."""
_WRITTEN: Final = 0.7
"""What a call in a pasted script says."""
_SHOWN: Final = 0.9
_HEARD: Final = 0.55
"""What a phase says that was only told: the words that told it speak for the cause already."""
_TEXT_LIMIT: Final = 8_000
_QUOTE_LIMIT: Final = 90
_INNER_FRAMES: Final = 10
# The allocator's standing advice is in every message and says nothing about this failure.
_ADVICE: Final = re.compile(
    r"if reserved[^\n]{0,160}?fragmentation\.?|(?:try setting )?max_split_size_mb to avoid fragmentation\.?"
    r"|see documentation for memory management[^\n]{0,160}"
    r"|if reserved but unallocated memory is large[^\n]{0,120}"
    r"|and [\d.]{1,12} [gmk]?i?b is reserved by pytorch but unallocated"
    r"|\(e\.g\., cuda graphs\)"
)
_TRACE_LINE: Final = re.compile(
    r'^[^\n]{0,60}file "[^\n]{0,300}|^\s{2,}\S[^\n]{0,300}|^[^\n]{0,80}\.(?:py|cpp|cu|h):\d[^\n]{0,300}', re.M
)
_TOLD_FRAMES: Final = re.compile(r'traceback|file "|\.(?:py|cpp|cu):\d|, line \d')
_ASSIGNS: Final = re.compile(r"\s{0,40}[a-z_][\w., ]{0,60} ?= ?(?!self\.)[a-z_][\w.]{0,80}\.from_pretrained\(")
"""What every script has a line of: without a traceback it tells what is called, not where it failed."""

_TRAINS: Final = (
    r"\bgrpo\b|\bppo\b|\brlhf\b|\brollouts?\b|\b(?:during|while|after|when) (?:\w{1,12} )?training\b"
    r"|训练(?:了|完|过程|时|一|几)"
)

_TRAINING: Final = (
    r"\btrain(?:ing|s)?\b(?! ?(?:data|set|ed))|\bfine-?tun(?:e|ing)\b|微调|训练|torch\.optim\.|optimizer\.step"
    r"|loss\.backward"
)
"""Words of a training where no setting of it is given."""

TERMS: Final[Mapping[str, tuple[str, ...]]] = {
    "logits": ("logit", "loss", "vocab", "log_soft", "logprob"),
    "attention-scores": ("attention_score", "score"),
    "vision-tokens": ("vision", "image", "visual"),
    "kv-cache": ("kv",),
    "rollout-engine": ("rollout", "engine"),
    "extra-models": ("reference", "reward", "critic", "teacher", "extra"),
    "zero3-gather": ("gather", "bucket", "prefetch", "unshard"),
    "cuda-graph": ("graph",),
    "optimizer-init": ("optimizer", "master", "moment"),
    "model-states": ("weight", "grad", "param", "adapter"),
    "activations": ("activation", "checkpoint", "hidden", "mlp", "residual"),
}
"""Cause -> parts of the memory model's term names that belong to it; the first that fits counts."""


@dataclass(frozen=True, slots=True)
class Clue:
    """One thing that speaks for a cause. Patterns are matched against lower-case text."""

    key: str
    """The last part of its message's key, ``cause.<cause>.<key>``."""
    weight: float
    says: str = ""
    """Pattern over what the person wrote and the lines worth reading."""
    frames: str = ""
    """Pattern over the innermost frames of the traceback."""
    signals: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    """Only where the failure is in one of these phases (with no pattern: that alone)."""
    prose: bool = False
    """Whether ``says`` is about what the person wrote only: a log line cannot compare versions."""
    unless: str = ""
    """Pattern over the text that takes the clue back."""

    def __post_init__(self) -> None:
        """Make the expressions now, uncompiled, so that the table of their literals can be written."""
        for pattern in filter(None, (self.says, self.frames, self.unless)):
            alternatives(pattern)


@dataclass(frozen=True, kw_only=True)
class View:
    """Everything a rule may use."""

    evidence: Evidence
    job: Job
    estimate: Estimate | None = None
    shape: ModelShape | None = None
    tensors: tuple[TensorMatch, ...] = ()
    votes: tuple[Vote, ...] = ()
    """The known cases most like it."""
    sounds: Mapping[str, float] = field(default_factory=dict)
    """Cause -> how much the text sounds like questions about it, in standard deviations over the causes."""
    opinions: Mapping[str, float] = field(default_factory=dict)
    """Log-probability of each cause by the wording of the report (:mod:`oomkb.retrieval.wording`)."""
    threads: tuple[KnownThread, ...] = ()
    """The public threads it is most like (:mod:`oomkb.retrieval.threads`)."""
    advisories: tuple[Advisory, ...] = ()
    """Known regressions that a stated version lies in."""
    suspects: tuple[Advisory, ...] = ()
    """Known regressions that would explain it, if a version that is not stated lay in their range."""
    settings_by_key: Mapping[str, Any] = field(default_factory=dict)

    # What was read -------------------------------------------------------------------------------------------------

    @property
    def failure(self) -> Failure | None:
        """The failure to explain."""
        return self.evidence.root

    @cached_property
    def phase(self) -> str:
        """The phase that failed: what the input states, else what the failure's place tells."""
        stated = self.evidence.value("phase")
        if stated and stated != "unknown":
            return str(stated)
        return self.failure.phase if self.failure is not None else "unknown"

    @property
    def phase_shown(self) -> bool:
        """Whether frames or messages show the phase; else it was told or guessed, by words that rules read as well."""
        fact = self.evidence.facts.get("phase")
        return fact is None or fact.confidence >= _SHOWN

    @cached_property
    def text(self) -> str:
        """The words worth reading, in lower case: the person's own, the failure's lines, the frames."""
        evidence = self.evidence
        # Of each kind of signal the first two: a log of ten thousand steps says the same thing ten thousand times.
        signals: dict[str, list[str]] = {}
        for signal in evidence.signals:
            signals.setdefault(signal.name, []).append(signal.span.text)
        parts = [evidence.prose, evidence.digest, *(text for texts in signals.values() for text in texts[:2])]
        seen: dict[str, None] = {}
        for part in parts:
            for line in part.splitlines():
                seen.setdefault(line.rstrip().lower())
        return _ADVICE.sub(" ", "\n".join(seen)[:_TEXT_LIMIT])

    @cached_property
    def trace(self) -> str:
        """The innermost frames of the failure that is to be explained, else what looks like frames in the text."""
        frames = self.failure.frames if self.failure is not None else ()
        if frames:
            shown = (f"{f.file} {f.function} {f.code}".lower() for f in frames[-_INNER_FRAMES:])
            return "\n".join(frame for frame in shown if _ASSIGNS.match(frame) is None)
        lines = (m[0] for m in _TRACE_LINE.finditer(self.text))
        return "\n".join(lines if self._told_frames else (line for line in lines if _ASSIGNS.match(line) is None))

    @cached_property
    def _told_frames(self) -> bool:
        return _TOLD_FRAMES.search(self.text) is not None

    def scripted(self, span: Span) -> bool:
        """Whether a line is an assignment of a program that was pasted, with no traceback anywhere."""
        return not self._told_frames and _ASSIGNS.match(span.text.lower()) is not None

    @cached_property
    def prose(self) -> str:
        """What the person wrote, in lower case; where nothing was told apart from logs, all of the text."""
        return self.evidence.prose.lower()[:_TEXT_LIMIT] or self.text

    def says(self, pattern: str, *, prose: bool = False) -> Span | None:
        """The first line of the text that holds the pattern."""
        text = self.prose if prose else self.text
        found = alternatives(pattern).search(text)
        return self._span(found, text) if found else None

    def traces(self, pattern: str) -> Span | None:
        """The innermost frame that holds the pattern."""
        last = alternatives(pattern).last(self.trace)
        if last is None:
            return None
        for frame in reversed(self.failure.frames if self.failure else ()):
            if last[0] in f"{frame.file} {frame.function} {frame.code}".lower():
                return frame.span
        return self._span(last, self.trace)

    def signal(self, *names: str) -> Span | None:
        """Where one of these signals was seen."""
        return next((s.span for s in self.evidence.find(*names)), None)

    def setting(self, *names: str) -> Any:
        """The value of a config key or command option by its plain name, or ``None``."""
        for name in names:
            if name in self.settings_by_key:
                return self.settings_by_key[name]
        return None

    def _span(self, found: re.Match[str], text: str) -> Span:
        start = text.rfind("\n", 0, found.start()) + 1
        end = text.find("\n", found.end())
        line = text[start : end if end >= 0 else len(text)].strip()
        if len(line) > 200:
            line = text[max(start, found.start() - 60) : found.end() + 80].strip().replace("\n", " ")
        return self._places.get(line[:200]) or Span("", 0, 1, line[:300])

    @cached_property
    def _places(self) -> Mapping[str, Span]:
        evidence = self.evidence
        spans = [s.span for s in evidence.signals] + [f.span for f in evidence.facts.values()]
        return {s.text.strip().lower()[:200]: s for s in spans if s.text}

    # What is known of the run ---------------------------------------------------------------------------------------

    @property
    def objective(self) -> str | None:
        """``sft``, ``dpo``, ``inference`` ... as far as known."""
        return self.job.objective

    @cached_property
    def serving(self) -> bool:
        """Whether nothing is trained: an engine's traceback may be that of a trainer's rollouts."""
        return self.job.objective == "inference" and re.search(_TRAINS, self.text) is None

    @property
    def training(self) -> bool:
        """Whether the input says that something is trained."""
        named = any(self.stated(n) for n in ("objective", "method", "optimizer", "micro_batch", "sharding"))
        return not self.serving and (named or self._told_to_train)

    @cached_property
    def _told_to_train(self) -> bool:
        return alternatives(_TRAINING).search(self.prose) is not None

    def stated(self, name: str) -> Any:
        """A field of the job, or ``None`` where a framework's default was filled in."""
        return None if name in self.job.assumed else self.job.get(name)

    @property
    def ranks(self) -> int | None:
        """Training processes in all, as far as the input tells."""
        job = self.job
        if self.stated("world"):
            return job.world
        gpus = self.stated("gpus")
        return int(gpus) * (job.nodes or 1) if gpus else None

    # Sizes ----------------------------------------------------------------------------------------------------------

    def bytes_of(self, name: str) -> int | None:
        """``requested``, ``capacity``, ``allocated``, ``reserved``, ``free``, ``process`` ... of the failure."""
        failure = self.failure
        value = getattr(failure, f"{name}_bytes", None) if failure is not None else None
        if value is None and name == "capacity":
            if self.estimate is not None and self.estimate.capacity_bytes:
                return round(self.estimate.capacity_bytes)
            stated = self.job.capacity_gib or self.evidence.value("capacity_gib")
            return round(stated * GIB) if stated else None
        return value

    @cached_property
    def cached_bytes(self) -> int | None:
        """Reserved by PyTorch but not allocated, as stated or by subtraction."""
        direct = self.bytes_of("reserved_unallocated")
        if direct is not None:
            return direct
        reserved, allocated = self.bytes_of("reserved"), self.bytes_of("allocated")
        return None if reserved is None or allocated is None else max(reserved - allocated, 0)

    @cached_property
    def sureness(self) -> float:
        """How much of what decides the estimate is stated rather than assumed, 0..1."""
        wanted: tuple[str, ...] = ("model", "gpu")
        if not self.serving:
            wanted = (*wanted, "method", "seq_len", "micro_batch")
        return sum(self._told(name) for name in wanted) / len(wanted)

    def _told(self, name: str) -> bool:
        if name == "gpu":
            return self.bytes_of("capacity") is not None
        if name == "model":
            return self.stated("model") is not None or self.stated("params_b") is not None
        if name == "method":
            return any(self.stated(n) is not None for n in ("method", "quant", "optimizer", "lora"))
        return self.stated(name) is not None

    @cached_property
    def fullness(self) -> float | None:
        """Predicted process memory over capacity, where both are known."""
        estimate, capacity = self.estimate, self.bytes_of("capacity")
        if estimate is None or not capacity:
            return None
        return estimate.process_bytes / capacity

    @cached_property
    def shares(self) -> Mapping[str, float]:
        """Cause -> its part of the predicted peak, 0..1."""
        if self.estimate is None:
            return {}
        terms = self.estimate.phases[self.estimate.peak_phase].terms_bytes
        total = sum(terms.values()) or 1.0
        shares: dict[str, float] = {}
        for name, size in terms.items():
            cause = owner_of(name)
            if cause:
                shares[cause] = shares.get(cause, 0.0) + size / total
        return shares

    @cached_property
    def state_bytes(self) -> float | None:
        """Predicted weights, gradients and optimizer states that one GPU holds for good."""
        if self.estimate is None:
            return None
        best = 0.0
        for phase in self.estimate.phases.values():
            best = max(
                best, sum(v for k, v in phase.terms_bytes.items() if owner_of(k) in ("model-states", "optimizer-init"))
            )
        return best

    def tensors_for(self, cause: str) -> Sequence[TensorMatch]:
        """The matched tensors that speak for a cause, best first."""
        return sorted((t for t in self.tensors if t.cause == cause), key=lambda t: -t.match)


def owner_of(term: str) -> str | None:
    """The cause to which a term of the memory model belongs."""
    name = term.lower().replace("-", "_")
    return next((cause for cause, parts in TERMS.items() if any(p in name for p in parts)), None)


def weigh_clues(view: View, cause: str, clues: Iterable[Clue]) -> Iterator[Reason]:
    """A reason for each clue that the view holds."""
    for clue in clues:
        span, weight = _holds(view, clue), clue.weight
        if clue.phases and not (clue.says or clue.frames or clue.signals) and not view.phase_shown:
            weight *= _HEARD
        if span is None and clue.frames and not (view.failure and view.failure.frames):
            # A function that is merely named, without a traceback, may be a call that went well.
            span = view.says(clue.frames)
            weight = min(clue.weight, _WRITTEN if span is not None and view.scripted(span) else _NAMED)
        if span is not None and not (clue.unless and view.says(clue.unless)):
            quote = span.text.strip()[:_QUOTE_LIMIT]
            spans = (span,) if span.text or span.line else ()
            yield Reason(weight, say(f"cause.{cause}.{clue.key}", quote=quote), spans)


def _holds(view: View, clue: Clue) -> Span | None:
    if clue.phases and view.phase not in clue.phases:
        return None
    if clue.signals and (span := view.signal(*clue.signals)):
        return span
    if clue.frames and (span := view.traces(clue.frames)):
        return span
    if clue.says and (span := view.says(clue.says, prose=clue.prose)):
        return span
    if clue.phases and not (clue.signals or clue.frames or clue.says):
        return view.failure.signal.span if view.failure else Span("", 0)
    return None
