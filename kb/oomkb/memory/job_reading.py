"""Checking the values of a job document, field by field."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Final

from oomkb.errors import JobError, note
from oomkb.limits import check_tree, finite_only, shown
from oomkb.memory.job_parts import PARTS, ExtraModel
from oomkb.memory.mode import VOCABULARY, normalise
from oomkb.units import GIB, parse_size_bytes

_TOKENS: Final = 1 << 27
_RANKS: Final = 1 << 20
_BATCH: Final = 1 << 20
_GIB: Final = float(1 << 20)
_NAME_CHARS: Final = 1_000
_ENTRY_CHARS: Final = 4_000
_ENTRIES: Final = 1_000
_MODELS: Final = 16  # beside the main one, each priced like it
_RANK: Final = 1 << 16
_LAYERS: Final = 1 << 12
_TARGETS: Final = 20_000
"""Module names that adapters are put on: some list every one of a model of hundreds of layers."""
_CONFIG_DEPTH: Final = 12
_PARAMS_B: Final = 1e5
_ELEMENTS: Final = float(1 << 50)
_NUMERAL: Final = re.compile(r"\s{0,9}[+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?:[eE][+-]?\d{1,2})?\s{0,9}")
_FRACTION: Final = re.compile(r"[.eE]")
_SHARE: Final = re.compile(r"\s{0,9}(\d{1,3}(?:\.\d{1,9})?)\s?%\s{0,9}")
_PLAIN: Final = (str, int, float, bool)
_SAID: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_Reader = Callable[[str, Any], Any]
_Kind = tuple[_Reader, Mapping[str, Any]]
"""How a value is read, and its JSON schema."""
_NAMES_SCHEMA: Final = {"type": "array", "items": {"type": "string"}}


def read_field(name: str, value: Any) -> Any:
    """The checked value of one field.

    :raises JobError: for an impossible value; ``where`` is the field.
    """
    return _read_plain(name, value) if type(value) in _PLAIN else _FIELDS[name][0](name, value)


@lru_cache(maxsize=4096, typed=True)
def _read_plain(name: str, value: str | float) -> Any:
    """Plans and figures try the same few values of a field again and again; ``typed``: 1 is no ``True``."""
    return _FIELDS[name][0](name, value)


def read_dotted(name: str, value: Any) -> Any:
    """The checked value of one (dotted) field."""
    return _kind_of(name)[0](name, value)


def value_schema(name: str) -> dict[str, Any]:
    """The JSON schema of a (dotted) field's value: what :func:`read_dotted` takes, in the field's own words."""
    return dict(_kind_of(name)[1])


def _kind_of(name: str) -> _Kind:
    head, _, tail = name.partition(".")
    return _PART_FIELDS.get(tail, _WHOLE) if tail and head in PARTS else _FIELDS[name]


def _odd(name: str, value: Any, what: str, key: str, hint: str = "", **more: Any) -> JobError:
    """The error of a field's value; ``key`` is its note, which has the value and what ``more`` it says."""
    return JobError(
        f"{shown(value)} {what}", where=name, hint=hint, note=note(f"job.{key}", value=shown(value), **more)
    )


def _whole(name: str, value: Any, *, least: int = 1, most: int = _TOKENS) -> int:
    given = _read_number(value)
    if given is None or given != math.floor(given) or given < least:
        hint = f"for example {max(least, 1)}"
        raise _odd(name, value, f"is not a whole number of at least {least}", "not-whole", hint, least=least)
    if given > most:
        raise _odd(name, value, f"is more than {most:,}", "too-large", "is it in another unit?", most=f"{most:,}")
    return int(given)


def _number(name: str, value: Any, *, low: float = 0.0, high: float) -> float:
    given = _read_number(value)
    if given is None or not low < given <= high:
        what = f"is not a number above {low:g} and at most {high:g}"
        raise _odd(name, value, what, "not-between", low=f"{low:g}", high=f"{high:g}")
    return float(given)


def _read_number(value: Any) -> int | float | None:
    """A finite number, plain or as people write it in a form; ``None`` for anything else."""
    if isinstance(value, str) and _NUMERAL.fullmatch(value):
        value = float(value) if _FRACTION.search(value) else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _gib(name: str, value: Any) -> float:
    """A size in GiB: a number, or a text with its unit; a ``GB`` of memory is taken as the driver means it, 2^30."""
    if isinstance(value, str) and not _NUMERAL.fullmatch(value):
        try:
            value = parse_size_bytes(value[:64], decimal=False) / GIB
        except ValueError as error:
            raise _odd(name, value, "is not a size", "not-size", "a number of GiB, or a size such as 24 GiB") from error
    return _number(name, value, high=_GIB)


