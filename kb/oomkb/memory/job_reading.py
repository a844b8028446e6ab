"""Checking the values of a job document, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final

from oomkb.errors import JobError
from oomkb.memory.job_parts import ExtraModel, Lora, Rollout, Serving
from oomkb.memory.vocabulary import normalise
from oomkb.notes import note

__all__ = ["read_dotted", "read_field"]

_POSITIVE: Final = frozenset(
    [
        "micro_batch",
        "grad_accum",
        "seq_len",
        "world",
        "dp",
        "tp",
        "pp",
        "cp",
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
)
_WORDS: Final = frozenset(
    [
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
)
_FLAGS: Final = frozenset(["packing", "fused_ce", "reshard_after_forward", "compile", "nvme_offload"])
_NESTED: Final[Mapping[str, type]] = {"lora": Lora, "rollout": Rollout, "serving": Serving}


def read_field(name: str, value: Any) -> Any:
    """The checked value of one field.

    :raises JobError: for an impossible value; ``where`` is the field.
    """
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
            f"{value!r} is not a whole number of at least {least}",
            where=name,
            hint=f"for example {max(least, 1)}",
            note=note("job.not-whole", value=value, least=least),
        )
    return int(value)


def _number(name: str, value: Any, *, low: float = 0.0, high: float = float("inf")) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low < value <= high:
        bounded = high != float("inf")
        raise JobError(
            f"{value!r} is not a number above {low:g}" + (f" and at most {high:g}" if bounded else ""),
            where=name,
            note=note("job.not-between" if bounded else "job.not-above", value=value, low=f"{low:g}", high=f"{high:g}"),
        )
    return float(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise JobError(
            f"{value!r} is neither true nor false",
            where=name,
            hint="write true or false",
            note=note("job.not-flag", value=value),
        )
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise JobError(f"{value!r} is not a name", where=name, note=note("job.not-name", value=value))
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
        raise JobError(f"{value!r} is not a list of names", where=name, note=note("job.not-names", value=value))
    return tuple(normalise(name, v) for v in value)


def _map(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise JobError(f"{value!r} is not a mapping", where=name, note=note("job.not-mapping", value=value))
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


_PART_FIELDS: Final = {name: frozenset(f.name for f in fields(kind)) for name, kind in _NESTED.items()}
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


def read_dotted(name: str, value: Any) -> Any:
    """The checked value of one (dotted) field."""
    head, _, tail = name.partition(".")
    return _NESTED_READ.get(tail, _whole)(name, value) if tail and head in _NESTED else read_field(name, value)


def _nested(name: str, value: Any) -> Any:
    kind = _NESTED[name]
    if not isinstance(value, Mapping):
        raise JobError(
            f"{value!r} is not a mapping",
            where=name,
            hint=f"write {name}: {{...}}",
            note=note("job.not-mapping", value=value),
        )
    known = _PART_FIELDS[name]
    read: dict[str, Any] = {}
    for key, item in value.items():
        if key not in known:
            valid = ", ".join(sorted(known))
            raise JobError(
                "unknown field",
                where=f"{name}.{key}",
                hint=f"one of {valid}",
                note=note("job.no-such-part", valid=valid),
            )
        if item is not None:
            read[key] = _NESTED_READ.get(key, _whole)(f"{name}.{key}", item)
    return kind(**read)


def _sequence_parallel(name: str, value: Any) -> int | bool:
    """A size, or whether (Megatron's and torchtitan's switch): then over the tensor-parallel group."""
    return value if isinstance(value, bool) else _whole(name, value)


_OTHERS: Final[Mapping[str, Any]] = {
    "model": _model,
    "sp": _sequence_parallel,
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
