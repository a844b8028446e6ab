"""Advisories of cases with affected versions, against the format's schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from oomkb.records.loader import load_cases
from oomkb.records.osv import osv

REGRESSION = "version-regression/deepspeed-016-zero3-gradient-checkpointing"


def _case(identifier: str):
    return next(c for c in load_cases() if c.id == identifier)


@pytest.fixture
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads((Path(__file__).parent / "osv-1.7.schema.json").read_text(encoding="utf-8"))
    made = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    made.check_schema(schema)
    return made


def test_an_advisory_holds_the_ranges() -> None:
    advisory = osv(_case(REGRESSION))
    assert advisory is not None
    assert advisory["affected"][0]["package"] == {"ecosystem": "PyPI", "name": "deepspeed"}
    assert advisory["affected"][0]["ranges"][0]["events"] == [{"introduced": "0.16.0"}, {"fixed": "0.16.8"}]


def test_every_advisory_is_valid(validator: jsonschema.Draft202012Validator) -> None:
    advisories = [one for one in map(osv, load_cases()) if one is not None]
    assert len(advisories) >= 10
    for advisory in advisories:
        assert not [e.message for e in validator.iter_errors(advisory)], advisory["id"]


@pytest.mark.parametrize(
    "fault",
    [
        {"id": ""},
        {"modified": "yesterday"},
        {"affected": [{"package": {"name": "x"}}]},
        {"references": [{"type": "DISCUSSION BOARD", "url": "https://x.org"}]},
    ],
)
def test_the_schema_refuses_what_is_no_advisory(
    fault: dict[str, object], validator: jsonschema.Draft202012Validator
) -> None:
    advisory = osv(_case(REGRESSION))
    assert advisory is not None
    assert list(validator.iter_errors(advisory | fault))


def test_versions_that_were_only_seen_are_no_range() -> None:
    seen = [c for c in load_cases() if any(a.seen and not a.ranges for a in c.affected)]
    assert seen
    assert all(osv(c) is None or "versions" not in str(osv(c)) for c in seen)
