"""Filling what a job leaves unsaid with what its framework would do, each value with its reason.

What a framework's own settings can do, and the lines by which a remedy is said in its words. A record's ``features``
are what a remedy may ask for, as read in the framework's source at the versions of the record; ``feature@since``
needs at least that version (an unknown one counts as recent), and the name of another framework stands for all of its
features. Its ``lines`` are a remedy's name and the text to type. A record with neither has those of its base. What is
in no record is taken to be written in plain PyTorch and transformers, where everything of the Hugging Face layer is
one argument away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from oomkb.errors import JobError
from oomkb.frameworks.declared import Record, default_of, records
from oomkb.frameworks.lookup import find, lineage
from oomkb.frameworks.model import ENGINE, PLAIN, Default, in_range
from oomkb.memory.job import Assumption, Job, JobDraft, version
from oomkb.memory.job_reading import read_dotted
from oomkb.tables import read_toml

_ANYWHERE: Final = "precompute_ref packing padding_free"
"""What a script of one's own can be given, beside the features of its Hugging Face layer."""
_NOT_IN_OLD: Final = "grad_ckpt.offload"
_UNRECORDED: Final[Mapping[str, str]] = {
    "lightning": PLAIN,
    "colossalai": "micro_batch seq_len grad_ckpt attention zero.gemini tp pp lora env",
}
UNKNOWN: Final = "unknown"
"""A framework that a configuration showed and that is not known."""
_ANY: Final = "any framework"
_PLANNED: Final = "a plan, not a run: a careful start"
_TABLE: Final = read_toml(Path(__file__).with_name("defaults.toml"))
_TRAINING_ONLY: Final = frozenset(_TABLE["training_only"].split())
_PLAIN: Final = Assumption(PLAIN, "no framework is stated")
_ENGINE: Final = Assumption(ENGINE, "no engine is stated")


@cache
def _by_name() -> Mapping[str, Record]:
    return {record.name: record for record in records()}


def _spelled_out(features: str) -> Iterator[str]:
    for word in features.split():
        other = _by_name().get(word)
        if other is None or not other.features:  # ``fsdp`` is a word of both
            yield word
        else:
            yield from _spelled_out(other.features)


@cache
def _features(framework: str | None, serving: bool) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Features with the version since which they are there, and the packages whose version that is."""
    owner = next((record for record in lineage(framework) if record.features), None)
    packages: tuple[str, ...] = ()
    if owner is not None:
        text, packages = owner.features, (owner.package, owner.name)
    elif framework in _UNRECORDED:
        text, packages = _UNRECORDED[framework or ""], (framework or "",)
    else:
        text = ENGINE if serving else f"{PLAIN} {_ANYWHERE}"
    pairs = (word.partition("@") for word in _spelled_out(text))
    return {feature: since for feature, _, since in pairs if packages or feature != _NOT_IN_OLD}, packages


def has(
    framework: str | None, feature: str, versions: Mapping[str, str] | None = None, *, serving: bool = False
) -> bool:
    """Whether the framework has a setting for ``feature``, at its version or, if unknown, in a listed release.

    A feature of a release newer than all in ``dates.toml`` is not assumed of an unknown version.
    """
    features, packages = _features(framework, serving)
    since = features.get(feature)
    if not since:
        return since is not None
    # The Hugging Face layer's "since" counts versions of transformers.
    packages = (PLAIN,) if since[0] in "45" else packages
    stated = versions or {}
    known = next((stated[p] for p in packages if p in stated), None)
    if known is None:
        newest = max((rows[-1][0] for p in packages if (rows := _released().get(p))), default=None)
        return newest is None or version(since) <= newest
    return in_range(f">={since}", known)


def min_compute(framework: str | None) -> float:
    """The lowest compute capability of NVIDIA's cards that the framework runs on; 0 where it has no bound."""
    return next((record.min_compute for record in lineage(framework) if record.min_compute), 0.0)


def line(framework: str | None, remedy: str) -> str | None:
    """The line that switches a remedy on in the framework, where its record has one."""
    owner = next((record for record in lineage(framework) if record.features or record.lines), None)
    return owner.lines.get(remedy) if owner is not None else None


def stages_filled(job: Job) -> int | None:
    """As many micro-batches as a pipeline has stages, where a job trains through one."""
    trained = job.objective != "inference" and has(job.framework, "pp") and "pp" not in job.assumed
    return job.pp if (job.pp or 1) > 1 and trained else None


@cache
def _released() -> dict[str, list[tuple[tuple[int, ...], str, str]]]:
    """By package, oldest first: the release as numbers and as it is written, and its month."""
    table = read_toml(Path(__file__).with_name("dates.toml"))["released"]
    pairs = {name: [item.split() for item in text.split(", ")] for name, text in table.items()}
    return {name: [(version(said), said, month) for said, month in found] for name, found in pairs.items()}


@lru_cache(maxsize=512)
def timely(stated: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """The versions, and for packages of which none is stated the newest before the youngest of them had a successor."""
    known = {name: version(said)[:2] for name, said in stated if version(said)}
    ends = [min((m for n, _, m in _released().get(name, ()) if n > said), default="") for name, said in known.items()]
    before = {name: [r[1] for r in rows if r[2] < max(ends, default="")] for name, rows in _released().items()}
    return {**{name: found[-1] for name, found in before.items() if found}, **dict(stated)}


class _Step:
    """One default, ready to be applied: what does not depend on the job is worked out once."""

    __slots__ = ("assumption", "default", "field", "read", "training", "when")

    def __init__(self, default: Default) -> None:
        self.default, self.field, self.when = default, default.field, default.when
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
        value: Any = self.default.value(draft.job)
        if value is None:
            return
        try:
            draft.assume(self.field, read_dotted(self.field, value), Assumption(value, self.why))
        except JobError:  # a stated field of odd form: leave this one open
            return


def _apply(steps: Iterable[_Step], draft: JobDraft) -> None:
    """Fill the fields that are open and whose circumstances hold, in order: this runs seventy times for every job."""
    job, assume = draft.job, draft.assume
    values = vars(job)
    for step in steps:
        field = step.field
        if (values[field] if field in values else job.get(field)) is not None:
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
