"""The check of a case file: strict models (pydantic; import this module late) built from the classes of the record.

:mod:`oomkb.records.case` names the fields, their defaults and bounds. Here stands only what a file writes otherwise:
closed vocabularies, dates, OSV's events, and which claims carry their witnesses inside. ``id`` is never written: it is
the path, ``<cause>/<slug>.yaml``.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Final, Literal, Self, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from oomkb.records import case as light
from oomkb.records.case import SCHEMA, Case, Witness
from oomkb.records.compiled import from_plain

__all__ = ["Case", "Record", "json_schema", "to_case"]
Text = Annotated[str, Field(min_length=1)]
Date = Annotated[
    str,
    BeforeValidator(lambda value: value.isoformat() if isinstance(value, datetime.date) else value),
    Field(pattern=r"^[12]\d{3}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?$"),
]
"""A day, or a month or year where the day is not known."""
Day = Annotated[
    str,
    BeforeValidator(lambda value: value.isoformat() if isinstance(value, datetime.date) else value),
    Field(pattern=r"^20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$"),
]
_MODELS: Final[dict[Any, Any]] = {}
_CODE: Final = frozenset({"pull", "commit", "release"})
_NEEDS: Final[Mapping[str, frozenset[str]]] = {
    "reporter-tried": frozenset({"ref", "result"}),
    "arithmetic": frozenset({"sum"}),
    "reproduced": frozenset({"command"}),
    "inference": frozenset(),
}
_By = Literal["reporter-tried", "maintainer-said", "user-said", "merged-code", "arithmetic", "reproduced", "inference"]
_Safety = Literal["same-numbers", "changed-numerics", "changed-training", "not-applicable"]
_Role = Literal["report", "fix", "evidence", "docs", "advisory", "discussion"]
_NOT_WRITTEN: Final[dict[str, Any]] = dict.fromkeys(
    (
        *("id", "private", "path", "digest", "schema"),
        *("cause_witness", "why_witness", "outcome_witness", "outcome_before", "outcome_after"),
    )
)
"""Fields of a case that its file writes in another place, or not at all."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class _Compared(_Strict):
    """What was seen of a page was seen on a day."""

    @model_validator(mode="after")
    def _has_a_day(self) -> Self:
        if getattr(self, "visible") != "whole" and not getattr(self, "checked"):  # noqa: B009  # of the class made from it
            raise ValueError("visible needs checked: the day on which the page was looked for")
        return self


class Words(_Strict):
    """The same in English and Chinese."""

    en: Text
    zh: Text


def _strict(kind: type, name: str, *, base: type[BaseModel] = _Strict, **written: Any) -> Any:
    """The strict model of a class of the record; ``written``: field -> (type, default), or ``None`` to leave it out."""
    fields: dict[str, Any] = {}
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        if field.name not in written:
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            fields[field.name] = (_as_written(hints[field.name]), ... if required else _default(field))
    fields |= {name: value for name, value in written.items() if value is not None}
    _MODELS[kind] = create_model(name, __base__=base, __doc__=kind.__doc__, **fields)
    return _MODELS[kind]


def _default(field: dataclasses.Field[Any]) -> Any:
    """Its default as a file would write it."""
    made = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if isinstance(made, Mapping | tuple):
        return {} if isinstance(made, Mapping) else []
    return _MODELS[type(made)]() if type(made) in _MODELS else made


