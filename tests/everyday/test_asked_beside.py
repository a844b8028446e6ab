"""What people ask beside what they tell: of another form of a failed run, with figures of their own, without a mark."""

from __future__ import annotations

import re

import pytest

import oomdoc


def _text(words: str) -> str:
    return " ".join(oomdoc.diagnose(words, plans=False).text().split())


FAILED = (
    "Full fine-tune of Qwen3-8B on one H100 80GB (bf16 mixed precision, AdamW, batch 1, 2048 tokens, gradient "
    "checkpointing on) died out of memory at the first optimizer step. "
)


@pytest.mark.parametrize(
    "words",
    [
        FAILED + "Would two H100 80GB with ZeRO-3 be enough?",
        "单卡 H100-80G 全参微调 Qwen3-8B，bf16 混合精度，bs1 长度 2048 开了梯度检查点，第一次 optimizer.step 就 OOM。换成两张 H100 用 ZeRO-3 够吗",
    ],
)
def test_a_question_beside_a_failure_is_of_another_run(words: str) -> None:
    report = oomdoc.diagnose(words, plans=False)
    document = report.document()
    assert document["verdict"] == "device-oom"
    assert (document["job"].get("gpus"), document["job"].get("sharding")) == (1, None)
    answer = document["answers"][0]
    assert re.search(r"Yes|可以", answer)
    assert re.search(r"2 × H100|2 张 H100", answer)
    assert "GiB" in answer


@pytest.mark.parametrize(
    "words",
    [
        "8 卡 A100 80G 一台,vllm 部署 Qwen3-32B,BF16 能放下吗?放不下的话最少怎么配?",
        "Does Qwen3-32B in bf16 fit 2 A100 80GB with vLLM? If it runs out of memory, what is the least I need?",
    ],
)
def test_a_failure_that_is_only_feared_takes_nothing_from_the_question(words: str) -> None:
    document = oomdoc.diagnose(words, plans=False).document()
    assert document["verdict"] == "no-failure"
    assert document["answers"] == []
    assert "A100" in document["job"]["gpu"]


def test_a_question_why_it_failed_is_of_the_run_itself() -> None:
    document = oomdoc.diagnose(FAILED + "Why, and what should I change?", plans=False).document()
    assert document["answers"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "LoRA of GLM-4-9B, bf16, length 4096, gradient checkpointing on, one A100-80G: I measured a peak of "
            "26.4 GiB at batch size 1 and 35.1 GiB at batch size 2. What will batch size 4 take?",
            "batch 4 about 52.50 GiB",
        ),
        (
            "Full fine-tune of Mistral-7B, FSDP on 8 A100-80G, seq 4096: it sits at 61 GB with batch size 1. "
            "Can I go to batch size 4?",
            r"61.00 GiB at batch 1\): batch 4 about \d+.\d+ GiB, too much for 79.15 GiB",
        ),
    ],
)
def test_a_persons_own_figures_are_carried_over(words: str, said: str) -> None:
    assert re.search(f"By your own figures.*{said}", _text(words))


def test_a_size_of_a_card_is_no_figure_of_a_run() -> None:
    assert "own figures" not in _text(
        "LoRA of Qwen3-8B at batch size 1 on a card with 24 GB: can I go to batch size 4?"
    )


def test_what_the_allocator_and_nvidia_smi_show_is_put_together() -> None:
    said = _text("allocated: 9.12 GiB reserved: 20.63 GiB max_allocated: 19.87 GiB, nvidia-smi says 21718MiB. A leak?")
    assert "19.87 GiB at most; the other 0.76 GiB" in said
    assert "0.58 GiB of CUDA context" in said


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("does a 14B model fit on my 24GB card for inference", "No: serving a 14B model"),
        ("VRAM for a Qwen3-8B full finetune at 4k?", "About "),
        ("GPUs for full fine-tuning Llama-3.1-70B on H100s?", "24 × H100 at least"),
        ("KV cache of Qwen2.5-7B for 20 chats of 4k in fp8?", "The KV cache alone takes 2.19 GiB"),
        ("Is a p4d.24xlarge enough for full fine-tuning Llama-3.1-8B at 8k?", "Yes: full fine-tuning of Llama-3.1-8B"),
    ],
)
def test_a_question_needs_neither_mark_nor_verb(words: str, first: str) -> None:
    assert _text(words).startswith(first)


def test_ppo_holds_four_models() -> None:
    said = _text("How many GiB per GPU does PPO of Llama-3.1-8B take, full, ZeRO-3, on 8 A100-80G?")
    assert "critic model" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("为什么加载 Llama-3.1-8B 显存占用 31G？A100 40G", "fp32"),
        ("Why does vLLM with Qwen2.5-7B use 72 GB on my A100 80GB?", "No leak: the engine takes"),
    ],
)
def test_what_a_loaded_model_holds_is_weights_in_fp32_or_an_engines_share(words: str, said: str) -> None:
    assert said in _text(words)


def test_requests_that_wait_are_counted_against_the_printed_cache() -> None:
    log = (
        "INFO gpu_executor.py:80] Maximum concurrency for 8192 tokens per request: 3.60x\n"
        "WARNING scheduler.py:1555] Sequence group 7 is preempted by PreemptionMode.RECOMPUTE mode because there is not "
        "enough KV cache space.\n\nLlama-3.1-8B on an L4 with vLLM. We need about 40 users at once, ~3k tokens each."
    )
    assert "9 requests of 3,072. 40 of them need 122,880" in _text(log)


def test_the_longest_that_a_plan_leaves_room_for() -> None:
    """The engine printed room for 30,000 tokens: what its plan sets is the answer, not what arithmetic has."""
    report = oomdoc.diagnose(
        "vllm serve Qwen/Qwen2.5-14B-Instruct --max-model-len 131072 on an A100 40GB:\nValueError: The model's max seq "
        "len (131072) is larger than the maximum number of tokens that can be stored in KV cache (30000). Try increasing "
        "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.\nwhat is the max context I "
        "can get?"
    )
    length = int(re.search(r"up to ([\d,]+) tokens", report.document()["answers"][0])[1].replace(",", ""))
    assert 28_000 <= length <= 30_000
