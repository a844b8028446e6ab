"""A public thread that reads like the report: shown with its link, and it speaks for its cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oomdoc.diagnosis.engine import diagnose, view_of
from oomdoc.diagnosis.ranking import scores, weigh
from oomdoc.diagnosis.view import DECISIVE
from oomdoc.intake import read_text
from oomdoc.report.document import diagnosis_document
from oomdoc.report.markdown import diagnosis_markdown
from oomkb.retrieval.threads import KnownThread

TEXT = "CUDA out of memory. Tried to allocate 1.00 GiB while my model runs"
URL = "https://github.com/example/repository/issues/1"


def _with(likeness: float, also: tuple[str, ...] = ()):
    view, *_ = view_of(read_text(TEXT))
    return replace(view, threads=(KnownThread(URL, "leak", also, likeness),)), replace(view, threads=())


@pytest.mark.parametrize(("likeness", "least", "most"), [(0.3, 0.0, 0.0), (0.5, 1.0, 2.5), (0.9, DECISIVE, DECISIVE)])
def test_the_more_alike_the_more_it_says(likeness, least, most):
    near, far = _with(likeness)
    said = [reason.log_odds for reason in weigh(near)["leak"] if reason.message.key == "cause.thread"]
    assert least <= sum(said) <= most
    assert scores(weigh(near))["leak"] >= scores(weigh(far))["leak"]


def test_further_causes_of_the_thread_gain_less():
    near, far = _with(0.9, ("eval",))
    gained = {c: scores(weigh(near))[c] - scores(weigh(far))[c] for c in ("leak", "eval", "logits")}
    assert gained["leak"] > gained["eval"] > gained["logits"] == 0


def test_hidden_cases_hide_their_threads():
    assert view_of(read_text(TEXT), hidden={"leak/any"})[0].threads == ()


def test_the_answer_names_the_thread(monkeypatch):
    from oomkb.retrieval import views

    monkeypatch.setattr(
        views, "likenesses", lambda *_: (KnownThread(URL, "leak", (), 0.8), KnownThread("x", "eval", (), 0.4))
    )
    found = diagnosis_document(diagnose(read_text(TEXT)), "en")
    assert found["threads"] == [{"url": URL, "cause": "leak", "also": [], "likeness": 0.8}]
    assert any(URL in why for why in found["causes"][0]["why"])
    assert URL in diagnosis_markdown(found, "en")