def _as_written(hint: Any) -> Any:
    """A type of the record as a file has it: lists for tuples, strict models for classes, both languages for words."""
    if hint in _MODELS:
        return _MODELS[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds: dict[str, Any] = dict(arguments[1:])
        return Annotated[_as_written(arguments[0]), Field(**bounds)]
    if origin is tuple:
        return list.__class_getitem__(_as_written(arguments[0]))
    if origin in (Union, UnionType):
        return _as_written(arguments[0]) | None
    if hint == light.Words:
        return Words
    return hint


class _Witness(_Strict):
    """A witness names what its kind needs and nothing of another's."""

    @model_validator(mode="after")
    def _fields_of_its_kind(self) -> Self:
        said = {name for name in type(self).model_fields if getattr(self, name)}
        by: str = getattr(self, "by")  # noqa: B009  # a field of the class that is made from this one
        needs = _NEEDS.get(by, frozenset({"ref"}))
        missing = sorted(needs - said)
        if by == "merged-code" and not said & {"pull", "commit"}:
            missing.append("pull or commit")
        if missing:
            raise ValueError(f"{by} needs {' and '.join(missing)}")
        odd = said - needs - {"by", "ref"} - (_CODE if by == "merged-code" else frozenset())
        if odd:
            raise ValueError(f"{by} has no {' and no '.join(sorted(odd))}")
        return self


def _made(name: str, base: type[BaseModel] = _Strict, **fields: Any) -> Any:
    """A strict model of what only files have; ``Any``, since no type checker sees into what is made."""
    return create_model(name, __base__=base, **fields)


def _many(kind: Any, least: int = 1) -> Any:
    return Annotated[list.__class_getitem__(kind), Field(min_length=least)]


WitnessRecord = _strict(
    Witness,
    "WitnessRecord",
    base=_Witness,
    by=(_By, ...),
    result=(Literal["worked", "partly", "in-vain"] | None, None),
    pull=(Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+#[1-9]\d*$")] | None, None),
    commit=(Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}$")] | None, None),
)
Witnesses = _many(WitnessRecord)
_strict(light.Signature, "SignatureRecord", means=(Words, ...))
_strict(light.Hardware, "HardwareRecord")
OutcomeRecord = _strict(light.Outcome, "OutcomeRecord")
FixRecord = _strict(light.Fix, "FixRecord", safety=(_Safety, ...), witness=(Witnesses, ...))
ReferenceRecord = _strict(
    light.Reference,
    "ReferenceRecord",
    base=_Compared,
    role=(_Role, ...),
    checked=(Day, ""),
    visible=(Literal["whole", "part", "none"], "whole"),
)
EventRecord = _strict(light.Range, "EventRecord", introduced=(Text | None, None))
RangeRecord = _made(
    "RangeRecord",
    type=(Literal["ECOSYSTEM"], "ECOSYSTEM"),
    events=(_many(EventRecord), ...),
)
_strict(light.Affected, "AffectedRecord", ranges=(_many(RangeRecord, 0), []), witness=(Witnesses, ...))
Claim = _made("Claim", witness=(Witnesses, ...))
WhyRecord = _made("WhyRecord", Words, witness=(Witnesses, ...))
OutcomesRecord = _made(
    "OutcomesRecord",
    before=(OutcomeRecord, OutcomeRecord()),
    after=(OutcomeRecord, OutcomeRecord()),
    witness=(_many(WitnessRecord, 0), []),
)
Record = _strict(
    Case,
    "Record",
    **_NOT_WRITTEN,
    schema_=(Annotated[int, Field(alias="schema", ge=1, le=SCHEMA)], ...),
    date=(Date, ...),
    languages=(_many(Literal["en", "zh", "ja", "ko", "mixed"]), ...),
    frameworks=(_many(Text), ...),
    outcome=(OutcomesRecord, OutcomesRecord()),
    cause=(Claim, ...),
    why=(WhyRecord, ...),
    fixes=(_many(FixRecord, 0), ...),
    references=(_many(ReferenceRecord), ...),
)
"""One case file."""


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a case file."""
    schema = Record.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:oomdoc:case:{SCHEMA}",
        **schema,
        "title": "oomdoc case",
    }


def to_case(
    record: BaseModel, *, case_id: str, path: str = "", private: bool = False, content: bytes | None = None
) -> Case:
    """The light form of a valid record (a ``Record``). ``content`` is the file, for the digest."""
    plain = record.model_dump(mode="json", by_alias=True)
    data = content if content is not None else repr(plain).encode()
    why, outcome = plain.pop("why"), plain.pop("outcome")
    values = plain | {
        "id": case_id,
        "why": {language: why[language] for language in ("en", "zh")},
        "symptoms": [symptom.strip() for symptom in plain["symptoms"]],
        "affected": [item | {"ranges": _ranges(item["ranges"])} for item in plain["affected"]],
        "cause_witness": plain.pop("cause")["witness"],
        "why_witness": why["witness"],
        "outcome_witness": outcome["witness"],
        "outcome_before": outcome["before"],
        "outcome_after": outcome["after"],
        "private": private,
        "path": path,
        "digest": hashlib.sha256(data).hexdigest(),
    }
    return from_plain(Case, _filled(values))


def _filled(values: Any) -> Any:
    """Witnesses without ``None``: what does not belong to their kind is empty."""
    if isinstance(values, dict):
        is_witness = "by" in values and "ref" in values
        return {key: "" if is_witness and value is None else _filled(value) for key, value in values.items()}
    return [_filled(value) for value in values] if isinstance(values, list) else values


def _ranges(written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OSV events as ranges: each from ``introduced`` to the event that closes it."""
    ranges: list[dict[str, Any]] = []
    for event in (event for item in written for event in item["events"]):
        if event["introduced"] is not None:
            ranges.append(event)
        elif ranges:
            ranges[-1] = event | {"introduced": ranges[-1]["introduced"]}
    return ranges
