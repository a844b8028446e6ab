"""What a question asks for by its words. The sentences here are none of those that the reader was fitted on."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from oomdoc.intake.wanted import wanted_in
from oomdoc.intake.wanted_words import model, wanted_by_words


def test_the_weights_are_those_of_the_marked_texts(load_bench: Callable[[str], ModuleType]) -> None:
    bench = load_bench("train_wanted")
    assert model().key == bench.key(), "run bench/train_wanted.py --write"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("what should -ngl be for a 14b q5 on a 12 gb card?", "layers"),
        ("how many gpu layers for a 14b q5 file on a 12 gb card?", "layers"),
        ("how many of the 40 layers of a 13B can sit on my 8 GB card", "layers"),
        ("We are a dozen people. What concurrency does one A100 80GB give us for Qwen3-32B-AWQ at 8k?", "requests"),
        ("24G 的卡，Qwen3-14B AWQ，8k，最多能同时伺候几个人？", "requests"),
        ("how fat does the kv get for one session of 100k tokens, Llama-3.1-8B, bf16?", "cache"),
        ("what is the biggest model my 48 GB card can finetune with lora at 4k?", "model"),
        ("64 GB of RAM in the box, is that enough to offload the optimizer of a 7B?", "host"),
        ("Will Qwen3-8B QLoRA fit on one RTX 4090?", "fit"),
    ],
)
def test_what_is_asked_for(text: str, wanted: str) -> None:
    assert wanted_in(text) == wanted


def test_a_text_without_words_asks_for_nothing() -> None:
    assert wanted_by_words("")[0] in model().names
    assert wanted_in("") == "fit"
