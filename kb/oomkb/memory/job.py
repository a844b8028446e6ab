"""The job document: one run that somebody started or wants to start.

Every field may be missing (``None``: not stated). :meth:`Job.from_document` reads YAML/JSON shaped
dictionaries strictly (a wrong value is refused with its field and what would be valid, an unknown key is kept
in ``extra``), :meth:`Job.document` writes them back, and :meth:`Job.with_fields` derives another job: a fix, a
what-if in a chat and the planner's search are all that one call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass, replace
from functools import lru_cache
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.errors import JobError, note
from oomkb.limits import check_tree, shown
from oomkb.memory.job_parts import PARTS, Assumption, ExtraModel, Loop, Lora, Rollout, Serving
from oomkb.memory.job_reading import read_field

__all__ = ["FIELD_NAMES", "Assumption", "ExtraModel", "Job", "JobDraft", "Loop", "Lora", "Rollout", "Serving"]
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
_NO_SUCH_FIELD: Final = note("job.no-such-field")
_MAPS: Final = frozenset({"buckets", "versions", "env"})
_BESIDE_A_RUN: Final = frozenset(
    {"planned", "failed", "versions", "env", "host_gib", "framework", "extra", "assumed", "gpu"}
)
"""Fields that may be learnt of a run without making it another."""
_DOTTED: Final = _MAPS | PARTS.keys() | {"model"}
"""Fields of which one part can be named; a model is one where it is described by its configuration, not named."""
_PART_KINDS: Final = frozenset(PARTS.values())


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run; the fields are those of the contract's job document, in its order."""

    model: str | Mapping[str, Any] | None = None
    params_b: float | None = None
    objective: str | None = None
    method: str | None = None
    lora: Lora | None = None
    quant: str | None = None
    param_dtype: str | None = None
    autocast: str | None = None
    optimizer: str | None = None
    optimizer_impl: str | None = None
    micro_batch: int | None = None
    grad_accum: int | None = None
    seq_len: int | None = None
    packing: bool | None = None
    grad_ckpt: bool | str | None = None
    attention: str | None = None
    fused_ce: bool | None = None
    sharding: str | None = None
    reshard_after_forward: bool | None = None
    buckets: Mapping[str, float] = field(default_factory=lambda: _EMPTY)
    world: int | None = None
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    sp: int | None = None
    ep: int | None = None
    nodes: int | None = None
    gpus: int | None = None
    offload: tuple[str, ...] | None = None
    gpu: str | None = None
    capacity_gib: float | None = None
    max_pixels: int | None = None
    images: int | None = None
    video_frames: int | None = None
    generations: int | None = None
    rollout: Rollout | None = None
    extra_models: tuple[ExtraModel, ...] | None = None
    serving: Serving | None = None
    framework: str | None = None
    versions: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    env: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    # Beyond the contract's table: what later stages need to price a run.
    eval_micro_batch: int | None = None
    log_prob_batch: int | None = None
    """Sequences of one pass for log-probabilities on one GPU, in reinforcement learning."""
    micro_tokens: int | None = None
    """Tokens of a micro-batch on one GPU, where batches are filled by tokens and not by samples."""
    prompt_len: int | None = None
    completion_len: int | None = None
    compile: bool | None = None
    nvme_offload: bool | None = None
    trained_layers: int | None = None
    """The last layers alone are trained, or get adapters; 0 for all."""
    host_gib: float | None = None
    """Host memory of one machine."""
    loop: Loop | None = None
    planned: bool | None = None
    """Whether no configuration exists yet: what is open is as a careful person starts, not as the framework has it."""
    failed: bool | None = None
    """Whether this very run was seen to lack the card's memory; no longer known once a field of it changes."""
    extra: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Keys this version does not know, kept as given."""
    assumed: Mapping[str, Assumption] = field(default_factory=lambda: _EMPTY)
    """Fields filled in by oomdoc rather than stated, by (dotted) name."""

    def __hash__(self) -> int:
        """Of fields in which runs differ; mappings have no hash."""
        sizes = (self.micro_batch, self.seq_len, self.world, self.tp, self.gpu)
        return hash((self.framework, self.method, self.quant, self.sharding, self.grad_ckpt, *sizes))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Job:
        """Read a job document.

        :raises JobError: for a value that describes no possible run; ``where`` is the field.
        """
        if not isinstance(document, Mapping):
            raise JobError(
                "a job is a mapping of fields", where="job", hint="see `oomdoc estimate --help` for an example"
            )
        known: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for key, value in document.items():
            if value is None:
                continue
            if key in FIELD_NAMES:
                known[key] = read_field(key, value)
            else:
                extra[str(key)] = value
        check_tree(extra, where="job", error=JobError)
        if isinstance(known.get("sp"), bool):
            known["sp"] = _group(known["sp"], known.get("tp"))
        return cls(**known, extra=MappingProxyType(extra) if extra else _EMPTY)

    def document(self) -> dict[str, Any]:
        """The contract's form: plain values, nothing that is not known."""
        stated = {name: getattr(self, name) for name in _ORDER if name not in ("assumed", "extra")}
        known = {name: _plain(value) for name, value in stated.items() if value is not None and value != {}}
        return {**known, **self.extra}

    def with_fields(self, changes: Mapping[str, Any]) -> Job:
        """A job with (dotted) fields set, for example ``{"micro_batch": 1, "lora.r": 16}``.

        A value of ``None`` clears the field. A field that is set is no longer assumed.

        :raises JobError: for an unknown field or an impossible value.
        """
        document: dict[str, Any] = {}
        for name, value in changes.items():
            head, _, tail = (name, "", "") if name in FIELD_NAMES else name.partition(".")
            if head not in FIELD_NAMES or (tail and head not in _DOTTED):
                raise JobError(
                    "no such field in a job", where=name, hint="see the job document's table", note=_NO_SUCH_FIELD
                )
            if not tail:
                document[head] = value
                continue
            whole = _plain(document.get(head, getattr(self, head))) or {}
            if not isinstance(whole, Mapping):
                problem = note("job.not-mapping", value=shown(whole))
                raise JobError(f"{shown(whole)} is not a mapping", where=head, note=problem)
            document[head] = {k: v for k, v in whole.items() if k != tail} | ({} if value is None else {tail: value})
        known: dict[str, Any] = {
            k: _EMPTY if v is None and k in _MAPS else None if v is None else read_field(k, v)
            for k, v in document.items()
        }
        assumed = {**self.assumed}
        for name in (*document, *changes):
            assumed.pop(name, None)
        changed = _copied(self)
        if isinstance(known.get("sp"), bool):
            known["sp"] = _group(known["sp"], known.get("tp", changed.tp))
        if self.failed and not _BESIDE_A_RUN.issuperset(known):
            known = {"failed": None, **known}
        vars(changed).update(known, assumed=MappingProxyType(assumed))
        return changed

    def get(self, name: str) -> Any:
        """The value of a (dotted) field, or ``None``."""
        head, _, tail = name.partition(".")
        value = getattr(self, head, None)
        if not tail or value is None:
            return value
        # What it is made of is asked first: whether something is a mapping takes ten times as long.
        plain = type(value) not in _PART_KINDS and isinstance(value, Mapping)
        return value.get(tail) if plain else getattr(value, tail, None)

    @property
    def has_model(self) -> bool:
        """Whether the model is named, or its size given."""
        return self.model is not None or self.params_b is not None

    @property
    def has_card(self) -> bool:
        """Whether the card is named, or its memory given."""
        return self.gpu is not None or self.capacity_gib is not None

    def runs_on(self, *words: str) -> bool:
        """Whether the name of its framework holds one of some words."""
        return _holds_one(self.framework or "", words)

    def release(self, package: str) -> tuple[int, ...]:
        """The stated version of a package as numbers; empty where none is stated."""
        return version(self.versions.get(package, ""))

    def assuming(self, values: Mapping[str, Assumption]) -> Job:
        """Fill fields that are not stated and mark them as assumed."""
        missing = {k: a for k, a in values.items() if self.get(k) is None}
        if not missing:
            return self
        filled = self.with_fields({k: a.value for k, a in missing.items()})
        return replace(filled, assumed=MappingProxyType({**self.assumed, **missing}))


