"""A public thread is known again by its words and figures, told in another order and with other words around."""

from __future__ import annotations

import pytest
from bench.known_threads import table_of

from oomkb.records.taxonomy import CAUSES
from oomkb.retrieval.threads import likenesses, marks, shipped

ONE = "trainer saves a checkpoint of llama 13b, tried to allocate 986.00 mib, 23.64 gib total, zero stage 2"
TWO = "vllm serves qwen with tensor parallel 4 and dies while profiling, 47.53 gib total, gpu_memory_utilization 0.95"


def _table(*texts):
    from collections import Counter

    counted = [Counter(marks(text, text)) for text in texts]
    return table_of([(f"https://example.org/{n}", "logits", ("eval",), counts) for n, counts in enumerate(counted)])


def test_words_and_figures_find_the_thread_whatever_their_order():
    again = "zero stage 2: llama 13b, trainer saves, 23.64 gib total. tried to allocate 986.00 mib. please help me"
    best = _table(ONE, TWO).like(marks(again, again))[0]
    assert best.url == "https://example.org/0"
    assert best.likeness > 0.5
    assert (best.cause, best.also) == ("logits", ("eval",))


def test_the_same_text_is_wholly_alike_and_another_is_not_there():
    table = _table(ONE, TWO)
    assert [round(k.likeness, 3) for k in table.like(marks(ONE, ONE))] == [pytest.approx(1.0, abs=2e-3)]
    assert table.like(marks("my cat sleeps", "my cat sleeps")) == ()
    assert table.like([]) == ()


def test_figures_tell_apart_what_words_do_not():
    there = "cuda out of memory. tried to allocate {} mib with total capacity of {} gib"
    first, second = there.format("986.00", "23.64"), there.format("508.00", "39.59")
    assert next(known.url[-1] for known in _table(first, second, ONE).like(marks(second, second))) == "1"


def test_short_figures_are_no_marks():
    assert marks("8 gpus, batch 16, 2048 tokens, 7.5 gib", "") == ["2048", "7.5"]


def test_a_question_of_a_few_words_is_like_no_thread():
    asked = "llama 13b zero stage 2 986.00 mib"
    assert _table(ONE, TWO).like(marks(asked, asked)) == ()


def test_the_shipped_table_is_whole():
    table = shipped()
    assert len(table.urls) == len(set(table.urls)) == len(table.causes) == len(table.also)
    assert set(table.causes) <= set(CAUSES)
    assert all(url.startswith("https://") for url in table.urls)
    assert len(table.starts) == len(table.marks) + 1
    assert int(table.starts[-1]) == len(table.holders) == len(table.weights)
    assert int(table.holders.max()) < len(table.urls)


def test_an_unrelated_report_is_like_no_thread():
    text = "the printer on the second floor is out of paper again, who orders a5 sheets?"
    assert likenesses(text, text) == ()
