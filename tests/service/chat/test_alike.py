"""The same facts in one message and spread over turns are the same run; what is undone is as it was."""

from __future__ import annotations

import re
from typing import Any

import pytest
from talking import talk

from oomdoc.chat.conversation import respond
from oomdoc.chat.session import Session
from oomdoc.diagnosis.known_run import priced_run

TRAINED = "LoRA of Qwen2.5-7B on one RTX 4090"
SHARDED = "full fine-tuning of Qwen3-4B on 4 A100 80GB"
SERVED = "serving Qwen2.5-32B-Instruct with vLLM on two A100 80GB"
CHINESE = "在一张 4090 上 LoRA 微调 Qwen3-8B"

SAID: tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...] = (
    (TRAINED, ("micro batch 4", "8k tokens"), {"micro_batch": 4, "seq_len": 8192}),
    (TRAINED, ("no gradient checkpointing", "per-device batch of 2"), {"grad_ckpt": False, "micro_batch": 2}),
    (TRAINED, ("rank 64", "8-bit Adam", "cutoff 4096"), {"lora.r": 64, "optimizer": "adamw_8bit", "seq_len": 4096}),
    (SHARDED, ("zero3", "optimizer states on the CPU"), {"sharding": "zero3", "offload": ("optimizer",)}),
    (SHARDED, ("checkpointing disabled", "grad accum 8"), {"grad_ckpt": False, "grad_accum": 8}),
    (SHARDED, ("liger kernel on", "mbs 2"), {"fused_ce": True, "micro_batch": 2}),
    (SERVED, ("context 16k", "fp8 KV cache"), {"serving.max_model_len": 16384, "serving.kv_dtype": "fp8"}),
    (SERVED, ("without CUDA graphs", "max-num-seqs 32"), {"serving.cuda_graphs": False, "serving.max_num_seqs": 32}),
    (SERVED, ("utilization 80%", "AWQ weights"), {"serving.gpu_memory_utilization": 0.8, "quant": "awq-int4"}),
    (CHINESE, ("长度 8k", "批大小 4"), {"seq_len": 8192, "micro_batch": 4}),
    (CHINESE, ("关掉梯度检查点", "梯度累积 8"), {"grad_ckpt": False, "grad_accum": 8}),
)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _peak(session: Any) -> float:
    return round(priced_run(session.job).estimate.process_bytes / 2**30, 2)


@pytest.mark.parametrize(("base", "settings", "fields"), SAID)
def test_one_message_and_several_turns_are_the_same_run(
    base: str, settings: tuple[str, ...], fields: dict[str, Any]
) -> None:
    comma, ends = ("，", "，能放下吗？") if not base.isascii() else (", ", ". Does it fit?")
    whole, _ = talk(base + comma + comma.join(settings) + ends)
    spread, _ = talk(base + ends, *settings)
    for session in (whole, spread):
        assert {name: _plain(session.job.get(name)) for name in fields} == fields
    assert _peak(whole) == _peak(spread)


@pytest.mark.parametrize(("base", "settings", "fields"), SAID)
def test_what_is_set_and_undone_is_as_before(base: str, settings: tuple[str, ...], fields: dict[str, Any]) -> None:
    session, replies = talk(base, *settings, "back to the start" if base.isascii() else "回到最开始")
    assert session.steps[-1].job == session.steps[0].job
    assert replies[-1]["peak_gib"] == replies[0]["peak_gib"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("what if the batch was 4?", "batch 4"),
        ("would 8-bit adam help?", "8-bit adam"),
        ("长度 8192 会怎样", "长度 8192"),
    ],
)
def test_what_is_supposed_costs_what_it_costs_when_it_is_set(asked: str, told: str) -> None:
    _, (*_, supposed) = talk(TRAINED, asked)
    _, (*_, changed) = talk(TRAINED, told)
    assert supposed["changed"] == {} or supposed["changed"] == changed["changed"]
    assert supposed["peak_gib"] == changed["peak_gib"]
    assert supposed["answer"].split("\n")[0] == changed["answer"].split("\n")[0]


@pytest.mark.parametrize(
    ("turns", "fields"),
    [
        # Alternatives that were set side by side are taken by their place.
        (("A) bs 1 seq 8192 vs B) bs 4 seq 2048", "take B, and liger on"), {"micro_batch": 4, "seq_len": 2048}),
        # Runs that were talked about, by their place or by what they have.
        (("bs 2", "bs 4", "the second one"), {"micro_batch": 2}),
        (("length 4096", "bs 4 and length 1024", "back to the 4096 setup"), {"seq_len": 4096, "micro_batch": None}),
        (("what about Qwen2.5-14B", "back to the 7b but 1k"), {"model": "Qwen2.5-7B", "seq_len": 1024}),
        (("would 8-bit adam help?", "or rank 64", "use both"), {"optimizer": "adamw_8bit", "lora.r": 64}),
        # A question for an amount sets nothing.
        (("bf16, how many cards at least?",), {"gpus": 1}),
        # Offloads add up; a product is worked out; the card's size is the card's.
        (("offload the optimizer", "offload the parameters too"), {"offload": ("optimizer", "param")}),
        (("on an A100", "the 40GB one"), {"gpu": "A100 40GB"}),
    ],
)
def test_turns_that_go_back_to_what_was_said(turns: tuple[str, ...], fields: dict[str, Any]) -> None:
    session, _ = talk(TRAINED, *turns)
    assert {name: _plain(session.job.get(name)) for name in fields} == fields


@pytest.mark.parametrize(
    ("base", "turns", "said"),
    [
        (TRAINED, ("why is it so much?",), "7.62 billion parameters × 2 bytes"),
        (TRAINED, ("bs 8 and 4096 tokens", "why so large?"), "32,768 tokens × 152,064 words of vocabulary"),
        (SERVED, ("32k context and 50 users", "they average 4k"), "50 requests of 4,096 tokens"),
        (SERVED, ("tp 1 on one card", "which of these is better?"), "I would take gpus = 2"),
        (TRAINED, ("bs 4", "so no?"), "batch 4"),
        (SERVED, ("2 instances with 64 users",), "32 requests"),
    ],
)
def test_what_an_answer_says_first(base: str, turns: tuple[str, ...], said: str) -> None:
    _, (*_, reply) = talk(base, *turns)
    assert said in "\n".join(reply["answer"].split("\n")[:2])


def test_users_of_a_length_each() -> None:
    """How many requests of 16k the cache holds: half as many as of 8k, and nothing of the turn is left unread."""
    session, _ = respond(Session(), "vLLM: Qwen3-32B-AWQ on one A6000 48GB, context 8192")
    _, short = respond(session, "how many users at 8k each?")
    _, long = respond(session, "how many users at 16k each?")
    counts = [int(re.search(r"(\d+) requests of", reply.answer)[1]) for reply in (short, long)]
    assert counts[0] // 2 == counts[1]
    assert "not understand" not in short.answer + long.answer


def test_so_many_at_once_in_words() -> None:
    session, _ = respond(Session(), "mistral small 24b awq on a 3090, 32k context")
    _, reply = respond(session, "two users at once, both full")
    assert reply.changed["serving.concurrency"] == 2
