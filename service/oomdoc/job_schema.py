"""The job document as a JSON schema: fields, words, bounds, units and examples, for MCP, language models and the docs.

Types, words and bounds come from the tables that check a job; meanings, units and examples from ``job_fields.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from oomdoc.stated import DOTTED_FIELDS
from oomkb.dataclass import dataclass
from oomkb.errors import RecordError
from oomkb.memory.job import Job
from oomkb.memory.job_reading import value_schema

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_PARTS: Final = ("lora", "rollout", "serving", "loop")
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
    if name in _PARTS:
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
