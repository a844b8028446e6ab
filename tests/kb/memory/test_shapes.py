"""Parameter counts against published ones, and sizes read from incomplete configurations."""

import pytest

from oomkb.errors import JobError
from oomkb.memory.shape import ModelShape


def config(kind, vocab, hidden, ffn, layers, heads, kv=None, **more):
    base = {
        "model_type": kind,
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    return {**base, **({"num_key_value_heads": kv} if kv else {}), **more}


# Counts as `sum(p.numel())` of the class on the meta device gives them.
PUBLISHED = [
    (config("llama", 32000, 4096, 11008, 32, 32), 6_738_415_616),
    (config("llama", 128256, 8192, 28672, 80, 64, 8), 70_553_706_496),
    (config("qwen2", 152064, 3584, 18944, 28, 28, 4), 7_615_616_512),
    (config("qwen3", 151936, 2560, 9728, 36, 32, 8, head_dim=128, tie_word_embeddings=True), 4_022_468_096),
    (config("mistral", 32000, 4096, 14336, 32, 32, 8), 7_241_732_096),
    (config("mixtral", 32000, 4096, 14336, 32, 32, 8, num_local_experts=8), 46_702_792_704),
    (config("gemma2", 256000, 2304, 9216, 26, 8, 4, head_dim=256), 2_614_341_888),
    (config("phi", 51200, 2560, 10240, 32, 32), 2_779_683_840),
    (config("gpt_neox", 50432, 6144, 24576, 44, 64), 20_554_567_680),
    (
        config(
            "deepseek_v3", 129280, 7168, 18432, 61, 128, 128, moe_intermediate_size=2048, n_routed_experts=256,
            n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3, kv_lora_rank=512, q_lora_rank=1536,
            qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
        ),
        671_026_419_200,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "params"), PUBLISHED, ids=lambda v: v.get("model_type") if isinstance(v, dict) else "")
def test_counts_match_published_ones(raw, params):
    assert ModelShape.from_config(raw).params == pytest.approx(params, rel=1e-3)


@pytest.mark.parametrize("billions", [0.5, 1.5, 7, 13, 34, 70, 405])
def test_a_count_alone_gives_a_decoder_of_that_size(billions):
    shape = ModelShape.from_params_b(billions)
    assert shape.params == pytest.approx(billions * 1e9, rel=0.08)
    assert shape.warnings
    assert not shape.known


def test_reading_twice_gives_the_same_object():
    raw = PUBLISHED[0][0]
    assert ModelShape.from_config(raw) is ModelShape.from_config(dict(raw))


def test_text_part_of_a_vision_language_model():
    text = config("qwen2_5_vl_text", 152064, 3584, 18944, 28, 28, 4)
    raw = {
        "model_type": "qwen2_5_vl",
        "text_config": text,
        "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2},
    }  # fmt: skip
    shape = ModelShape.from_config(raw)
    assert shape.vision is not None
    assert shape.params == pytest.approx(8_292_166_656, rel=2e-3)
    assert shape.vision.tokens(1024 * 28 * 28) == 1024


@pytest.mark.parametrize("raw", [{}, {"hidden_size": 10}, config("llama", 10, 64, 128, 2, 8, 3)])
def test_impossible_configurations_are_refused(raw):
    with pytest.raises(JobError) as caught:
        ModelShape.from_config(raw)
    assert caught.value.where.startswith("model")
