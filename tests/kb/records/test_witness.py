"""What may be said of a fix follows from its witnesses; sums are computed again."""

from __future__ import annotations

import pytest

from oomkb.records.case import Standing, Witness, standing_of, status_of
from oomkb.records.rules import check_sum
from oomkb.records.taxonomy import STATUSES

WORKED = Witness("reporter-tried", result="worked", ref="r")
IN_VAIN = Witness("reporter-tried", result="in-vain", ref="v")
SAID = Witness("maintainer-said", ref="m")


@pytest.mark.parametrize(
    ("witnesses", "kind", "detail", "status"),
    [
        ((WORKED,), "worked", "", "confirmed-by-reporter"),
        ((SAID, WORKED), "worked", "", "confirmed-by-reporter"),
        ((WORKED, IN_VAIN), "mixed", "", "suggested"),
        ((SAID, IN_VAIN), "in-vain", "", "unknown"),
        ((Witness("reporter-tried", result="partly"),), "partly", "", "suggested"),
        ((Witness("merged-code", pull="a/b#1", release="0.16.8"),), "released", "0.16.8", "confirmed-by-maintainer"),
        ((Witness("merged-code", pull="a/b#1"),), "merged", "a/b#1", "confirmed-by-maintainer"),
        ((Witness("merged-code", commit="abcdef1"),), "merged", "abcdef1", "confirmed-by-maintainer"),
        ((SAID,), "maintainer", "", "suggested"),
        ((Witness("user-said", ref="u"),), "user", "", "suggested"),
        ((Witness("arithmetic", sum="1 = 1"),), "arithmetic", "1 = 1", "arithmetic"),
        ((Witness("reproduced", command="c"),), "reproduced", "c", "arithmetic"),
        ((Witness("inference"),), "reasoning", "", "suggested"),
        ((), "unknown", "", "unknown"),
    ],
)
def test_what_may_be_said(witnesses: tuple[Witness, ...], kind: str, detail: str, status: str) -> None:
    standing = standing_of(witnesses)
    assert (standing.kind, standing.detail, status_of(witnesses)) == (kind, detail, status)
    assert status in STATUSES


def test_what_worked_on_another_page_is_said_of_that_page_and_merged_code_outweighs_it() -> None:
    other = "https://github.com/a/b/issues/7"
    there = Witness("reporter-tried", result="worked", ref=other)
    code = Witness("merged-code", pull="a/b#8", release="1.2", ref="https://github.com/a/b/pull/8")
    assert standing_of((there,), {"r"}) == Standing("elsewhere", "a/b#7", other)
    assert standing_of((there, WORKED), {"r"}).kind == "worked"
    assert standing_of((there, code), {"r"}).kind == "released"
    assert standing_of((there, IN_VAIN), {"r"}).kind == "mixed"


def test_nothing_is_confirmed_by_words_alone() -> None:
    words = (SAID, Witness("user-said", ref="u"), Witness("inference"), Witness("arithmetic", sum="1 = 1"))
    assert not status_of(words).startswith("confirmed")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("69e9 * 18 / 8 / 2**30 = 144.6", ""),
        ("8.00 * 0.70 - 5.20 - 0.03 - 1.42 = -1.05", ""),
        ("(2 + 2) // 3 = 1", ""),
        ("100 = 101.9", ""),
        ("100 = 103", "not 103"),
        ("2 + 2", "not of the form"),
        ("1 = 1 = 1", "not of the form"),
        ("a + 1 = 2", "no arithmetic"),
        ("__import__('os').system('x') = 0", "no arithmetic"),
        ("True + 1 = 2", "no arithmetic"),
        ("9**9**9 = 1", "no arithmetic"),
        ("2**100**100 = 1", "no arithmetic"),
        ("1 / 0 = 1", "no finite value"),
        ("1e308 * 10 = 1", "no finite value"),
        ("1 +" * 200 + " 1 = 1", "longer than"),
    ],
)
def test_sums_are_computed_without_eval(text: str, problem: str) -> None:
    found = check_sum(text)
    assert problem in found if problem else not found
