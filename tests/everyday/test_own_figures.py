"""What a person measured answers without a model: lists of sizes and peaks, one figure, what nvidia-smi shows."""

from __future__ import annotations

import re

import pytest

import oomdoc

_BY_LENGTH = [
    "Peaks: 18 GB at 1024 tokens, 24 at 2048, 36 at 4096. Is 8192 ok on the 80GB card?",
    "seq 1024 -> 18GB, 2048 -> 24GB, 4096 -> 36GB (bs=1), card has 80 GB. does 8192 fit?",
    "实测：长度 1024 占 18G，2048 占 24G，4096 占 36G，80G 的卡，8192 行吗",
]


@pytest.mark.parametrize("text", _BY_LENGTH)
def test_a_list_of_lengths_is_carried_on(text: str) -> None:
    """18, 24, 36 lie on a line of 6 per 1,024 tokens and 12 at zero: 60 at 8,192."""
    found = oomdoc.diagnose(text).document()
    assert found["outlook"]["answer"] == "fits"
    assert "60.00 GiB" in " ".join(found["sentences"])


def test_the_largest_batch_by_a_list() -> None:
    """5 a sample and 10 at zero: 6 samples take 40 of 45.6 usable, 8 take 50."""
    text = "measured on a 48GB card: bs 1 15G, bs 2 20G, bs 4 30G. can i go to 8?"
    found = oomdoc.diagnose(text).document()
    assert found["outlook"]["answer"] == "does-not-fit"
    assert "50.00 GiB" in " ".join(found["sentences"])
    assert "batch 7" in " ".join(found["sentences"])


def test_the_length_beside_a_list_of_batches_is_no_batch() -> None:
    text = "Lora, seq 2048, A100 40G\nbs=1 22G\nbs=2 27G\nwhat is the largest batch size?"
    assert "2,048" not in " ".join(oomdoc.diagnose(text).document()["sentences"])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("My run takes 20GB at bs 2 on an 80GB card, is bs 4 ok?", "fits"),  # at most 40
        ("My run takes 35GB at bs 4 on an A100 40GB. is bs 6 ok?", "tight"),  # 35 to 52.5
    ],
)
def test_one_figure_bounds(text: str, answer: str) -> None:
    assert oomdoc.diagnose(text).document()["outlook"]["answer"] == answer


def test_what_tensors_take_decides_on_a_smaller_card() -> None:
    """PyTorch gives its cache back before an allocation fails: 41 GiB of tensors and a context fit 48."""
    text = "nvidia-smi shows 74 GB, max_memory_allocated is 41 GB, card is an 80GB one. would a 48 GB card do?"
    assert oomdoc.diagnose(text).document()["outlook"]["answer"] == "fits"
    text = "nvidia-smi shows 74 GB, max_memory_allocated is 47 GB, card is an 80GB one. would a 48 GB card do?"
    assert oomdoc.diagnose(text).document()["outlook"]["answer"] == "tight"


@pytest.mark.parametrize("text", ["4 GPUs 66GB, 8 GPUs 40GB each", "step 100 22GB, step 200 24GB, step 300 26GB"])
def test_other_lists_are_no_sizes_of_a_run(text: str) -> None:
    from oomdoc.intake.read import read_text

    assert not list(read_text(text).find("worked-at"))


def _said(text: str) -> str:
    return " ".join(oomdoc.diagnose(text).document()["sentences"])


def test_a_stated_limit_is_used_to_the_last_gib() -> None:
    """3 a sample and 8 at zero: 12 samples take 44 of 44."""
    said = _said("Measured: batch 2 peaks at 14 GB, batch 4 at 20 GB. How far can I go if I want to stay under 44 GB?")
    assert "batch 12" in said


def test_users_and_their_length_vary_together() -> None:
    """1 a user of 4k above 15: 10 of 4k take 25, 10 of 8k take 35."""
    said = _said(
        "Our server: 3 users at 4k tokens each -> 18 GB, 5 users -> 20 GB. Then 10 users at 4k, 10 users at 8k?"
    )
    assert "25.00 GiB" in said
    assert "35.00 GiB" in said


def test_what_is_shared_falls_with_the_cards() -> None:
    """160 shared and 10 each: 20 on 16 cards, 30 on 8, 50 on 4, 90 on 2."""
    said = _said(
        "ZeRO-3, same micro batch: 16 GPUs 20 GB each, 8 GPUs 30 GB each. What do 4 GPUs of 80GB need each? And 2 GPUs?"
    )
    assert "50.00 GiB" in said
    assert "90.00 GiB" in said


