"""Follow-ups of a conversation without a language model: what they go on from, and why a figure is what it is."""

from __future__ import annotations

import pytest
from talking import answers_of

MEASURED = (
    "Unsloth QLoRA on Phi-4 (14B), seq len 2048, RTX 6000 Ada 48GB. I measured in nvidia-smi: batch 4 peaks at 17.2 GiB, "
    "batch 8 at 25.0 GiB. will 16 fit?"
)


def test_other_sizes_are_answered_by_the_figures_that_were_measured():
    _, (_, more, most) = answers_of(MEASURED, "24?", "so what's the biggest")
    assert more.startswith("No, by your own figures.")
    assert "56.20 GiB" in more  # 9.4 + 24 x 1.95
    assert "batch 18 (about 44.50 GiB)" in most


def test_measured_figures_say_nothing_of_another_length():
    _, (_, answer) = answers_of(MEASURED, "seq_len 4096")
    assert "by your own figures" not in answer.lower()


def test_a_question_goes_on_from_what_was_asked_about():
    session, (_, _, answer) = answers_of(
        "vLLM, Qwen3-8B, one L20, 32k context", "what if it was two L20 with TP=2?", "64k?"
    )
    assert "2 × L20" in answer
    assert session.job.get("serving.max_model_len") == 65536


def test_my_own_card_is_the_one_of_the_run():
    _, answers = answers_of(
        "vLLM, Qwen3-8B, one RTX A6000 48GB, 32k context",
        "just out of curiosity, what would it be on an H100?",
        "ok on my own card then, 16 users at 4k each?",
    )
    assert "RTX A6000" in answers[-1]
    assert "H100" not in answers[-1]


def test_hardware_that_is_corrected():
    session, _ = answers_of("vLLM, Qwen3-8B, A100 80GB, 32k context", "sorry, no A100. it's 2x RTX A6000 48GB")
    assert (session.job.gpu, session.job.gpus) == ("RTX A6000 48GB", 2)


@pytest.mark.parametrize(
    ("turn", "field", "value"),
    [
        ("q8_0 for k and v", "serving.kv_dtype", "q8_0"),
        ("K 和 V 都用 q4_0", "serving.kv_dtype", "q4_0"),
        ("with an f16 kv cache", "serving.kv_dtype", "fp16"),
        ("weights and kv cache in fp8", "quant", "fp8"),
        ("W8A8 权重", "quant", "int8"),
    ],
)
def test_formats_of_the_cache_and_of_the_weights(turn, field, value):
    session, _ = answers_of("vLLM, Qwen3-8B, one A100 80GB, 32k context", turn)
    assert session.job.get(field) == value


def test_a_format_after_the_caches_is_the_caches():
    session, _ = answers_of(
        "llama-server -m Qwen3-32B-Q4_K_M.gguf -c 32768 on a 4090", "with a q4_0 kv cache", "q8_0, 16k"
    )
    assert (session.job.quant, session.job.get("serving.kv_dtype")) == ("q4_k_m", "q8_0")


@pytest.mark.parametrize(
    ("run", "turn", "said"),
    [
        (
            "vLLM, Qwen3-14B, one A100 80GB",
            "why is it only 160 KB a token? it has 40 heads",
            "8 KV heads × 128 × 2 bytes",
        ),
        ("vLLM, DeepSeek-V2-Lite-Chat, one L20", "why so little cache per token?", "one latent of 512 + 64"),
        ("vLLM, gemma-3-27b-it, one A100 80GB", "why is the kv cache so small?", "sliding window of 1,024 tokens"),
        ("vLLM, Qwen3-30B-A3B, one A100 80GB", "why so much? only 3B are active", "all 30.5 billion"),
    ],
)
def test_why_a_part_takes_what_it_takes(run, turn, said):
    assert said in answers_of(run, turn)[1][-1]


@pytest.mark.parametrize(
    "turn", ["how many tokens/s will each user see?", "how long will one epoch take?", "每秒能出多少 token"]
)
def test_rates_and_times_are_not_computed(turn):
    answer = answers_of("vLLM, Qwen3-8B, one A100 80GB", turn)[1][-1]
    assert "not computed" in answer or "不计算" in answer
    assert "GiB" not in answer


def test_a_printed_error_stands_before_the_guess_that_it_is_memory():
    question = "it reports CUDA error: an illegal memory access was encountered, did it run out of memory?"
    answer = answers_of("SGLang, Qwen3-8B, one A100 80GB", question)[1][-1]
    assert "not a lack of memory" in answer
