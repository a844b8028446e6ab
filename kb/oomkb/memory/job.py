"""The job document: one run that somebody started or wants to start.

Every field may be missing (``None``: not stated). :meth:`Job.from_document` reads YAML/JSON shaped
dictionaries strictly (a wrong value is refused with its field and what would be valid, an unknown key is kept
in ``extra``), :meth:`Job.document` writes them back, and :meth:`Job.with_fields` derives another job: a fix, a
what-if in a chat and the planner's search are all that one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Final

from oomkb.errors import JobError
from oomkb.memory.vocabulary import normalise

__all__ = ["Assumption", "ExtraModel", "Job", "Lora", "Rollout", "Serving"]

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters. ``targets`` is ``"all-linear"`` or module names such as ``("q_proj", "v_proj")``."""

    r: int | None = None
    targets: str | tuple[str, ...] | None = None
    dropout: float | None = None
    dtype: str | None = None
    alpha: float | None = None
    dora: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The generation engine of an RL job and how it shares the trainer's GPUs."""

    engine: str | None = None
    colocated: bool | None = None
    gpu_memory_utilization: float | None = None
    tensor_parallel: int | None = None
    sleep: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Settings of an inference server (vLLM's names)."""

    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_dtype: str | None = None
    cuda_graphs: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraModel:
    """A model resident beside the trained one."""

    role: str
    model: str | Mapping[str, Any] | None = None
    sharding: str | None = None
    offload: bool | None = None


@dataclass(frozen=True, slots=True)
class Assumption:
    """A value nobody stated: what was taken and why."""

    value: Any
    why: str


_POSITIVE: Final = [
    "micro_batch",
    "grad_accum",
    "seq_len",
    "world",
    "dp",
    "tp",
    "pp",
    "cp",
    "sp",
    "ep",
    "nodes",
    "gpus",
    "max_pixels",
    "images",
    "video_frames",
    "generations",
    "eval_micro_batch",
    "prompt_len",
    "completion_len",
]
_WORDS: Final = [
    "objective",
    "method",
    "quant",
    "param_dtype",
    "autocast",
    "optimizer",
    "optimizer_impl",
    "attention",
    "sharding",
]
_FLAGS: Final = ["packing", "fused_ce", "reshard_after_forward", "compile", "nvme_offload"]
_NESTED: Final[Mapping[str, type]] = {"lora": Lora, "rollout": Rollout, "serving": Serving}


@dataclass(frozen=True, slots=True, kw_only=True)
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
    prompt_len: int | None = None
    completion_len: int | None = None
    compile: bool | None = None
    nvme_offload: bool | None = None
    host_gib: float | None = None
    """Host memory of one machine."""
    extra: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Keys this version does not know, kept as given."""
    assumed: Mapping[str, Assumption] = field(default_factory=lambda: _EMPTY)
    """Fields filled in by oomdoc rather than stated, by (dotted) name."""

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
        names = _FIELD_NAMES - {"extra", "assumed"}
        for key, value in document.items():
            if value is None:
                continue
            if key in names:
                known[key] = _read_field(key, value)
            else:
                extra[str(key)] = value
        return cls(**known, extra=MappingProxyType(extra) if extra else _EMPTY)

    def document(self) -> dict[str, Any]:
        """The contract's form: plain values, nothing that is not known."""
        out: dict[str, Any] = {}
        for name in _ORDER:
            value = getattr(self, name)
            if value is None or name in ("assumed", "extra"):
                continue
            if isinstance(value, Lora | Rollout | Serving):
                value = _plain(value)
            elif name == "extra_models":
                value = [_plain(m) for m in value]
            elif isinstance(value, tuple):
                value = list(value)
            elif isinstance(value, Mapping):
                if not value:
                    continue
                value = dict(value)
            out[name] = value
        out.update(self.extra)
        return out

    def with_fields(self, changes: Mapping[str, Any]) -> Job:
        """A job with (dotted) fields set, for example ``{"micro_batch": 1, "lora.r": 16}``.

        A value of ``None`` clears the field. A field that is set is no longer assumed.

        :raises JobError: for an unknown field or an impossible value.
        """
        document: dict[str, Any] = {}
        for name, value in changes.items():
            head, _, tail = name.partition(".")
            if head not in _FIELD_NAMES or head in ("extra", "assumed"):
                raise JobError("no such field in a job", where=name, hint="see the job document's table")
            if not tail:
                document[head] = value
                continue
            if head not in document:
                current = getattr(self, head)
                document[head] = (
                    _plain(current) if isinstance(current, Lora | Rollout | Serving) else dict(current or {})
                )
            if value is None:
                document[head].pop(tail, None)
            else:
                document[head][tail] = value
        known: dict[str, Any] = {
            k: _EMPTY if v is None and k in _MAPS else None if v is None else _read_field(k, v)
            for k, v in document.items()
        }
        stated = {n.partition(".")[0] for n in changes} | set(changes)
        assumed = {k: v for k, v in self.assumed.items() if k not in stated}
        return replace(self, **known, assumed=MappingProxyType(assumed))

    def get(self, name: str) -> Any:
        """The value of a (dotted) field, or ``None``."""
        head, _, tail = name.partition(".")
        value = getattr(self, head, None)
        if not tail or value is None:
            return value
        return value.get(tail) if isinstance(value, Mapping) else getattr(value, tail, None)

    def assuming(self, values: Mapping[str, Assumption]) -> Job:
        """Fill fields that are not stated and mark them as assumed."""
        missing = {k: a for k, a in values.items() if self.get(k) is None}
        if not missing:
            return self
        filled = self.with_fields({k: a.value for k, a in missing.items()})
        return replace(filled, assumed=MappingProxyType({**self.assumed, **missing}))


_ORDER: Final = tuple(f.name for f in fields(Job))
_FIELD_NAMES: Final = frozenset(_ORDER)
_MAPS: Final = frozenset({"buckets", "versions", "env"})


def _plain(value: Any) -> dict[str, Any]:
    found = {f.name: getattr(value, f.name) for f in fields(value)}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items() if v is not None}


