"""What people and other programs get of a case."""

from __future__ import annotations

from oomdoc.report.case_page import case_page
from oomkb.records.case import case_document
from oomkb.records.loader import load_cases

REGRESSION = "version-regression/deepspeed-016-zero3-gradient-checkpointing"


def case(identifier: str):
    return next(c for c in load_cases() if c.id == identifier)


def test_json_holds_every_case_and_nothing_of_this_machine() -> None:
    documents = [case_document(c) for c in load_cases()]
    assert [d["id"] for d in documents] == [c.id for c in load_cases()]
    assert all("path" not in d and "fixes" in d and d["cause"] == d["id"].split("/")[0] for d in documents)


def test_markdown_in_both_languages() -> None:
    one = case(REGRESSION)
    english, chinese = case_page(one, "en"), case_page(one, "zh")
    assert english.startswith(f"# {one.title['en']}\n")
    assert "deepspeed >=0.16.0,<0.16.8" in english
    assert chinese.startswith(f"# {one.title['zh']}\n")
    assert "怎么办" in chinese


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