def _share(name: str, value: Any) -> float:
    """A part of one: ``0.9``, or ``90%``."""
    part = _SHARE.fullmatch(value) if isinstance(value, str) else None
    return _number(name, float(part[1]) / 100 if part else value, high=1.0)


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, str):
        value = _SAID.get(value.strip().lower(), value)
    if not isinstance(value, bool):
        raise _odd(name, value, "is neither true nor false", "not-flag", "write true or false")
    return value


def _text(name: str, value: Any) -> str:
    if name == "gpu" and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # cards that people call by a number: 4090
    if not isinstance(value, str) or not value.strip() or len(value) > _NAME_CHARS:
        raise _odd(name, value, "is not a name", "not-name")
    return value.strip()


def _model(name: str, value: Any) -> str | Mapping[str, Any]:
    if isinstance(value, Mapping):
        check_tree(value, where=name, depth=_CONFIG_DEPTH, finite=False, error=JobError)
        return MappingProxyType(finite_only(value))
    return _text(name, value)


def _grad_ckpt(name: str, value: Any) -> bool | str:
    read: bool | str = value if isinstance(value, bool) else normalise(name, value)
    return read


def _strings(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value] if value not in ("", "none") else []
    if not isinstance(value, Sequence) or len(value) > _ENTRIES or not all(isinstance(v, str) for v in value):
        raise _odd(name, value, "is not a list of names", "not-names")
    return tuple(normalise(name, v) for v in value)


