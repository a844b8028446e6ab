"""What stands beside what was asked, and what a failure's figures mean for fields that nobody stated."""

from __future__ import annotations

import json

import pytest

import oomdoc
from oomdoc.intake import read_text

REQUEST = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {gib:.2f} GiB. GPU 0 has a total capacity of 79.15 "
    "GiB of which 2.10 GiB is free.\n"
)
VOCABULARY, LENGTH = 128_256, 8_192
"""Of Llama 3.1, and tokens of a sample."""


def _logits(batch: int) -> str:
    return REQUEST.format(gib=batch * LENGTH * VOCABULARY * 4 / 2**30)


def test_a_request_for_whole_logits_means_that_no_fused_loss_is_in_effect() -> None:
    text = (
        f"TRL SFT, LoRA of Llama-3.1-8B on one A100 80GB, max_length {LENGTH}, batch 4, checkpointing on\n{_logits(4)}"
    )
    document = oomdoc.diagnose(text).document()
    assert document["job"]["fused_ce"] is False
    assert document["inferred"]["fused_ce"]["value"] is False
    assert "whole copy of the logits" in json.dumps(document["inferred"])


@pytest.mark.parametrize("batch", [1, 2, 6])
def test_a_request_for_logits_tells_the_batch_that_nobody_stated(batch: int) -> None:
    text = f"HF Trainer, LoRA of Llama-3.1-8B on one A100 80GB, max_length {LENGTH}\n{_logits(batch)}"
    job = oomdoc.diagnose(text).document()["job"]
    assert job.get("micro_batch") == batch


def test_a_request_of_another_size_tells_no_batch() -> None:
    text = f"HF Trainer, LoRA of Llama-3.1-8B on one A100 80GB, max_length {LENGTH}\n{REQUEST.format(gib=5.13)}"
    assert oomdoc.diagnose(text).document()["job"].get("micro_batch") is None


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("with 8-bit Adam", "optimizer", "adamw_8bit"),
        ("Liger is on", "fused_ce", True),
        ("sample packing enabled", "packing", True),
        ("optimizer is adafactor", "optimizer", "adafactor"),
    ],
)
def test_settings_in_the_words_of_a_failed_run_count(words: str, field: str, value: object) -> None:
    text = f"full fine-tuning of Llama-3.1-8B on an H100 80GB with TRL, {words}, batch 4, 8192 tokens\n{_logits(1)}"
    assert oomdoc.diagnose(text).document()["job"].get(field) == value


def test_what_is_only_asked_of_a_failed_run_is_not_on() -> None:
    text = (
        f"full fine-tuning of Llama-3.1-8B on an H100 80GB with TRL, 8192 tokens\n{_logits(1)}\nwould 8-bit Adam help?"
    )
    assert oomdoc.diagnose(text).document()["job"].get("optimizer") is None


def test_where_the_named_cards_are_too_few_it_says_how_many_are_enough() -> None:
    said = oomdoc.diagnose(
        "Qwen2.5-72B full SFT with ZeRO-3, 4096 tokens: how many A100 80GB at least? I have 8."
    ).text()
    assert "24 × A100 80GB hold it" in said


def test_caches_of_compared_servers_stand_side_by_side() -> None:
    said = oomdoc.diagnose(
        "vLLM, Llama-3.3-70B FP8 on H100s: TP=2 or TP=4, what does it change for the KV cache?"
    ).text()
    assert "The KV cache holds: tp 2 about" in " ".join(said.split())


def test_files_of_few_bits_are_listed_where_no_usual_one_fits() -> None:
    said = oomdoc.diagnose("DeepSeek-R1 671B in llama.cpp on an M2 Ultra 192GB: which quantization fits?").text()
    assert "IQ1_S" in said
    assert "F16" not in said


def test_the_card_of_a_run_that_failed_otherwise() -> None:
    text = (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
        "QLoRA of Qwen3-14B on an RTX 5090, are 32 GB too little?"
    )
    report = oomdoc.diagnose(text)
    assert report.document()["verdict"] == "not-oom"
    assert "As to the memory: Yes" in " ".join(report.text().split())


