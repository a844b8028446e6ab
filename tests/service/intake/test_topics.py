"""Questions are recognised as topics, and what is about none is not."""

from __future__ import annotations

import random

import pytest

from oomdoc.intake.topics import SHOWN, Recogniser, parts_in, parts_of, topics_in
from oomkb.topics import topics


def test_examples_that_are_left_out_are_recognised() -> None:
    """A tenth of the examples, by a recogniser that has not seen them; the weights are those that are shipped."""
    parts = [parts_of(topic) for topic in topics().values()]
    examples = [pair for asked, _ in parts for pair in asked]
    held = random.Random(3).sample(examples, len(examples) // 10)
    one = Recogniser([e for e in examples if e not in held], [t for _, texts in parts for t in texts])
    found = [(name, one.ranked(text)[0]) for name, text in held]
    assert sum(name == first for name, (first, _, _) in found) >= 0.7 * len(found)
    shown = [name == first for name, (first, share, _) in found if share >= SHOWN]
    assert sum(shown) >= 0.85 * len(shown)


@pytest.mark.parametrize(
    "text", ["what is the capital of France", "thanks, that worked!", "今天天气怎么样", "how do I rebase a git branch?"]
)
def test_what_is_about_no_topic(text: str) -> None:
    assert not [name for name, share in topics_in(text).items() if share >= SHOWN]


def test_of_a_long_text_the_sentences_are_read() -> None:
    text = "I train a model on eight cards and all is well so far. " * 10 + "Does gradient accumulation reduce memory?"
    assert "Does gradient accumulation reduce memory?" in parts_in(text)
    assert next(iter(topics_in(text))) == "gradient-accumulation"
