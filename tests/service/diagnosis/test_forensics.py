"""The size asked for names the tensor, and coincidence is priced."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.forensics import tensors_for
from oomdoc.diagnosis.forensics.candidates import Scene
from oomdoc.diagnosis.forensics.matching import rounding_of
from oomkb.memory.job import Job
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB, MIB


def shape(**dims: int) -> ModelShape:
    config = {
        "model_type": "qwen2",
        "vocab_size": 151_936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    }
    return ModelShape.from_config({**config, **dims})


def match(size_gib: float, model: ModelShape, job: Job, scene: Scene | None = None):
    requested = round(size_gib * GIB)
    return tensors_for(requested, rounding_of(requested), model, job, scene)


def test_dpo_pair_at_4096_tokens() -> None:
    job = Job(objective="dpo", micro_batch=1, seq_len=4096)
    best = match(4.64, shape(), job, Scene(phase="loss"))[0]
    assert (best.name, best.cause, best.dtype) == ("fp32-logits", "logits", "float32")
    assert best.shape == (8192, 151_936)
    assert best.match > 0.9


def test_unknown_length_is_solved_for() -> None:
    model = shape(vocab_size=152_064, hidden_size=3584, intermediate_size=18_944, num_attention_heads=28)
    best = match(4.64, model, Job(objective="dpo"), Scene(phase="loss"))[0]
    assert best.cause == "logits"
    assert best.shape[0] == 8192


def test_optimizer_shard_with_allocated_a_multiple() -> None:
    model = ModelShape.from_config(
        {
            "model_type": "llama",
            "vocab_size": 32_000,
            "hidden_size": 4096,
            "intermediate_size": 11_008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
        }
    )
    job = Job(objective="sft", method="full", sharding="zero2", gpus=4)
    scene = Scene(phase="unknown", allocated_bytes=round(31.41 * GIB))
    best = match(6.28, model, job, scene)[0]
    assert best.name == "optimizer-shard"
    assert best.match > 0.8


def test_gathered_embedding_under_zero3() -> None:
    model = shape(
        vocab_size=152_064, hidden_size=5120, intermediate_size=13_696, num_attention_heads=40, num_key_value_heads=40
    )
    job = Job(objective="sft", method="lora", sharding="zero3", gpus=2, micro_batch=1, seq_len=512)
    best = match(1.45, model, job)[0]
    assert (best.name, best.cause) == ("weight embedding", "zero3-gather")


@pytest.mark.parametrize("size", [2 * MIB, 20 * MIB])
def test_standard_segments_say_nothing(size: int) -> None:
    assert tensors_for(size, rounding_of(size), shape(), Job()) == []


def test_chance_is_priced() -> None:
    job = Job(objective="sft", micro_batch=1, seq_len=2048)
    sizes = [0.9 + 0.0317 * i for i in range(100)]
    believed = sum(any(t.match >= 0.8 for t in match(s, shape(), job)) for s in sizes)
    assert believed <= 20


def test_rounding_follows_the_message() -> None:
    assert rounding_of(GIB) == pytest.approx(0.005 * GIB)
    assert rounding_of(GIB - 1) == pytest.approx(0.005 * MIB)