def _read_field(name: str, value: Any) -> Any:
    if name in _POSITIVE:
        return _whole(name, value)
    if name in _WORDS:
        return normalise(name, value)
    if name in _FLAGS:
        return _flag(name, value)
    if name in _NESTED:
        return _nested(name, value)
    return _OTHERS[name](name, value)


def _whole(name: str, value: Any, *, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < least:
        raise JobError(
            f"{value!r} is not a whole number of at least {least}", where=name, hint=f"for example {max(least, 1)}"
        )
    return int(value)


def _number(name: str, value: Any, *, low: float = 0.0, high: float = float("inf")) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low < value <= high:
        raise JobError(
            f"{value!r} is not a number above {low:g}" + (f" and at most {high:g}" if high != float("inf") else ""),
            where=name,
        )
    return float(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise JobError(f"{value!r} is neither true nor false", where=name, hint="write true or false")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise JobError(f"{value!r} is not a name", where=name)
    return value.strip()


def _model(name: str, value: Any) -> str | Mapping[str, Any]:
    if isinstance(value, Mapping):
        return MappingProxyType(dict(value))
    return _text(name, value)


def _grad_ckpt(name: str, value: Any) -> bool | str:
    if isinstance(value, bool):
        return value
    read: bool | str = normalise(name, value)
    return read


def _strings(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value] if value not in ("", "none") else []
    if not isinstance(value, Sequence) or not all(isinstance(v, str) for v in value):
        raise JobError(f"{value!r} is not a list of names", where=name)
    return tuple(normalise(name, v) for v in value)


def _map(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise JobError(f"{value!r} is not a mapping", where=name)
    if name == "buckets":
        return MappingProxyType(
            {str(k): _number(f"buckets.{k}", v, low=-1) if not isinstance(v, str) else v for k, v in value.items()}
        )
    return MappingProxyType({str(k): str(v) for k, v in value.items()})


def _extra_models(name: str, value: Any) -> tuple[ExtraModel, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise JobError("expected a list of {role, model, sharding, offload}", where=name)
    out = []
    for i, item in enumerate(value):
        where = f"{name}[{i}]"
        if not isinstance(item, Mapping) or "role" not in item:
            raise JobError("expected {role, model, sharding, offload}", where=where)
        role = normalise("role", item["role"], where=f"{where}.role")
        model = _model(f"{where}.model", item["model"]) if item.get("model") is not None else None
        sharding = normalise("sharding", item["sharding"]) if item.get("sharding") is not None else None
        offload = item.get("offload")
        out.append(
            ExtraModel(
                role=role, model=model, sharding=sharding, offload=bool(offload) if offload is not None else None
            )
        )
    return tuple(out)


_NESTED_READ: Final[Mapping[str, Any]] = {
    "r": _whole,
    "alpha": _number,
    "dropout": lambda n, v: 0.0 if v == 0 else _number(n, v, high=1.0),
    "dtype": lambda n, v: normalise("param_dtype", v, where=n),
    "targets": lambda n, v: v if isinstance(v, str) else tuple(str(t) for t in v),
    "gpu_memory_utilization": lambda n, v: _number(n, v, high=1.0),
    "engine": _text,
    "kv_dtype": _text,
    "colocated": _flag,
    "sleep": _flag,
    "cuda_graphs": _flag,
    "dora": _flag,
}


def _nested(name: str, value: Any) -> Any:
    kind = _NESTED[name]
    if not isinstance(value, Mapping):
        raise JobError(f"{value!r} is not a mapping", where=name, hint=f"write {name}: {{...}}")
    known = {f.name for f in fields(kind)}
    read: dict[str, Any] = {}
    for key, item in value.items():
        if key not in known:
            raise JobError("unknown field", where=f"{name}.{key}", hint=f"one of {', '.join(sorted(known))}")
        if item is not None:
            read[key] = _NESTED_READ.get(key, _whole)(f"{name}.{key}", item)
    return kind(**read)


_OTHERS: Final[Mapping[str, Any]] = {
    "model": _model,
    "params_b": _number,
    "capacity_gib": _number,
    "host_gib": _number,
    "grad_ckpt": _grad_ckpt,
    "offload": _strings,
    "buckets": _map,
    "versions": _map,
    "env": _map,
    "extra_models": _extra_models,
    "gpu": _text,
    "framework": _text,
}
