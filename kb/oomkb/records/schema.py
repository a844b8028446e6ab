"""The case record as it is written in a file: strict models (pydantic; import this module late).

``id`` is never written: it is the path, ``<cause>/<slug>.yaml``. :class:`Case`, the light form, is re-exported.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from oomkb.records.case import SCHEMA, Affected, Case, Fix, Hardware, Outcome, Range, Reference, Signature
from oomkb.records.witness import Witness

__all__ = ["Case", "Record", "json_schema", "to_case"]

Text = Annotated[str, Field(min_length=1)]
Date = Annotated[
    str,
    BeforeValidator(lambda value: value.isoformat() if isinstance(value, datetime.date) else value),
    Field(pattern=r"^[12]\d{3}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?$"),
]
"""A day, or a month or year where the day is not known."""
Gib = Annotated[float, Field(gt=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Words(_Strict):
    """The same in English and Chinese."""

    en: Text
    zh: Text


class WitnessRecord(_Strict):
    """Who vouches for a claim; ``oomkb.records.witness`` says what the kinds mean."""

    by: Literal[
        "reporter-tried", "maintainer-said", "user-said", "merged-code", "arithmetic", "reproduced", "inference"
    ]
    ref: Text | None = None
    result: Literal["worked", "partly", "in-vain"] | None = None
    pull: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+#[1-9]\d*$")] | None = None
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}$")] | None = None
    release: Text | None = None
    sum: Text | None = None
    command: Text | None = None

    @model_validator(mode="after")
    def _fields_of_its_kind(self) -> Self:
        """Each kind has what it needs and nothing of another's."""
        needs = {
            "reporter-tried": ("ref", "result"),
            "merged-code": ("ref",),
            "arithmetic": ("sum",),
            "reproduced": ("command",),
            "inference": (),
        }.get(self.by, ("ref",))
        missing = [name for name in needs if getattr(self, name) is None]
        if self.by == "merged-code" and self.pull is None and self.commit is None:
            missing.append("pull or commit")
        if missing:
            raise ValueError(f"{self.by} needs {' and '.join(missing)}")
        own = {"ref", *needs, *(("pull", "commit", "release") if self.by == "merged-code" else ())}
        odd = [name for name in type(self).model_fields if name != "by" and name not in own and getattr(self, name)]
        if odd:
            raise ValueError(f"{self.by} has no {' and no '.join(odd)}")
        return self


Witnesses = Annotated[list[WitnessRecord], Field(min_length=1)]


class CauseRecord(_Strict):
    """Who says that the folder's cause is the cause."""

    witness: Witnesses


class WhyRecord(Words):
    """The mechanism, in both languages."""

    witness: Witnesses


class SignatureRecord(_Strict):
    """``text`` (literal) or ``regex`` (bounded) of a line, the file that prints it, and what it means."""

    text: Annotated[str, Field(min_length=8)] | None = None
    regex: Annotated[str, Field(min_length=8)] | None = None
    source: str = ""
    means: Words


class HardwareRecord(_Strict):
    """The GPUs of the report."""

    gpu: Text | None = None
    count: Annotated[int, Field(ge=1)] | None = None
    capacity_gib: Gib | None = None


class OutcomeRecord(_Strict):
    """An observation."""

    fits: bool | None = None
    peak_gib: Gib | None = None


class OutcomesRecord(_Strict):
    """What was observed before and after the fix."""

    before: OutcomeRecord = OutcomeRecord()
    after: OutcomeRecord = OutcomeRecord()
    witness: list[WitnessRecord] = []


class FixRecord(_Strict):
    """A remedy."""

    text: Words
    safety: Literal["same-numbers", "changed-numerics", "changed-training", "not-applicable"]
    changes: dict[str, Any] = {}
    saves_gib: Gib | None = None
    witness: Witnesses


class EventRecord(_Strict):
    """One event of an OSV range: exactly one of the three."""

    introduced: Text | None = None
    fixed: Text | None = None
    last_affected: Text | None = None


