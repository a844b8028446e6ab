"""What other programs get."""

from __future__ import annotations

import json

import pytest

from oomkb.errors import RecordError
from oomkb.records.export import FORMATS, case_document, export_all, export_case, markdown, osv
from oomkb.records.loader import load_cases

REGRESSION = "version-regression/deepspeed-016-zero3-gradient-checkpointing"


def case(identifier: str):
    return next(c for c in load_cases() if c.id == identifier)


def test_json_holds_every_case_and_nothing_of_this_machine() -> None:
    documents = json.loads(export_all("json"))
    assert [d["id"] for d in documents] == [c.id for c in load_cases()]
    assert all("path" not in d and "fixes" in d and d["cause"] == d["id"].split("/")[0] for d in documents)


def test_osv_holds_the_ranges() -> None:
    advisory = osv(case(REGRESSION))
    assert advisory is not None
    assert advisory["affected"][0]["package"] == {"ecosystem": "PyPI", "name": "deepspeed"}
    assert advisory["affected"][0]["ranges"][0]["events"] == [{"introduced": "0.16.0"}, {"fixed": "0.16.8"}]
    assert {r["type"] for r in advisory["references"]} <= {"REPORT", "FIX", "EVIDENCE", "WEB", "ADVISORY", "DISCUSSION"}
    assert len(json.loads(export_all("osv"))) == sum(bool(c.affected) for c in load_cases())


def test_osv_of_a_case_without_versions_is_refused() -> None:
    plain = next(c for c in load_cases() if not c.affected)
    assert osv(plain) is None
    with pytest.raises(RecordError, match="no affected versions"):
        export_case(plain, "osv")


def test_markdown_in_both_languages() -> None:
    one = case(REGRESSION)
    english, chinese = markdown(one, "en"), markdown(one, "zh")
    assert english.startswith(f"# {one.title['en']}\n")
    assert "deepspeed >=0.16.0,<0.16.8" in english
    assert chinese.startswith(f"# {one.title['zh']}\n")
    assert "怎么办" in chinese
    assert export_case(one, "markdown", "zh") == chinese


def test_a_case_without_a_fix_says_so() -> None:
    unknown = next(c for c in load_cases() if not c.fixes)
    assert "No fix is known." in markdown(unknown)
    assert case_document(unknown)["fixes"] == []


def test_every_format_and_no_other() -> None:
    one = load_cases()[0]
    for name in FORMATS:
        if name != "osv":
            assert export_case(one, name)
        assert export_all(name, cases=[one])
    with pytest.raises(RecordError, match="no format"):
        export_all("pdf")
    with pytest.raises(RecordError, match="no format"):
        export_case(one, "pdf")
