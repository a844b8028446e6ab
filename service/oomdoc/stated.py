"""Job fields that somebody states beside a text (``--set``, ``"set"``, ``options=``), checked for every interface.

The job document as a JSON schema: fields, words, bounds, units and examples, for MCP, language models and the docs.
Types, words and bounds come from the tables that check a job; meanings, units and examples from ``job_fields.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from oomdoc.evidence import SIZES
from oomkb.dataclass import dataclass
from oomkb.errors import InputError, JobError, RecordError, note
from oomkb.frameworks import ENGINE, has
from oomkb.frameworks.circumstances import largest_split
from oomkb.limits import check_tree, shown
from oomkb.memory.job import Job, Loop, Lora, Rollout, Serving
from oomkb.memory.job_reading import read_dotted, value_schema

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_PART_NAMES: Final = ("lora", "rollout", "serving", "loop")
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "additionalProperties", "maxItems")


@dataclass(frozen=True, slots=True)
class JobField:
    """What one (dotted) field means."""

    name: str
    what: str
    unit: str = ""
    example: Any = None


@cache
def job_fields() -> Mapping[str, JobField]:
    """Every field of a job by (dotted) name, in the job's order.

    :raises RecordError: where the table and the job do not have the same fields.
    """
    described = tomllib.loads(files("oomdoc").joinpath("job_fields.toml").read_text(encoding="utf-8"))
    names = [f for f in Job.__dataclass_fields__ if f not in ("extra", "assumed")]
    if set(described) != {*names, *DOTTED_FIELDS}:
        different = ", ".join(sorted(set(described) ^ {*names, *DOTTED_FIELDS}))
        raise RecordError(f"the fields of a job differ: {different}", where="job_fields.toml")
    return MappingProxyType({name: JobField(name, **row) for name, row in described.items()})


@cache
def job_schema(*, short: bool = False) -> dict[str, Any]:
    """The JSON schema of a job document; every field may be missing.

    :param short: the same fields with their types, words and units alone, for the prompts of language models.
    """
    fields = job_fields()
    properties: dict[str, Any] = {}
    for name, field in fields.items():
        if "." not in name:
            properties[name] = _described(name, field, short=short)
    if short:
        return {"type": "object", "properties": properties}
    title = {"$schema": _DIALECT, "title": "Job", "type": "object"}
    return {**title, "properties": properties, "additionalProperties": False, "examples": [example_job()]}


def example_job() -> dict[str, Any]:
    """A job to show: LoRA of a 7B model on one card."""
    return {"model": "Qwen/Qwen2.5-7B", "method": "lora", "micro_batch": 1, "seq_len": 4096, "gpu": "RTX 4090"}


def _described(name: str, field: JobField, *, short: bool) -> dict[str, Any]:
    schema = _value(name, short=short)
    if name in _PART_NAMES:
        schema["properties"] = {
            part: {**_value(f"{name}.{part}", short=short), **_words(part, job_fields()[f"{name}.{part}"], short=short)}
            for part in schema["properties"]
        }
    return {**schema, **_words(name, field, short=short)}


def _value(name: str, *, short: bool) -> dict[str, Any]:
    schema = dict(value_schema(name))
    return _without_bounds(schema) if short else schema


def _without_bounds(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Words are strings: of a list of them the type says nothing more."""
    dropped = {*_BOUNDS, *(["type"] if "enum" in schema else [])}
    return {k: _below(v) for k, v in schema.items() if k not in dropped}


def _below(value: Any) -> Any:
    """The same of the schemas in a schema, and of the names that are fields."""
    if isinstance(value, Mapping):
        nested = all(isinstance(one, Mapping) for one in value.values())  # fields by name
        return {k: _without_bounds(v) for k, v in value.items()} if nested else _without_bounds(value)
    return [_below(one) for one in value] if isinstance(value, list) else value


def _words(name: str, field: JobField, *, short: bool) -> dict[str, Any]:
    if short:  # a unit that the name ends with is not said again, nor that degrees of parallelism count ranks
        said = not field.unit or field.unit == "ranks" or name.endswith(field.unit.lower())
        return {} if said else {"description": field.unit}
    words: dict[str, Any] = {"description": field.what + (f" [{field.unit}]" if field.unit else "")}
    return words if field.example is None else {**words, "examples": [field.example]}


_PARTS: Final[Mapping[str, type]] = {"lora": Lora, "rollout": Rollout, "serving": Serving, "loop": Loop}
_MAPS: Final = ("buckets", "env")
_DEPTH: Final = 12
_NODES: Final = 20_000
_STAGES: Final = 3
_NORMAL_FLOAT: Final = ("nf4", "nf4-double")


def _as(name: str) -> Callable[[str, Any], Any]:
    """Read under the given name as the job field ``name`` is read."""

    def read(given: str, value: Any) -> Any:
        try:
            return read_dotted(name, value)
        except JobError as error:
            raise JobError(error.message, where=given, hint=error.hint, note=error.note) from error

    return read


