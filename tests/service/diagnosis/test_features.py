"""Features are observations: what the sizes, the job and the prediction show, whatever cause they speak for."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.features import features_of
from oomdoc.diagnosis.features.sizes import bucket
from oomdoc.intake import read_text
from oomdoc.report.words import render


def of(text: str) -> dict[str, float]:
    return {f.name: f.value for f in features_of(view_of(read_text(text))[0])}


FULL_CARD = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.65 GiB "
    "of which 12.00 MiB is free. Including non-PyTorch memory, this process has 23.62 GiB memory in use. Of the "
    "allocated memory 22.31 GiB is allocated by PyTorch, and 98.00 MiB is reserved by PyTorch but unallocated."
)


def test_a_full_card_is_not_a_fragmented_one() -> None:
    found = of(FULL_CARD)
    assert "held:all" in found
    assert "cached:none" in found
    assert not any(name.startswith("cache-covers-request") for name in found)


def test_a_cache_that_covers_the_request_is_seen() -> None:
    found = of(
        "CUDA out of memory. Tried to allocate 5.00 GiB. GPU 0 has a total capacity of 79.33 GiB of which 1.10 GiB is "
        "free. Of the allocated memory 40.00 GiB is allocated by PyTorch, and 36.00 GiB is reserved by PyTorch but "
        "unallocated."
    )
    assert "cache-covers-request:very-much" in found


def test_what_exceeds_the_card_even_compacted_is_seen() -> None:
    found = of(
        "CUDA out of memory. Tried to allocate 60.00 GiB. GPU 0 has a total capacity of 79.33 GiB of which 38.00 GiB is "
        "free. Of the allocated memory 30.00 GiB is allocated by PyTorch, and 8.00 GiB is reserved by PyTorch but "
        "unallocated."
    )
    assert "request-exceeds-rest" in found


def test_memory_that_another_process_holds_is_measured() -> None:
    found = of(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.33 GiB of which 1.00 GiB is "
        "free. Process 4242 has 60.00 GiB memory in use. Including non-PyTorch memory, this process has 18.00 GiB "
        "memory in use. Of the allocated memory 16.00 GiB is allocated by PyTorch."
    )
    assert "others-hold:most" in found


def test_weights_larger_than_the_card_are_arithmetic() -> None:
    found = of(
        "Loading meta-llama/Llama-3.1-70B-Instruct in bf16 with transformers on one A100 80GB.\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB."
    )
    assert "whole-weights:exceed-card" in found
    assert "weights:exceed" in found


def test_an_engine_spreads_over_its_cards_unless_its_command_says_otherwise() -> None:
    told = "Starting DeepSeek-R1 with vllm0.7.2 on 8 x H200, torch.OutOfMemoryError: CUDA out of memory."
    assert "weights:exceed" not in of(told)
    assert "weights:exceed" in of(f"{told}\n```\nvllm serve deepseek-ai/DeepSeek-R1 --max-model-len 8192\n```")


def test_bars_of_shards_are_no_steps() -> None:
    told = "Loading checkpoint shards: 100%|██████████| 10/10 [00:02<00:00,  3.55it/s]\nCUDA out of memory"
    assert not any(name.startswith("step:") for name in of(told))


def test_a_request_refused_with_room_is_seen() -> None:
    found = of(
        "CUDA out of memory. Tried to allocate 12.00 MiB (GPU 0; 23.65 GiB total capacity; 1.07 GiB already allocated; "
        "21.31 GiB free; 1.13 GiB reserved in total by PyTorch)"
    )
    assert "refused-with-room" in found


@pytest.mark.parametrize(
    ("value", "name"), [(0.0, "low"), (0.99, "low"), (1.0, "middle"), (4.99, "middle"), (5.0, "high"), (1e9, "high")]
)
def test_an_edge_belongs_to_the_upper_range(value: float, name: str) -> None:
    assert bucket(value, {"low": 1.0, "middle": 5.0, "high": float("inf")}) == name


def test_every_message_of_a_feature_has_words_in_both_languages() -> None:
    text = FULL_CARD + "\nper_device_train_batch_size: 4\nmodel: Qwen/Qwen2.5-7B\ncutoff_len: 8192\nV100 x 8, lora"
    for feature in features_of(view_of(read_text(text))[0]):
        assert 0.0 <= feature.value <= 1.0, feature.name
        if feature.message is not None:
            for language in ("en", "zh"):
                assert not render(feature.message, language).startswith(feature.message.key), feature.name
