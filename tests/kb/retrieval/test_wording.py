"""The wording of a report: probabilities over all causes, by words whose order and figures do not matter."""

from __future__ import annotations

import math

import numpy as np

from oomkb.records.taxonomy import CAUSES
from oomkb.retrieval.embed import encoder
from oomkb.retrieval.views import plain_words
from oomkb.retrieval.wording import opinions_of, shipped, tokens

GROWS = "GPU memory keeps growing a little with every epoch until the process dies; restarting the service helps"
SAVES = "Training runs fine and then it goes out of memory while saving the model checkpoint with save_pretrained"


def _first(text: str) -> str:
    english = plain_words(text.lower())
    found = opinions_of(encoder().key, encoder().encode([english])[0], english)
    return max(found, key=lambda cause: found[cause])


def test_the_weights_know_every_cause():
    assert set(shipped().causes) == set(CAUSES)
    assert shipped().key == encoder().key


def test_opinions_are_log_probabilities():
    flat = np.zeros(shipped().vector_weights.shape[1], dtype=np.float32)
    found = shipped().opinions(flat, list(shipped().words)[:40])
    assert len(found) == len(CAUSES)
    assert all(-4.5 <= chance <= 0.0 for chance in found.values())
    assert 0.9 < sum(math.exp(chance) for chance in found.values()) < 1.1


def test_reports_of_different_causes_are_told_apart():
    assert _first(GROWS) == "leak"
    assert _first(SAVES) == "checkpoint-save"


def test_the_order_of_words_and_their_figures_say_nothing():
    flat = np.zeros(shipped().vector_weights.shape[1], dtype=np.float32)
    there = shipped().opinions(flat, tokens(plain_words("loaded 13.5 gib after 400 steps")))
    back = shipped().opinions(flat, tokens(plain_words("steps 7 after 2.1 gib loaded")))
    assert all(math.isclose(there[cause], back[cause], abs_tol=1e-4) for cause in there)


def test_of_no_word_there_is_no_opinion():
    flat = np.zeros(shipped().vector_weights.shape[1], dtype=np.float32)
    found = shipped().opinions(flat, [])
    assert max(found.values()) - min(found.values()) < 1e-6


def test_weights_of_another_model_are_not_used():
    assert opinions_of("another-model@0", np.zeros(8, dtype=np.float32), SAVES) == {}
