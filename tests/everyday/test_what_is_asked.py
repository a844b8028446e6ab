"""Questions whose point is easily missed: the largest model, layers, the cache alone, a failure that is over, a wish."""

from __future__ import annotations

import json

import pytest

import oomdoc


def _said(text: str) -> str:
    return oomdoc.diagnose(text).text()


@pytest.mark.parametrize(
    "text", ["What's the biggest model I can QLoRA on a 3090?", "一张 3090 最大能 QLoRA 微调多大的模型"]
)
def test_the_largest_model(text: str) -> None:
    """4-bit weights, adapters, 16-bit embeddings and logits in 23.7 GiB: 17 to 35 billion parameters."""
    first = _said(text).split("B ")[0]
    size = float(first.split()[-1].strip("约"))
    assert 17 <= size <= 35


def test_layers_on_the_card() -> None:
    """42 GiB over 80 layers, 23.7 on the card: about half of them."""
    said = " ".join(
        _said("llama 3.3 70b q4_k_m on a 3090 in llama.cpp: how many layers can I offload to the gpu?").split()
    )
    layers = int(said.split("-ngl ")[1].split()[0].rstrip("."))
    assert 35 <= layers <= 45


@pytest.mark.parametrize(
    "text",
    [
        "KV cache of Llama-3.1-8B at 64k, fp16 and fp8?",
        "Llama-3.1-8B 单条 65536 的 KV cache 多大？fp16 和 fp8 各是多少",
    ],
)
def test_the_cache_alone_in_two_formats(text: str) -> None:
    """128 KiB a token: 8 GiB, and half of that."""
    said = _said(text)
    assert "8.00 GiB" in said.split("\n", 1)[0]
    assert "4.00 GiB" in said.split("\n", 1)[0]


def test_the_cache_of_a_batch() -> None:
    """Eight requests of 1.75 GiB: a batch of a model that is only run is what its cache holds together."""
    assert "14.00 GiB" in _said("Qwen2.5-7B bf16 inference, 32k input, batch 8: how large is the KV cache?")


@pytest.mark.parametrize(
    "text",
    [
        "之前爆显存的问题解决了，batch 改成 1 就行。Qwen2.5-7B QLoRA，4090 24G，长度 2048。新问题：长度 4096 放得下吗",
    ],
)
def test_a_question_behind_a_failure_that_is_over(text: str) -> None:
    found = oomdoc.diagnose(text).document()
    assert found["verdict"] == "no-failure"
    assert found["outlook"]["answer"] in ("fits", "tight", "does-not-fit")


@pytest.mark.parametrize("wish", ["no offload please", "I don't want CPU offload", "不想用 CPU offload"])
def test_what_is_not_wanted_is_in_no_plan(wish: str) -> None:
    found = json.loads(
        oomdoc.diagnose(f"Full fine-tune of Qwen2.5-32B on 8 x A100 40GB with ZeRO-3, {wish}. Fits?").json()
    )
    assert found["outlook"]["answer"] == "does-not-fit"
    assert found["plans"]
    assert not any("offload" in change["key"] for plan in found["plans"] for change in plan["changes"])


def test_memory_that_card_and_host_share() -> None:
    """A Mac of 512 GB: the size before its name is its own, though no card has so much."""
    assert (
        oomdoc.diagnose("can I run deepseek r1 671b q4 on a 512GB mac studio?").document()["outlook"]["answer"]
        == "fits"
    )


def test_every_change_of_a_priced_plan_is_shown() -> None:
    text = (
        "pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 --num-layers 40 "
        "--hidden-size 5120 --num-attention-heads 40 --seq-length 4096 --max-position-embeddings 4096 "
        "--micro-batch-size 4 --global-batch-size 256 --bf16\n8 x A100-40GB, it OOMs while building the optimizer\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 200.00 MiB. GPU 3 has a total capacity of "
        "39.39 GiB of which 118.06 MiB is free."
    )
    report = oomdoc.diagnose(text)
    first = next(plan for plan in report.document()["plans"] if plan["changes"])
    assert len(first["changes"]) > 4
    assert all(change["key"].split()[0].lstrip("-") in report.text() for change in first["changes"])
