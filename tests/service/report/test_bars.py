"""The bars add up and stay inside their width."""

from __future__ import annotations

from oomdoc.report.chart import largest_terms, stacked_bar


def test_lengths_are_proportional() -> None:
    segments = stacked_bar([10, 20, 10], full=40, width=40)
    assert [len(s) for s, _ in segments] == [10, 20, 10]


def test_never_wider_than_asked() -> None:
    segments = stacked_bar([30, 30, 30], full=40, width=20)
    assert sum(len(s) for s, _ in segments) == 20


def test_an_empty_scale_draws_nothing() -> None:
    assert all(not s for s, _ in stacked_bar([1.0], full=0, width=10))


def test_small_terms_are_summed() -> None:
    terms = {f"t{i}": float(i) for i in range(1, 10)}
    shown = largest_terms(terms, keep=3)
    assert [n for n, _ in shown] == ["t9", "t8", "t7", "other"]
    assert sum(s for _, s in shown) == sum(terms.values())
