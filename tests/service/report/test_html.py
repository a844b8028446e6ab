"""A report shows in a notebook, whatever it could not price."""

from __future__ import annotations

import pytest

import oomdoc

UNPRICED = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. loss.backward() of our own network, batch 64"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_plans_without_figures(language: str) -> None:
    report = oomdoc.diagnose(UNPRICED, language=language)
    assert any(plan["peak_gib"] is None for plan in report.document()["plans"])
    shown = report._repr_html_()
    assert shown.startswith("<div")
    assert "None" not in shown
