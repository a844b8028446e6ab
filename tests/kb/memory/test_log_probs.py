"""The passes for log-probabilities of reinforcement learning, against arithmetic on paper."""

from __future__ import annotations

import pytest

from oomkb.memory.job import Job
from oomkb.pricing import price
from oomkb.units import GIB

VERL = {
    "model": "Qwen/Qwen2.5-7B-Instruct",
    "objective": "grpo",
    "method": "full",
    "framework": "verl",
    "gpus": 8,
    "gpu": "A100 80GB",
    "micro_batch": 2,
    "prompt_len": 1024,
    "completion_len": 6144,
    "grad_ckpt": True,
}
_WORDS = 152_064


def _logits_gib(**fields: object) -> float:
    found = price(Job.from_document({**VERL, **fields})).estimate
    return found.phases["log-probabilities"].terms_bytes["logits and loss"] / GIB


def test_compiled_entropy_has_one_exponential_in_fp32() -> None:
    """``bench/trace_log_probs.py``: 6 bytes for a word of the vocabulary compiled, 14 as it is written."""
    assert _logits_gib(log_prob_batch=16) == pytest.approx(16 * 7168 * _WORDS * 6 / GIB, rel=0.001)
    assert _logits_gib(log_prob_batch=4, use_torch_compile=False) == pytest.approx(
        4 * 7168 * _WORDS * 14 / GIB, rel=0.001
    )


def test_elsewhere_logits_and_their_fp32_copy() -> None:
    assert _logits_gib(log_prob_batch=4, framework="openrlhf") == pytest.approx(4 * 7168 * _WORDS * 6 / GIB, rel=0.001)


def test_a_fused_loss_has_no_logits() -> None:
    assert (
        _logits_gib(log_prob_batch=4, fused_ce=True) < 5
    )  # a layer of as many tokens is the larger then; whole, 24 GiB


def test_no_pass_without_its_batch() -> None:
    assert "log-probabilities" not in price(Job.from_document(VERL)).estimate.phases