def test_a_cache_that_is_too_small_is_worked_out() -> None:
    """8 GiB for 131,072 tokens and 4 there: 65,536 tokens, and with 4 GiB more twice as many."""
    said = _said(
        "vllm serve some/model-7B --gpu-memory-utilization 0.9\nValueError: To serve at least one request with the "
        "models's max seq len (131072), (8.00 GiB KV cache is needed, which is larger than the available KV cache "
        "memory (4.00 GiB). Based on the available memory, the estimated maximum model length is 65536.\n"
        "80 GB card. Is gpu_memory_utilization 0.95 enough?"
    )
    assert "65,536 as it is" in said
    assert "131,07" in said.partition("--gpu-memory-utilization 0.95")[0]


def test_fewer_cards_hold_more_of_the_states() -> None:
    """16 bytes of 14.77B parameters over 4 cards are 27.5 GiB more on each than over 8."""
    text = (
        "DeepSpeed ZeRO-3, Qwen2.5-14B full fine-tuning, bf16 AdamW, batch 4, checkpointing on. On 8 A100 80GB each "
        "card held 52 GB. Now I only have 4 of the same cards and it runs out of memory in the first step. Why?"
    )
    found = oomdoc.diagnose(text).document()
    assert found["causes"][0]["cause"] == "model-states"
    assert found["job"]["gpus"] == 4
    assert "27.51 GiB" in " ".join(found["sentences"])


def test_the_logits_of_an_evaluation_are_counted() -> None:
    """1,024 x 151,936 x 4 bytes are 0.58 GiB; 400 of them 231.84 GiB, more than 64 of RAM."""
    text = (
        "HF Trainer, Qwen2.5-1.5B, seq length 1024, 64 GB of RAM. Training is fine, but the evaluation with "
        "compute_metrics over 400 samples runs out of GPU memory. Would eval_accumulation_steps help?"
    )
    said = _said(text)
    assert "0.58 GiB" in said
    assert "231.84 GiB" in said


_AT_ONE_LENGTH = [
    "Measured with ZeRO-3 on 4x 80GB: Llama-3.1-8B full fine-tuning, seq 2048, bs 1, no gradient checkpointing, "
    "peak 44G. Now we need seq 8192, what will it be?",
    "ZeRO-3 4×80G 实测：Llama-3.1-8B 全参 seq2048 bs1 没开gradient checkpointing，峰值44G。现在要上 seq 8192，会到多少？",
    "Llama-3.1-8B full fine-tuning, ZeRO-3, 4x 80 GB, batch 1, no checkpointing. At 2048 tokens the peak is 44 GB. "
    "What would 8192 tokens take?",
]


@pytest.mark.parametrize("text", _AT_ONE_LENGTH)
def test_less_than_estimated_is_less_for_each_token(text: str) -> None:
    """8.03e9 x 16 bytes / 4 = 29.9 GiB of states stay; 14.1 GiB at 2,048 tokens are about four times as much at 8,192,
    the logits' share of it the same: 75 to 90 GiB, where the estimate alone says 106. What was measured fits.
    """
    said = " ".join(oomdoc.diagnose(text).document()["sentences"])
    figures = [float(f) for f in re.findall(r"([\d.]+) GiB", said)]
    assert any(75 < figure < 90 and figure != 80.0 for figure in figures)
    assert not any(100 < figure < 115 for figure in figures)
    assert "tokens tokens" not in said


@pytest.mark.parametrize(
    "text",
    [
        "vLLM says GPU KV cache size: 61,312 tokens, Maximum concurrency for 16,384 tokens per request: 3.74x. With 30 "
        "concurrent requests of about 3.5k tokens it keeps preempting. Would --kv-cache-dtype fp8 solve that?",
        "GPU KV cache size: 61,312 tokens, Maximum concurrency for 16,384 tokens per request: 3.74x。30并发，平均每条3.5k "
        "token，一直 preempted。kv-cache-dtype fp8 开了能解决吗？",
    ],
)
def test_a_cache_in_eight_bits_holds_twice_as_many(text: str) -> None:
    """61,312 / 3,584 = 17 requests; twice the tokens hold 34, enough for 30. A ratio that is printed counts no users."""
    said = " ".join(oomdoc.diagnose(text).document()["sentences"])
    assert "17" in said
    assert "107,520" in said
    assert "122,624" in said
    assert "34" in said
