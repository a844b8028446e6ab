"""What was read, and where: the value every later stage reasons from.

Intake produces :class:`Evidence`; nothing later reads the text again. A rule can only use what is here, so it
cannot invent input.

What stages say to people, before it has a language: a key of the words catalogue and its values. The words live in
``report/words/{en,zh}/*.toml``; :func:`oomdoc.report.words.render` puts them together. A stage never holds a sentence
of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, fields
from types import MappingProxyType
from typing import Any, Final, Literal

from oomkb.dataclass import dataclass
from oomkb.errors import OomdocError


@dataclass(frozen=True, slots=True)
class Message:
    """``key`` is ``area.name`` (``cause.logits.size-matches``); ``values`` fill its placeholders."""

    key: str
    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def say(key: str, /, **values: Any) -> Message:
    """A message; sizes are passed as bytes under names ending in ``_bytes`` and shown as GiB."""
    return Message(key, MappingProxyType(values))


def problem_of(error: OomdocError) -> Message | str:
    """What an error says, with its place and the next step; its own words where it has them in English only."""
    if error.note is None:
        return str(error)
    said = say(error.note.key, **dict(error.note.values))
    return say("job.at", where=error.where, problem=said) if error.where else said


Origin = Literal["log", "config", "command", "code", "env", "prose", "option", "language-model"]
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Source:
    """One thing that was handed in: pasted text, or a file with its name."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """A place: source name, line and column (both from 1), and the line's text (masked, at most 300 characters)."""

    source: str
    line: int
    column: int = 1
    text: str = ""

    def quote(self) -> str:
        """The beginning of the line, up to a word's end."""
        return shortened_to(self.text.strip(), _MAX_CHARACTERS_OF_QUOTE)


_MAX_CHARACTERS_OF_QUOTE: Final = 100


def shortened_to(text: str, limit: int) -> str:
    """A text of at most ``limit`` characters, cut behind a word where it is longer."""
    if len(text) <= limit:
        return text
    cut = text[:limit]
    at = cut.rfind(" ")
    return f"{cut[: at if at > limit // 2 else limit].rstrip()}…"


@dataclass(frozen=True, slots=True)
class Fact:
    """One value that the input states (or hints at) and where it was read.

    ``name`` is a fact name of the contract (``gpu``, ``tried_gib``, ``zero_stage`` ...) or a dotted field of the job
    document (``sharding``, ``lora.r``, ``serving.max_num_seqs`` ...). Sizes are GiB where the name says so.
    """

    name: str
    value: Any
    span: Span
    origin: Origin
    confidence: float = 1.0
    """1.0 read from an explicit setting or number; below 0.5 is a hint (a name inside a path), never ``stated``."""

    @property
    def stated(self) -> bool:
        """Whether the input says so outright."""
        return self.confidence >= 0.5