def test_a_limit_beyond_the_machine_s_memory_is_no_room() -> None:
    text = (
        "MacBook Pro M2 16GB, LoRA of Qwen2.5-3B with peft, torch_dtype=torch.float32, batch 4, 1024 tokens\n"
        "RuntimeError: MPS backend out of memory (MPS allocated: 17.04 GB, other allocations: 0.8 GB, max allowed: 18.13 "
        "GB). Tried to allocate 593.50 MB on private pool."
    )
    plans = [plan for plan in oomdoc.diagnose(text).document()["plans"] if plan["needed_gib"]]
    assert plans
    assert all(plan["needed_gib"] <= 10.7 for plan in plans if (plan["fits_probability"] or 0) > 0.5)


def test_a_run_that_fills_a_card_to_the_brim_gets_the_next_one_named() -> None:
    said = oomdoc.diagnose("Smallest card for a bf16 LoRA of Mistral-7B, 1024 tokens, batch 1, checkpointing?").text()
    assert "16 GB only just, 24 GB to be safe" in " ".join(said.split())


@pytest.mark.parametrize(
    ("text", "gpu", "count"),
    [
        ("We moved from 8x A100 40GB to 4x H100 80GB with Qwen2.5-14B, ZeRO-3. Does it fit?", "H100 80GB", 4),
        ("从 8 张 A100 40G 换到 4 张 H100 80G，Qwen2.5-14B zero3 全参，还放得下吗？", "H100 80G", 4),
    ],
)
def test_the_cards_that_were_left_are_not_those_of_the_run(text: str, gpu: str, count: int) -> None:
    evidence = read_text(text)
    assert (evidence.value("gpu"), evidence.value("gpu_count")) == (gpu, count)


@pytest.mark.parametrize(
    "text", ["把 export_size 改成 2 有用吗?", "I went with eval_accumulation_steps=1 for the Trainer"]
)
def test_a_key_of_no_field_sets_none(text: str) -> None:
    facts = read_text(text).facts
    assert facts.keys().isdisjoint({"micro_batch", "grad_accum"}) or facts["grad_accum"].value is None


def test_a_key_in_a_sentence_names_no_other_framework_than_the_sentence() -> None:
    assert (
        read_text("full finetune of Mistral-7B with axolotl, micro_batch_size 1, does it fit?").framework == "axolotl"
    )


def test_the_first_question_decides_what_is_answered_first() -> None:
    text = "llama 3.3 70b q4_k_m in llama.cpp, one 3090. how many layers go on the card at 8k context? and is 32 GB of RAM enough for the rest?"
    assert "-ngl" in oomdoc.diagnose(text).text()


def test_a_phase_that_passed_is_not_where_it_failed() -> None:
    text = "verl GRPO of Qwen2.5-7B on 8x H100: rollout 那段过了，到 update_actor 的时候 CUDA out of memory"
    assert read_text(text).value("phase") == "backward"


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("Would Qwen2.5-32B in 4bit with Unsloth train on my one 4090? 4096 ctx, r=16, batch 1", "qlora"),
        ("能在一张 4090 上训练 4bit 的 Qwen2.5-14B 吗？r=16，长度 4096", "qlora"),
        ("LoRA r=16 of Llama-3.1-8B on one 24GB card, quantized to 4 bit only afterwards. Does it train?", "lora"),
    ],
)
def test_adapters_are_trained_over_the_bits_that_a_question_names(text: str, method: str) -> None:
    assert oomdoc.diagnose(text).document()["job"]["method"] == method


def test_torchtune_s_chunked_loss_is_written_as_its_class() -> None:
    text = f"torchtune lora_finetune_single_device of llama3.1 8b, batch_size: 4, seq 8192, A100 80GB\n{_logits(4)}"
    shown = json.dumps(oomdoc.diagnose(text).document())
    assert "CEWithChunkedOutputLoss" in shown
    assert '"loss._component_", "old": false' not in shown


def test_a_mac_is_proposed_no_kernels_of_cuda() -> None:
    text = (
        'pipe = FluxPipeline.from_pretrained("black-forest-labs/FLUX.1-dev", torch_dtype=torch.bfloat16).to("mps")\n'
        "RuntimeError: MPS backend out of memory (MPS allocated: 34.87 GB, other allocations: 1.12 GB, max allowed: "
        "36.27 GB). Tried to allocate 432.00 MB on private pool. My machine is an M1 Max with 32 GB."
    )
    shown = oomdoc.diagnose(text).text()
    assert "gguf" in shown
    assert "bitsandbytes" not in shown
