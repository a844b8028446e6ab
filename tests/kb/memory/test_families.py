"""Counts of transformers' own architectures, recorded by ``bench/family_counts.py``, and what is not known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomkb.errors import JobError
from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.shape import ModelShape

RECORDED = json.loads(Path(__file__).with_name("data").joinpath("family_counts.json").read_text(encoding="utf-8"))
EXACT, ESTIMATED = RECORDED["exact"], RECORDED["estimated"]


def kind(row):
    return row["model_type"]


@pytest.mark.parametrize("row", EXACT, ids=kind)
def test_counts_are_those_of_the_built_model(row):
    shape = ModelShape.from_config(row["config"])
    assert shape.params == pytest.approx(row["params"], rel=1e-3)


@pytest.mark.parametrize("row", ESTIMATED, ids=kind)
def test_what_is_only_estimated_says_so(row):
    shape = ModelShape.from_config(row["config"])
    assert shape.warnings
    assert shape.params > 0


def test_most_architectures_are_counted():
    assert len(EXACT) >= 175


JOBS = [
    {"objective": "sft", "method": "full", "micro_batch": 1, "seq_len": 512, "param_dtype": "bf16"},
    {
        "objective": "sft", "method": "qlora", "quant": "nf4", "lora": {"r": 8, "targets": "all-linear"},
        "micro_batch": 2, "seq_len": 512, "param_dtype": "bf16", "grad_ckpt": True, "attention": "eager",
    },
    {"objective": "inference", "param_dtype": "bf16", "serving": {"max_model_len": 2048}},
]  # fmt: skip


@pytest.mark.parametrize("job", JOBS, ids=["full", "qlora", "serving"])
def test_every_architecture_is_priced(job):
    for row in (*EXACT, *ESTIMATED):
        shape = ModelShape.from_config(row["config"])
        found = estimate(Job.from_document({**job, "model": row["config"]}), shape)
        weights = shape.params * (0.45 if job.get("quant") else 2.0)
        assert found.allocated_bytes > weights, row["model_type"]
        assert found.params == shape.params


STRANGE = {
    "model_type": "nothing_known", "vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 24,
    "num_attention_heads": 16, "intermediate_size": 5632,
}  # fmt: skip


def test_an_unknown_architecture_is_estimated_with_a_warning_and_a_wider_interval():
    unknown, known = ModelShape.from_config(STRANGE), ModelShape.from_config({**STRANGE, "model_type": "llama"})
    assert not unknown.known
    assert unknown.warnings[0].key == "estimate.kind-unknown"
    assert dict(unknown.warnings[0].values) == {"kind": "nothing_known"}
    assert unknown.params == known.params
    job = Job.from_document({"objective": "sft", "method": "full", "micro_batch": 1, "seq_len": 512})
    wide, narrow = (estimate(job, shape).intervals["process"] for shape in (unknown, known))
    assert wide.high_bytes - wide.low_bytes > narrow.high_bytes - narrow.low_bytes


def test_a_mixer_is_read_in_a_family_that_is_not_known():
    linear = {"linear_num_value_heads": 32, "linear_num_key_heads": 16, "full_attention_interval": 4}
    hybrid, plain = ModelShape.from_config({**STRANGE, **linear}), ModelShape.from_config(STRANGE)
    assert {m.name for layer in hybrid.layers for m in layer.linears} >= {"in_proj_qkvz", "q_proj"}
    assert hybrid.params != plain.params


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layer_types", ["linear_attention"] * 3),
        ("mlp_layer_types", "dense"),
        ("hybrid_override_pattern", "M*M*"),
        ("per_layer_config", {"0": 5}),
        ("intermediate_size", [5632] * 24),
        ("vision_config", {}),
        ("vision_config", {"hidden_size": [64, 128], "depth": [2, 2]}),
        ("audio_config", {"d_model": 64}),
        ("moe_layer_freq", [0, 1]),
        ("head_dim", 96),
    ],
)
def test_odd_fields_of_unknown_families_do_not_crash(field, value):
    try:
        shape = ModelShape.from_config({**STRANGE, field: value, "num_experts": 4, "moe_intermediate_size": 512})
    except JobError:
        return
    assert shape.params > 0
    estimate(Job.from_document({"objective": "sft", "method": "full", "seq_len": 128, "micro_batch": 1}), shape)


def test_only_attention_layers_of_a_hybrid_keep_keys_and_values():
    linear = {"linear_num_value_heads": 32, "linear_num_key_heads": 16, "full_attention_interval": 4}
    shape = ModelShape.from_config({**STRANGE, **linear})
    assert sum(layer.count for layer in shape.layers if layer.caches) == 6
    assert all(layer.caches for layer in ModelShape.from_config(STRANGE).layers)


def test_llama_4_routes_in_every_second_layer():
    text = {
        "model_type": "llama4_text", "vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192,
        "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8,
        "head_dim": 128, "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
    }  # fmt: skip
    shape = ModelShape.from_config(text)
    assert sum(layer.count for layer in shape.layers if layer.moe) == 24
    assert shape.params == pytest.approx(400.7e9, rel=2e-3)


NEMOTRON_H = {
    "model_type": "nemotron_h", "vocab_size": 131072, "hidden_size": 4096, "num_hidden_layers": 52,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", "num_attention_heads": 32,
    "num_key_value_heads": 8, "attention_head_dim": 128, "intermediate_size": 21504, "mamba_num_heads": 128,
    "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "tie_word_embeddings": False,
}  # fmt: skip
BAMBA = {
    "model_type": "bamba", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "attn_layer_indices": [9, 18, 27],
    "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2,
}  # fmt: skip
MINIMAX = {
    "model_type": "minimax_text_01", "vocab_size": 200064, "hidden_size": 6144, "intermediate_size": 9216,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
    "num_local_experts": 32, "num_experts_per_tok": 2, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "billions"), [(NEMOTRON_H, 8.10), (BAMBA, 9.78), (MINIMAX, 456.1)], ids=lambda v: str(v)[:30]
)
def test_layer_plans_as_checkpoints_spell_them(config, billions):
    shape = ModelShape.from_config(config)
    assert shape.params == pytest.approx(billions * 1e9, rel=1e-3)
    assert shape.known