def _stage(name: str, value: Any) -> int:
    stage = value if isinstance(value, int) and not isinstance(value, bool) else -1
    if isinstance(value, str) and value.strip().isdecimal() and len(value) <= 2:
        stage = int(value)
    if not 0 <= stage <= _STAGES:
        raise JobError(f"{shown(value)} is no stage of ZeRO", where=name, hint="0, 1, 2 or 3")
    return stage


# What reports are labelled with beside the fields of a job, each read as the field that it resembles.
_FURTHER: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    **dict.fromkeys((name for name in SIZES if name != "capacity_gib"), _as("capacity_gib")),
    "gpu_count": _as("gpus"),
    "zero_stage": _stage,
    "fsdp": _as("packing"),
    "dtype": _as("param_dtype"),
    "phase": _as("framework"),
    "gpu_memory_utilization": _as("serving.gpu_memory_utilization"),
    "max_model_len": _as("serving.max_model_len"),
}
_JOB: Final = tuple(f.name for f in fields(Job) if f.name not in ("extra", "assumed"))
DOTTED_FIELDS: Final = tuple(f"{part}.{f.name}" for part, kind in _PARTS.items() for f in fields(kind))
"""The fields of a job's parts: ``lora.r``, ``serving.max_model_len`` ..."""
_NAMES: Final = (*_JOB, *DOTTED_FIELDS, *_FURTHER)


def stated_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The checked values by (dotted) name; parts that are mappings come out field by field, ``None`` not at all.

    :raises JobError: for an unknown name (with the nearest one) or a value that no run can have; ``where`` is the name.
    """
    if not isinstance(options, Mapping):
        raise JobError(f"{shown(options)} is not a mapping of fields", where="set", hint='for example {"gpus": 8}')
    try:
        check_tree(options, where="set", depth=_DEPTH, nodes=_NODES, finite=False)
    except InputError as error:
        raise JobError(error.message, where=error.where.removeprefix("set."), hint=error.hint) from error
    found: dict[str, Any] = {}
    for name, value in options.items():
        if value is not None:
            found.update(_read(str(name).strip(), value))
    return found


def following(changes: Mapping[str, Any], base: Job) -> dict[str, Any]:
    """Fields that go along with a change: the length of prompt and completion, the name of adapters on 4 bits, and
    that a server spreads over the cards that it is given.
    """
    found: dict[str, Any] = {}
    halves = {name: base.get(name) for name in ("prompt_len", "completion_len")}
    own = {n: v for n, v in changes.items() if n in halves and v}
    if own and "seq_len" not in changes and all(halves.values()) and base.seq_len == sum(halves.values()):
        found["seq_len"] = sum((halves | own).values())
    method, quant = changes.get("method", base.method), changes.get("quant", base.quant)
    if "quant" in changes and method == "lora" and quant in _NORMAL_FLOAT:
        found["method"] = "qlora"
    elif "quant" in changes and "method" not in changes and method == "qlora" and quant == "none":
        found["method"] = "lora"
    gpus, degrees = changes.get("gpus"), ("tp", "pp", "dp", "ep")
    serves = changes.get("objective", base.objective) == "inference" and base.nodes in (None, 1)
    engine = changes.get("framework", base.framework) or ENGINE
    splits = serves and has(engine, "serving.tp", serving=True)
    if splits and isinstance(gpus, int) and gpus > 1 and not any(changes.get(n) or base.get(n) for n in degrees):
        found["tp"] = largest_split(gpus)
    return found


def _read(name: str, value: Any) -> dict[str, Any]:
    head, _, tail = name.partition(".")
    if head in (*_PARTS, *_MAPS) and not tail:
        whole = read_dotted(name, value)  # refuses unknown parts by their place
        if isinstance(whole, Mapping):
            return {f"{name}.{k}": v for k, v in whole.items()}
        return {f"{name}.{f.name}": v for f in fields(whole) if (v := _plain(getattr(whole, f.name))) is not None}
    if head in _MAPS:
        return {f"{head}.{k}": v for k, v in read_dotted(head, {tail: value}).items()}
    if name in _FURTHER:
        return {name: _FURTHER[name](name, value)}
    if name not in _NAMES:
        close = get_close_matches(name[:80], _NAMES, n=3, cutoff=0.6)
        raise JobError(
            "a job has no such field",
            where=name[:80],
            hint=f"perhaps {' or '.join(close)}" if close else "see the job document's table",
            note=note("job.no-such-field"),
        )
    return {name: _plain(read_dotted(name, value))}


def _plain(value: Any) -> Any:
    """Lists and dictionaries, as JSON gives them."""
    if isinstance(value, MappingProxyType):
        return dict(value)
    if isinstance(value, tuple):
        return [v if isinstance(v, str) else {f.name: _plain(getattr(v, f.name)) for f in fields(v)} for v in value]
    return value
