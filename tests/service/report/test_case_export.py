"""What other programs get."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from oomdoc.report.case_page import FORMATS, case_page, export_case, exported
from oomkb.errors import RecordError
from oomkb.records.export import case_document, osv
from oomkb.records.loader import load_cases

REGRESSION = "version-regression/deepspeed-016-zero3-gradient-checkpointing"


def case(identifier: str):
    return next(c for c in load_cases() if c.id == identifier)


def test_json_holds_every_case_and_nothing_of_this_machine() -> None:
    documents = json.loads(exported(load_cases(), "json"))
    assert [d["id"] for d in documents] == [c.id for c in load_cases()]
    assert all("path" not in d and "fixes" in d and d["cause"] == d["id"].split("/")[0] for d in documents)


def test_osv_holds_the_ranges() -> None:
    advisory = osv(case(REGRESSION))
    assert advisory is not None
    assert advisory["affected"][0]["package"] == {"ecosystem": "PyPI", "name": "deepspeed"}
    assert advisory["affected"][0]["ranges"][0]["events"] == [{"introduced": "0.16.0"}, {"fixed": "0.16.8"}]
    assert len(json.loads(exported(load_cases(), "osv"))) == sum(
        any(a.ranges for a in c.affected) for c in load_cases()
    )


def test_every_advisory_validates_against_the_osv_schema(root: Path) -> None:
    schema = json.loads((root / "tests/service/report/osv-1.7.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    validator.check_schema(schema)
    advisories = json.loads(exported(load_cases(), "osv"))
    assert len(advisories) >= 10
    for advisory in advisories:
        assert not [e.message for e in validator.iter_errors(advisory)], advisory["id"]


@pytest.mark.parametrize(
    "fault",
    [
        {"id": ""},
        {"modified": "yesterday"},
        {"affected": [{"package": {"name": "x"}}]},
        {
            "affected": [
                {
                    "package": {"ecosystem": "PyPI", "name": "x"},
                    "ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": "1"}]}],
                }
            ]
        },
        {"references": [{"type": "DISCUSSION BOARD", "url": "https://x.org"}]},
    ],
)
def test_the_schema_refuses_what_is_no_advisory(fault: dict[str, object], root: Path) -> None:
    schema = json.loads((root / "tests/service/report/osv-1.7.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    advisory = osv(case(REGRESSION))
    assert advisory is not None
    assert list(validator.iter_errors(advisory | fault))


def test_versions_that_were_only_seen_are_no_range() -> None:
    seen = [c for c in load_cases() if any(a.seen and not a.ranges for a in c.affected)]
    assert seen
    assert all(osv(c) is None or "versions" not in str(osv(c)) for c in seen)


def test_osv_of_a_case_without_versions_is_refused() -> None:
    plain = next(c for c in load_cases() if not any(a.ranges for a in c.affected))
    assert osv(plain) is None
    with pytest.raises(RecordError, match="no affected range"):
        export_case(plain, "osv", "en")


def test_markdown_in_both_languages() -> None:
    one = case(REGRESSION)
    english, chinese = case_page(one, "en"), case_page(one, "zh")
    assert english.startswith(f"# {one.title['en']}\n")
    assert "deepspeed >=0.16.0,<0.16.8" in english
    assert chinese.startswith(f"# {one.title['zh']}\n")
    assert "怎么办" in chinese
    assert export_case(one, "markdown", "zh") == chinese


def test_a_fix_says_who_stands_for_it() -> None:
    one = case(REGRESSION)
    fixes = case_document(one)["fixes"]
    assert [f["status"] for f in fixes] == [f.status for f in one.fixes]
    assert {"kind": "worked"} in [{"kind": f["standing"]} for f in fixes]
    assert "worked for the reporter" in case_page(one, "en")
    assert "报告者试过，有效" in case_page(one, "zh")


def test_a_case_without_a_fix_says_so() -> None:
    unknown = next(c for c in load_cases() if not c.fixes)
    assert "No fix is known." in case_page(unknown)
    assert case_document(unknown)["fixes"] == []


def test_every_format_and_no_other() -> None:
    one = load_cases()[0]
    for name in FORMATS:
        if name != "osv":
            assert export_case(one, name, "en")
        assert exported([one], name)
    with pytest.raises(RecordError, match="no format"):
        exported([], "pdf")
    with pytest.raises(RecordError, match="no format"):
        export_case(one, "pdf", "en")
