"""A public thread that reads like the report is shown with its link, and says nothing of the cause."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import diagnose
from oomdoc.intake import read_text
from oomdoc.report.document import diagnosis_document
from oomdoc.report.markdown import diagnosis_markdown
from oomkb.retrieval.threads import KnownThread

TEXT = "CUDA out of memory. Tried to allocate 1.00 GiB while my model runs"
URL = "https://github.com/example/repository/issues/1"


def test_the_answer_names_the_thread_and_its_causes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    from oomkb.retrieval import views

    before = diagnosis_document(diagnose(read_text(TEXT)), "en")
    monkeypatch.setattr(
        views, "likenesses", lambda *_: (KnownThread(URL, "leak", (), 0.8), KnownThread("x", "eval", (), 0.4))
    )
    found = diagnosis_document(diagnose(read_text(TEXT)), "en")
    assert found["threads"] == [{"url": URL, "cause": "leak", "also": [], "likeness": 0.8}]
    assert found["causes"] == before["causes"]
    assert URL in diagnosis_markdown(found, "en")