def _map(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or len(value) > _ENTRIES:
        raise _odd(name, value, "is not a mapping", "not-mapping")
    read = _elements if name == "buckets" else _entry
    return MappingProxyType({str(k)[:_NAME_CHARS]: read(f"{name}.{k}"[:_NAME_CHARS], v) for k, v in value.items()})


def _elements(name: str, value: Any) -> Any:
    """A number of elements, or a switch as 0 or 1 (``overlap_comm``); other texts (``auto``) stay what they are."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and not _NUMERAL.fullmatch(value):
        return value[:_NAME_CHARS]
    return _number(name, value, low=-1, high=_ELEMENTS)


def _entry(name: str, value: Any) -> str:
    if isinstance(value, Mapping | list | tuple | set):
        raise _odd(name, value, "is not a text", "not-name")
    return str(value)[:_ENTRY_CHARS]


def _extra_models(name: str, value: Any) -> tuple[ExtraModel, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > _MODELS:
        raise JobError(f"expected a list of at most {_MODELS} of {{role, model, sharding, offload}}", where=name)
    out = []
    for i, item in enumerate(value):
        where = f"{name}[{i}]"
        if not isinstance(item, Mapping) or "role" not in item:
            raise JobError("expected {role, model, sharding, offload}", where=where)
        role = normalise("role", item["role"], where=f"{where}.role")
        model = _model(f"{where}.model", item["model"]) if item.get("model") is not None else None
        sharding = normalise("sharding", item["sharding"]) if item.get("sharding") is not None else None
        offload = bool(item["offload"]) if item.get("offload") is not None else None
        out.append(ExtraModel(role=role, model=model, sharding=sharding, offload=offload))
    return tuple(out)


def _dropout(name: str, value: Any) -> float:
    return 0.0 if value == 0 else _number(name, value, high=1.0)


def _targets(name: str, value: Any) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return _text(name, value)
    if not isinstance(value, Sequence) or len(value) > _TARGETS or not all(isinstance(v, str) for v in value):
        raise _odd(name, value, "is not a list of names", "not-names")
    return tuple(value)


def _nested(name: str, value: Any) -> Any:
    kind = PARTS[name]
    if not isinstance(value, Mapping):
        raise _odd(name, value, "is not a mapping", "not-mapping", f"write {name}: {{...}}")
    known = {f.name for f in fields(kind)}
    for key in value:
        if key not in known:
            valid = ", ".join(sorted(known))
            raise JobError(
                "unknown field",
                where=f"{name}.{key}"[:_NAME_CHARS],
                hint=f"one of {valid}",
                note=note("job.no-such-part", valid=valid),
            )
    return kind(**{k: read_dotted(f"{name}.{k}", item) for k, item in value.items() if item is not None})


def _sequence_parallel(name: str, value: Any) -> int | bool:
    """A size, or whether (Megatron's and torchtitan's switch): then over the tensor-parallel group."""
    return value if isinstance(value, bool) else _whole(name, value, most=_RANKS)


def _whole_up_to(most: int) -> _Kind:
    return partial(_whole, most=most), {"type": "integer", "minimum": 1, "maximum": most}


def _number_up_to(most: float) -> _Kind:
    return partial(_number, high=most), {"type": "number", "exclusiveMinimum": 0, "maximum": most}


def _word_of(field: str) -> _Kind:
    reader: _Reader = lambda name, value: normalise(field, value, where=name)  # noqa: E731
    return reader, {"type": "string", "enum": list(VOCABULARY[field])}


_FLAG: Final[_Kind] = (_flag, {"type": "boolean"})
_TEXT: Final[_Kind] = (_text, {"type": "string"})
_SIZE: Final[_Kind] = (_gib, {"type": "number", "exclusiveMinimum": 0, "maximum": _GIB})
_WHOLE: Final[_Kind] = (_whole, {"type": "integer", "minimum": 1})
_LAYER_COUNT: Final[_Kind] = (partial(_whole, least=0, most=_LAYERS), {"type": "integer", "minimum": 0})
_MAPPING: Final[_Kind] = (_map, {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}})
_PART_FIELDS: Final[Mapping[str, _Kind]] = {
    "r": _whole_up_to(_RANK),
    "alpha": (partial(_number, high=1e9), {"type": "number", "exclusiveMinimum": 0}),
    "dropout": (_dropout, {"type": "number", "minimum": 0, "maximum": 1}),
    "dtype": _word_of("param_dtype"),
    "loss": _word_of("loss"),
    "targets": (_targets, {"anyOf": [{"type": "string"}, _NAMES_SCHEMA]}),
    "gpu_memory_utilization": (_share, {"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
    **dict.fromkeys(("gpu_layers", "cpu_expert_layers"), _LAYER_COUNT),
    **dict.fromkeys(("engine", "kv_dtype"), _TEXT),
    **dict.fromkeys(("colocated", "sleep", "cuda_graphs", "attention_dp", "dora", "loss_autocast"), _FLAG),
    **dict.fromkeys(("outputs_kept", "use_cache", "zero_grad_in_place", "kbit_prepared"), _FLAG),
}
"""Fields of parts; what is not named is a plain whole number."""
_EXTRA_MODEL: Final = {
    "type": "object",
    "properties": {
        "role": _word_of("role")[1],
        "model": {"type": "string"},
        "sharding": _word_of("sharding")[1],
        "offload": {"type": "boolean"},
    },
    "required": ["role"],
}


def _part(kind: type) -> _Kind:
    properties = {f.name: dict(_PART_FIELDS.get(f.name, _WHOLE)[1]) for f in fields(kind)}
    return _nested, {"type": "object", "properties": properties, "additionalProperties": False}


_FIELDS: Final[Mapping[str, _Kind]] = {
    "model": (_model, {"anyOf": [{"type": "string"}, {"type": "object", "description": "a config.json"}]}),
    "params_b": _number_up_to(_PARAMS_B),
    # Whole numbers, each with the most that any machine of today could mean: beyond it lies a slip.
    **dict.fromkeys(("micro_batch", "grad_accum", "eval_micro_batch", "log_prob_batch"), _whole_up_to(_BATCH)),
    **dict.fromkeys(("seq_len", "micro_tokens", "prompt_len", "completion_len"), _whole_up_to(_TOKENS)),
    **dict.fromkeys(("world", "dp", "tp", "pp", "cp", "ep", "nodes", "gpus"), _whole_up_to(_RANKS)),
    **dict.fromkeys(("images", "generations"), _whole_up_to(1 << 16)),
    "video_frames": _whole_up_to(1 << 20),
    "trained_layers": _LAYER_COUNT,
    "max_pixels": _whole_up_to(1 << 36),
    **{field: _word_of(field) for field in ("objective", "method", "quant", "param_dtype", "autocast", "optimizer")},
    **{field: _word_of(field) for field in ("optimizer_impl", "attention", "sharding")},
    **dict.fromkeys(
        ("packing", "fused_ce", "reshard_after_forward", "compile", "nvme_offload", "planned", "failed"), _FLAG
    ),
    **{name: _part(kind) for name, kind in PARTS.items()},
    **dict.fromkeys(("capacity_gib", "host_gib"), _SIZE),
    "sp": (_sequence_parallel, {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "boolean"}]}),
    "grad_ckpt": (_grad_ckpt, {"enum": [True, False, "selective", "offload"]}),
    "offload": (_strings, {"type": "array", "items": _word_of("offload")[1]}),
    **dict.fromkeys(("buckets", "versions", "env"), _MAPPING),
    "extra_models": (_extra_models, {"type": "array", "maxItems": _MODELS, "items": _EXTRA_MODEL}),
    **dict.fromkeys(("gpu", "framework"), _TEXT),
}
