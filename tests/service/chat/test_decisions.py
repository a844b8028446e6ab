"""A turn that decides something and then asks: the decision stands, and the question is about the run as decided."""

from __future__ import annotations

import pytest
from talking import talk

TRAINED = "full fine-tuning of Llama-3.1-8B, FSDP2 on 8x H100 80GB, bf16, 8192 tokens, batch 1, gradient checkpointing"
SERVED = "vllm serve Qwen/Qwen3-14B-AWQ --max-model-len 32768 on one RTX 4090"


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (["what would a fused cross entropy take off?", "use it. and 128k?"], {"fused_ce": True, "seq_len": 131072}),
        (["make it 32k", "back to 8k. what if we get 4 of the 8 GPUs?"], {"seq_len": 8192, "gpus": 8}),
        (["batch 2。如果只有 4 张卡呢？"], {"micro_batch": 2, "gpus": 8}),
    ],
)
def test_the_decision_stands(turns: list[str], expected: dict[str, object]) -> None:
    session, _ = talk(TRAINED, *turns)
    assert {name: session.job.get(name) for name in expected} == expected


def test_the_question_is_about_the_run_as_decided() -> None:
    _, replies = talk(TRAINED, "what would a fused cross entropy take off?", "use it. and 32k?")
    alone = talk(TRAINED, "use_liger_kernel=true", "seq_len=32768")[1]
    assert replies[-1]["peak_gib"] == alone[-1]["peak_gib"]
    assert set(replies[-1]["changed"]) >= {"fused_ce", "seq_len"}


def test_what_is_only_supposed_decides_nothing() -> None:
    session, _ = talk(TRAINED, "If we get two nodes. Does 64k fit then?")
    assert session.job.nodes in (None, 1)


@pytest.mark.parametrize("told", ["on average they use 2-3k tokens", "only 2? on average they use 2-3k tokens"])
def test_the_length_of_a_usual_request_is_kept(told: str) -> None:
    _, replies = talk(SERVED, "how many users at the same time?", told, "and with --kv-cache-dtype fp8?")
    assert all("3,072" in reply["answer"] for reply in replies[-2:])


def test_a_format_beside_the_cache_is_the_cache_s() -> None:
    session, _ = talk(SERVED, "--kv-cache-dtype fp8", "leave the cache at bf16")
    assert session.job.get("serving.kv_dtype") == "bf16"
    assert session.job.quant == "awq-int4"


def test_a_comma_ends_a_number() -> None:
    session, _ = talk(SERVED, "tp=2,32k 打满的请求能同时跑几个")
    assert session.job.tp in (None, 1, 2)
