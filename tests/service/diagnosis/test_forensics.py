"""The size asked for names the tensor, and coincidence is priced."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.tensors import Scene, tensors_for, tensors_of_unknown_model
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
    return tensors_for(requested, model, job, scene)


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
    assert tensors_for(size, shape(), Job()) == ()


def test_chance_is_priced() -> None:
    job = Job(objective="sft", micro_batch=1, seq_len=2048)
    sizes = [0.9 + 0.0317 * i for i in range(100)]
    believed = sum(any(t.match >= 0.8 for t in match(s, shape(), job)) for s in sizes)
    assert believed <= 20


def test_a_power_of_two_names_no_tensor_by_itself() -> None:
    # 256 MiB is the mask of 8192 tokens, and of thousands of other tensors with round dimensions.
    assert not [m for m in match(0.25, shape(), Job(), Scene(phase="forward")) if m.cause == "attention-scores"]


def test_a_made_up_shape_speaks_of_its_parameter_count_only() -> None:
    model = ModelShape.from_params_b(1.3)
    assert not match(1.17, model, Job(), Scene(phase="forward", made_up=True))
    whole = match(4 * model.params / GIB, model, Job(), Scene(phase="optimizer-init", made_up=True))
    assert whole[0].cause == "optimizer-init"


def test_the_cache_of_the_stated_length_in_one_buffer() -> None:
    # ggml-org/llama.cpp#8101: n_ctx = 1048576 with Llama-3-8B asks for 137438953504 bytes of keys and values.
    model = shape(
        vocab_size=128_256, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8
    )
    job = Job(objective="inference", seq_len=1_048_576)
    best = tensors_for(137_438_953_504, model, job, Scene(phase="load"))[0]
    assert (best.cause, best.dtype) == ("kv-cache", "float16")


def test_plain_data_parallelism_keeps_gradients_twice() -> None:
    # hiyouga/LlamaFactory#916: 51.77 GiB asked for in DistributedDataParallel's reducer, 13.9B parameters in fp32.
    model = ModelShape.from_params_b(13.897)
    scene = Scene(phase="unknown", trace="_ddp_init_helper self.reducer = dist.reducer(", made_up=True)
    best = match(51.77, model, Job(gpus=8), scene)[0]
    assert (best.name, best.cause) == ("gradient-buckets", "model-states")


def test_the_vocabulary_of_an_unknown_model_is_found_in_the_catalogue() -> None:
    requested = round(4.64 * GIB)
    best = tensors_of_unknown_model(requested, Job(micro_batch=1, seq_len=8192))[0]
    assert best.cause == "logits"
    assert 150_000 < best.shape[1] < 153_000
    assert not tensors_of_unknown_model(requested, Job(objective="sft"))


def test_logits_of_an_unknown_model_may_be_split_over_tensor_parallel_ranks() -> None:
    requested = 4 * 32_768 * 151_936 // 2
    job = Job(micro_batch=1, seq_len=32_768, tp=2)
    split = ("fp32-logits", (32_768, 151_936 // 2))
    assert split in {(m.name, m.shape) for m in tensors_of_unknown_model(requested, job)}
    made_up = match(requested / GIB, ModelShape.from_params_b(9), job, Scene(phase="loss", made_up=True))
    assert split in {(m.name, m.shape) for m in made_up}
