"""What a sentence of a language model may say, beside the conversations of ``test_tool_loop.py``."""

from __future__ import annotations

import pytest

from oomdoc.assistant.provenance import Sources, says_size

ESTIMATE = {
    "needed_gib": 21.0357,
    "capacity_gib": 23.65,
    "spare_gib": 2.6143,
    "fits": True,
    "terms_gib": {"weights": 14.96},
    "serving": {"kv_kib_per_token": 80.0, "kv_tokens": 319_991},
}


@pytest.fixture
def sources() -> Sources:
    found = Sources()
    found.add_said("an embedding server needs 6 GB beside it; Required: 131072")
    found.add_document({"serving": {"max_concurrency": 11.89}, "fits_probability": 0.9967, "max_pixels": 2073600})
    found.add_document(ESTIMATE)
    found.add_document({"needed_gib": 11.5985, "terms_gib": {"weights": 5.61}})
    return found


@pytest.mark.parametrize(
    "sentence",
    [
        "About 9.4 GiB: the need goes from 21.04 to 11.60 GiB.",
        "Each token keeps 80 KiB, so the cache holds 319,991 of them.",
        "Only 2.61 GiB are left, so the 6 GB server does not fit beside it.",
        "The KV cache stays at 16 bits.",
        "KV 缓存仍是 16 位。",
        "`vllm serve --tensor-parallel-size 2` starts it; embeddings and lm_head stay as they are.",
        "Set OLLAMA_FLASH_ATTENTION=1.",
        "Two of them are 21.04 + 21.04 = 42.08 GiB, and 42.08 / 11.60 is about 3.6.",
        "It holds eleven at once, 11 of them.",
        "The kernel asks for 131,072 bytes.",
        "It is 99 % likely to fit.",
        "FP8 keeps one byte per weight instead of two.",
        "KV values take 8 bits where the weights take 16.",
    ],
)
def test_what_stands_somewhere_may_be_said(sources: Sources, sentence: str) -> None:
    assert sources.problem(sentence) == ""


@pytest.mark.parametrize(
    "sentence",
    [
        "About 9.9 GiB: the need goes from 21.04 to 11.60 GiB.",
        "Each token keeps 90 KiB.",
        "It needs 21.04 GiB, so it does not fit in 23.65 GiB.",
        "`vllm serve evil/model --trust-me` starts it.",
        "`python -m http.server` starts it.",
        "Set VLLM_MAGIC=1.",
    ],
)
def test_what_stands_nowhere_may_not(sources: Sources, sentence: str) -> None:
    assert sources.problem(sentence)


def test_a_unit_that_is_said_once_holds_for_both_sizes() -> None:
    assert says_size("it needs 31.50 of 39.39 GiB", 31.4974)
    assert not says_size("it needs 31 of 39 samples", 31.4974)