@lru_cache(maxsize=4096)
def _holds_one(name: str, words: tuple[str, ...]) -> bool:
    """Whether a name holds one of some words: pricing asks a thousand times in an answer, always the same."""
    low = name.lower()
    return any(word in low for word in words)


@lru_cache(maxsize=512)
def version(text: str) -> tuple[int, ...]:
    """``"4.45.2.post1"`` as ``(4, 45, 2)``; empty where unknown."""
    numbers = takewhile(str.isdecimal, text.split(".")[:4])
    return tuple(map(int, numbers))


_ORDER: Final = tuple(f.name for f in fields(Job))
FIELD_NAMES: Final = frozenset(_ORDER) - {"extra", "assumed"}
"""What a job document may say."""


class JobDraft:
    """A private copy of a job in which fields that nobody stated are filled one after the other.

    Completing a job takes some thirty such steps; a new job for each would cost more than the estimate.
    """

    __slots__ = ("_assumed", "job")

    def __init__(self, job: Job) -> None:
        self.job = _copied(job)
        """The job as known so far; to be read only, and not to be kept."""
        self._assumed = dict(job.assumed)

    def assume(self, name: str, value: Any, assumption: Assumption) -> None:
        """Set a (dotted) field that is not stated to a value that was checked, and mark it as assumed."""
        values, head = vars(self.job), name
        if name not in values:
            head, _, tail = name.partition(".")
            value = _part_with(values[head] or PARTS[head](), tail, value)
        values[head] = value
        self._assumed[name] = assumption

    def done(self) -> Job:
        """The finished job; nothing more is to be assumed of this draft."""
        vars(self.job)["assumed"] = MappingProxyType(self._assumed)
        return self.job


def _group(on: bool, tp: int | None) -> int:
    """``sp: true`` is sequence parallelism over the tensor-parallel group: its size."""
    return (tp or 1) if on else 1


def _copied(job: Job) -> Job:
    """As :func:`dataclasses.replace`, twenty times as fast."""
    copy = object.__new__(Job)
    vars(copy).update(vars(job))
    return copy


def _part_with(part: Any, name: str, value: Any) -> Any:
    """A part of a job with one of its fields set: as :func:`dataclasses.replace`, several times as fast."""
    changed = object.__new__(type(part))
    for each in part.__slots__:
        object.__setattr__(changed, each, getattr(part, each))
    object.__setattr__(changed, name, value)
    return changed


def _plain(value: Any) -> Any:
    """A field as plain values."""
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return dict(value)
    if not is_dataclass(value):
        return value
    found = {f.name: getattr(value, f.name) for f in fields(value)}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items() if v is not None}