class RangeRecord(_Strict):
    """An OSV range of ecosystem versions."""

    type: Literal["ECOSYSTEM"] = "ECOSYSTEM"
    events: Annotated[list[EventRecord], Field(min_length=1)]


class AffectedRecord(_Strict):
    """A package with affected ranges, or versions that it was seen with."""

    package: Text
    ranges: list[RangeRecord] = []
    seen: list[Text] = []
    needs: str = ""
    witness: Witnesses


class ReferenceRecord(_Strict):
    """A public page."""

    role: Literal["report", "fix", "evidence", "docs", "advisory", "discussion"]
    url: Text


class Record(_Strict):
    """One case file."""

    schema_: Annotated[int, Field(alias="schema", ge=1, le=SCHEMA)]
    title: Words
    summary: Words
    date: Date
    languages: Annotated[list[Literal["en", "zh", "ja", "ko", "mixed"]], Field(min_length=1)]
    frameworks: Annotated[list[Text], Field(min_length=1)]
    hardware: HardwareRecord = HardwareRecord()
    phase: Text = "unknown"
    method: Text | None = None
    objective: Text | None = None
    symptoms: Annotated[list[Annotated[str, Field(min_length=8)]], Field(min_length=1)]
    signatures: list[SignatureRecord] = []
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    outcome: OutcomesRecord = OutcomesRecord()
    cause: CauseRecord
    also: list[Text] = []
    why: WhyRecord
    fixes: list[FixRecord]
    affected: list[AffectedRecord] = []
    references: Annotated[list[ReferenceRecord], Field(min_length=1)]


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
    record: Record, *, case_id: str, path: str = "", private: bool = False, content: bytes | None = None
) -> Case:
    """The light form of a valid record. ``content`` is the file, for the digest."""
    plain = record.model_dump(mode="json", by_alias=True)
    data = content if content is not None else repr(plain).encode()
    return Case(
        id=case_id,
        title=plain["title"],
        summary=plain["summary"],
        why={language: plain["why"][language] for language in ("en", "zh")},
        symptoms=tuple(s.strip() for s in plain["symptoms"]),
        signatures=tuple(
            Signature(s["text"] or "", s["regex"] or "", s["means"], s["source"]) for s in plain["signatures"]
        ),
        hardware=Hardware(**plain["hardware"]),
        frameworks=tuple(plain["frameworks"]),
        phase=plain["phase"],
        method=plain["method"],
        objective=plain["objective"],
        before=plain["before"],
        after=plain["after"],
        outcome_before=Outcome(**plain["outcome"]["before"]),
        outcome_after=Outcome(**plain["outcome"]["after"]),
        also=tuple(plain["also"]),
        fixes=tuple(Fix(**f | {"witness": _witnesses(f["witness"])}) for f in plain["fixes"]),
        affected=tuple(_affected(a) for a in plain["affected"]),
        references=tuple(Reference(**r) for r in plain["references"]),
        languages=tuple(plain["languages"]),
        cause_witness=_witnesses(plain["cause"]["witness"]),
        why_witness=_witnesses(plain["why"]["witness"]),
        outcome_witness=_witnesses(plain["outcome"]["witness"]),
        date=plain["date"],
        schema=plain["schema"],
        private=private,
        path=path,
        digest=hashlib.sha256(data).hexdigest(),
    )


def _witnesses(plain: list[dict[str, Any]]) -> tuple[Witness, ...]:
    return tuple(Witness(**{name: value or "" for name, value in item.items()}) for item in plain)


def _affected(plain: Mapping[str, Any]) -> Affected:
    ranges: list[Range] = []
    for item in plain["ranges"]:
        start = "0"
        for event in item["events"]:
            if event["introduced"] is not None:
                start = event["introduced"]
                ranges.append(Range(start))
            elif ranges and (event["fixed"] is not None or event["last_affected"] is not None):
                ranges[-1] = Range(start, fixed=event["fixed"], last_affected=event["last_affected"])
    return Affected(
        package=plain["package"],
        ranges=tuple(ranges),
        needs=plain["needs"],
        seen=tuple(plain["seen"]),
        witness=_witnesses(plain["witness"]),
    )