@dataclass(frozen=True, slots=True)
class Signal:
    """A recognised line or pattern that speaks for a kind of failure, a phase or a state.

    ``name`` is the parser's stable name, for example ``torch-cuda-oom``, ``kernel-oom-kill``, ``exit-137``,
    ``shm-bus-error``, ``triton-out-of-resources``, ``vllm-kv-cache-too-small``, ``growth-over-steps``.
    ``data`` holds what the line states, sizes in bytes under names that end in ``_bytes``.
    """

    name: str
    span: Span
    data: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Sign:
    """A row of the sign tables (``intake/signs/<cause>.toml``) that the input matches: something a machine printed.

    ``name`` is ``<cause>/<row id>``, for example ``logits/loss-function``.
    """

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that the person says about the failure, from the closed list of ``intake/statements``.

    ``name`` is the id of the list, for example ``worked-before-upgrade``.
    """

    name: str
    span: Span
    probability: float = 1.0
    """How sure the reader is that the sentence says this, 0..1."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened, before any cause: which memory ran out, which other failure was seen, or that nothing failed.

    ``name`` is the id of the row that was matched (``nccl-timeout``, ``torch-cuda-oom``, ``memory-question`` ...).
    """

    kind: Literal["device", "host", "shared-memory", "engine", "said", "question", "healthy", "other"]
    """``engine``: a server refuses its cache or its context. ``said``: no message, but the person plainly says that
    memory ran out. ``question``: a question or a plan with no failure. ``other``: a failure that is not memory."""
    name: str
    span: Span
    memory: Literal["device", "host", "shared-memory"] | None = None
    """Which memory ran out, for the first five kinds."""
    confidence: float = 1.0
    printed: bool = True
    """Whether a program wrote the line, not a person."""

    @property
    def fails(self) -> bool:
        """Whether something failed, for memory or for another reason."""
        return self.kind not in ("question", "healthy")

    @property
    def tells_of_shortage(self) -> bool:
        """Whether a card refused memory, or a person says that memory ran out."""
        return self.kind in ("device", "said")


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a traceback."""

    file: str
    function: str
    span: Span
    number: int | None = None
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failure in the input: what the message states, in bytes, and the traceback that led to it.

    ``kind`` is ``device`` (GPU memory), ``host`` (RAM), ``shared-memory`` (/dev/shm), ``other`` (a look-alike).
    """

    kind: Literal["device", "host", "shared-memory", "other"]
    signal: Signal
    phase: str = "unknown"
    """``load engine-init optimizer-init forward loss backward optimizer-step eval generate save unknown`` ..."""
    frames: tuple[Frame, ...] = ()
    requested_bytes: int | None = None
    capacity_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    reserved_unallocated_bytes: int | None = None
    free_bytes: int | None = None
    process_bytes: int | None = None
    other_process_bytes: int | None = None
    step: int | None = None
    """The training step at which it failed, where the log tells."""
    cascade: bool = False
    """True for what merely follows another failure (SIGTERM, NCCL time-out)."""


_IN_BYTES: Final = tuple(f.name.removesuffix("_bytes") for f in fields(Failure) if f.name.endswith("_bytes"))
SIZES: Final[Mapping[str, str]] = MappingProxyType(
    {f"{'tried' if name == 'requested' else name}_gib": f"{name}_bytes" for name in _IN_BYTES}
)
"""The facts that are sizes of a failure (``tried_gib`` ...), and the part of :class:`Failure` that each is."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a person's config or command as written: ``per_device_train_batch_size`` = 4."""

    key: str
    value: Any
    span: Span
    known: bool = True
    """Whether the framework's table knows the key."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """The framework that a configuration was taken for."""

    name: str
    """Canonical, or ``unknown``."""
    probability: float
    """How sure that is, 0..1; of ``unknown``: how probable the nearest known framework is."""
    unknown_keys: float = 0.0
    """Share of the configuration's keys that are not known (of ``unknown``: to the nearest framework), 0..1."""
    unread: tuple[Setting, ...] = ()
    """Settings that were not understood although their names speak of memory."""
    guessed: tuple[str, ...] = ()
    """Fields that were taken from an unknown framework's keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A config file, command or snippet found in the input, with the framework it belongs to."""

    framework: str
    form: str
    """``yaml json toml shell python env ini``"""
    source: str
    first_line: int
    text: str
    """The raw document (masked), which a patch is made against."""
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True, slots=True)
class Inactive:
    """A setting that is given but not in effect, with the reason's message key (see ``report/words``)."""

    setting: str
    reason: str
    span: Span
    values: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two sources that disagree; ``kept`` is the more specific one."""

    kept: Fact
    dropped: Fact


@dataclass(frozen=True, slots=True)
class NamedCause:
    """A cause that a language model names, and the words of the text that it rests on."""

    cause: str
    span: Span
    sure: Literal["high", "medium", "low"] = "medium"
    """As the model says of itself."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """A claim of a language model that was not taken."""

    claim: str
    """Its kind: ``what``, ``cause``, ``fact`` or ``statement``, or ``reply`` for a whole one."""
    reason: str
    """``quote unknown number value form``: no such quote, not of the closed list, no such number in the quote, a value
    that the quote does not hold, or no claim at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReading:
    """What a language model read of the text, as far as it was checked and taken."""

    outcome: Outcome | None = None
    causes: tuple[NamedCause, ...] = ()
    """Most probable first."""
    facts: tuple[Fact, ...] = ()
    statements: tuple[Statement, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    trouble: str = ""
    """Why there is no reading, of ``oomdoc.language_model.REASONS``; empty where there is one."""


@dataclass(frozen=True, slots=True)
class Supposed:
    """A question beside a failure, and the run that it supposes."""

    text: str
    facts: Mapping[str, Fact]
    settings: Mapping[str, Any]
    """Job fields that its words name beyond the facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything read from the input."""

    facts: Mapping[str, Fact] = field(default_factory=lambda: _EMPTY)
    """The kept fact per name."""
    signals: tuple[Signal, ...] = ()
    failures: tuple[Failure, ...] = ()
    """In order of appearance; :attr:`root` is the one to explain."""
    documents: tuple[Document, ...] = ()
    inactive: tuple[Inactive, ...] = ()
    outcome: Outcome | None = None
    """What happened; ``None`` where the input shows nothing that could be named."""
    other_outcomes: tuple[Outcome, ...] = ()
    """Further failures that were seen and are not the one to explain."""
    signs: tuple[Sign, ...] = ()
    statements: tuple[Statement, ...] = ()
    cause_words: Mapping[str, float] = field(default_factory=lambda: _EMPTY)
    """Cause -> what the words of the text say of it, 0..1."""
    conflicts: tuple[Conflict, ...] = ()
    versions: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    """library -> version, PyPI names in lower case."""
    worked_with: tuple[str, str] | None = None
    """The library (empty: not named) and the release with which it is said to work."""
    framework: str | None = None
    recognised: Recognised | None = None
    """What the configuration among the input was taken for; ``None`` where there is none."""
    language: Literal["en", "zh"] = "en"
    digest: str = ""
    """The retrieval query: the lines worth searching by (failure line, frames, prose), masked, at most a few KB."""
    prose: str = ""
    """What the person wrote in their own words, masked."""
    supposed: tuple[Supposed, ...] = ()
    """Questions beside a failure that ask whether another form of the run would do; nothing else is read from them."""
    warnings: tuple[Message | str, ...] = ()
    assigned: frozenset[tuple[str, str]] = frozenset()
    """Keys with their values that stand anywhere in the text (:mod:`oomdoc.intake.assigned`)."""
    language_model: ModelReading | None = None
    """What a language model read; ``None`` where none was asked."""

    @property
    def root(self) -> Failure | None:
        """The first failure that is not a consequence of another."""
        real = [f for f in self.failures if not f.cascade]
        return real[0] if real else None

    def value(self, name: str, default: Any = None) -> Any:
        """The value of a stated fact."""
        fact = self.facts.get(name)
        return fact.value if fact is not None and fact.stated else default

    def find(self, *names: str) -> Iterator[Signal]:
        """The signals with one of these names."""
        return (s for s in self.signals if s.name in names)
