"""Tensor, sequence, pipeline and expert parallelism against figures that Megatron-LM and its papers publish.

``MEASURED``: ``mem-max-allocated-bytes`` and ``mem-allocated-bytes`` of Megatron-LM's own functional tests on H100
(``tests/functional_tests/test_cases/*/golden_values_dev_dgx_h100.json``, August 2026), written by the last rank: with
pipeline stages, the one that has the loss.
"""

import pytest

from oomkb.frameworks import complete
from oomkb.memory.activations import step_of
from oomkb.memory.job import Job
from oomkb.memory.model import in_flight
from oomkb.memory.setting import resolve_setting
from oomkb.memory.shape import ModelShape
from oomkb.memory.states import states_of
from oomkb.pricing import price
from oomkb.units import GIB

GPT = {
    "model_type": "starcoder2", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 16384, "vocab_size": 131584, "tie_word_embeddings": False,
    "use_bias": True, "hidden_act": "gelu", "max_position_embeddings": 8192, "attention_dropout": 0.1,
    "residual_dropout": 0.1, "embedding_dropout": 0.1,
}  # fmt: skip
NEMOTRON = {
    "model_type": "nemotron", "hidden_size": 6144, "num_hidden_layers": 32, "num_attention_heads": 48,
    "num_key_value_heads": 8, "intermediate_size": 24576, "vocab_size": 256000, "tie_word_embeddings": False,
    "partial_rotary_factor": 0.5, "hidden_act": "relu2", "max_position_embeddings": 4096,
}  # fmt: skip
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
    "num_experts_per_tok": 2, "tie_word_embeddings": False,
}  # fmt: skip
LARGE = {**MIXTRAL, "hidden_size": 6144, "num_hidden_layers": 56, "num_attention_heads": 48,
         "intermediate_size": 16384, "vocab_size": 32768}  # fmt: skip
BASE = {
    "framework": "megatron-lm", "gpu": "H100", "method": "full", "optimizer": "adamw", "param_dtype": "bf16",
    "sharding": "distributed-optimizer", "attention": "flash2", "grad_ckpt": False, "packing": True,
}  # fmt: skip
MEASURED = {
    "gpt3_7b_tp4_pp1": ({"model": GPT, "tp": 4, "world": 8, "micro_batch": 2, "grad_accum": 2, "seq_len": 8192}, 53.22, 19.24),
    "gpt3_7b_tp1_pp4": (
        {"model": GPT, "pp": 4, "world": 8, "micro_batch": 1, "grad_accum": 4, "seq_len": 8192, "virtual_stages": 8},
        56.55, 23.11,
    ),
    "gpt3_15b_8t": (
        {"model": NEMOTRON, "tp": 8, "sp": 8, "world": 128, "micro_batch": 4, "grad_accum": 6, "seq_len": 4096}, 26.23, 12.36,
    ),
    "mixtral_8x7b_tp2pp4ep4": (
        {"model": MIXTRAL, "tp": 2, "sp": 2, "pp": 4, "ep": 4, "world": 64, "micro_batch": 1, "grad_accum": 128, "seq_len": 4096},
        23.85, 16.49,
    ),
    "mixtral_8x7b_tp2pp4ep8vpp8": (
        {"model": MIXTRAL, "tp": 2, "sp": 2, "pp": 4, "ep": 8, "world": 64, "micro_batch": 1, "grad_accum": 32, "seq_len": 4096,
         "num_layers_per_virtual_pipeline_stage": 1, "expert_tensor_parallel_size": 1},
        33.07, 18.39,
    ),
    "mixtral_8x22b_tp2pp8ep8": (
        {"model": LARGE, "tp": 2, "sp": 2, "pp": 8, "ep": 8, "world": 128, "micro_batch": 1, "grad_accum": 32, "seq_len": 4096},
        26.57, 21.42,
    ),
}  # fmt: skip


def last_stage(document):
    """(peak, what stays) in bytes on the stage with the loss."""
    job = complete(Job.from_document({**BASE, **document}))
    shape = ModelShape.from_config(job.model)
    s = resolve_setting(job, shape)
    states, step = states_of(s, shape), step_of(s, shape)
    stays = states.weights + states.gradients + states.optimizer + states.masters
    tokens = s.batch * s.seq / (s.cp * s.sp)
    square = tokens * s.seq
    c, t, q = step.saved
    waiting = (in_flight(s.pp, s.accum, s.chunks)[1] - 1) * (c + t * tokens + q * square)
    return stays + waiting + max(step.peak(p, tokens, square)[0] for p in ("loss", "backward")), stays


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_measured_peaks(name):
    document, peak_gib, stays_gib = MEASURED[name]
    peak, stays = last_stage(document)
    assert stays / GIB == pytest.approx(stays_gib, rel=0.08)
    # Tokens are taken as spread evenly over the experts, which those of real routers are not.
    assert peak / GIB == pytest.approx(peak_gib, rel=0.1 if "mixtral" in name else 0.04)


def test_the_mean_over_the_measured_peaks_is_small():
    errors = [abs(last_stage(document)[0] / GIB / peak - 1) for document, peak, _ in MEASURED.values()]
    assert sum(errors) / len(errors) <= 0.04


@pytest.mark.parametrize("name", ["gpt3_7b_tp4_pp1", "gpt3_7b_tp1_pp4"])
def test_the_estimate_is_the_measured_rank(name):
    """The last stage is the fullest of the interleaved schedule, too: the loss outweighs what waits on the first."""
    document, peak_gib, _ = MEASURED[name]
    assert price(Job.from_document({**BASE, **document})).estimate.allocated_bytes / GIB == pytest.approx(
        peak_gib, rel=0.03
    )


def test_experts_keep_their_inputs_alone():
    """``WeightedSwiGLUFunction`` takes the routing weights in: of a routed token, what both products read and the gate."""
    job = complete(
        Job.from_document({**BASE, "model": MIXTRAL, "tp": 1, "ep": 1, "world": 8, "micro_batch": 1, "seq_len": 4096})
    )
    kept = []
    for chosen in (1, 2):
        shape = ModelShape.from_config({**MIXTRAL, "num_experts_per_tok": chosen})
        kept.append(step_of(resolve_setting(job, shape), shape).saved[1])
    assert (kept[1] - kept[0]) / 32 == pytest.approx(2 * (4096 + 3 * 14336), rel=0.01)


# Korthikanti et al. 2022 (arXiv 2205.05198), table 2: activations of one layer of s tokens, b samples, h hidden, a heads,
# t tensor-parallel ranks, in 16 bits with dropout. Their 22B model: a = 64, h = 6144, s = 2048, b = 4, t = 8.
S, B, H, A, T = 2048, 4, 6144, 64, 8
TABLE = {
    "none": (1, 1, "eager", False, S * B * H * (34 + 5 * A * S / H)),
    "tensor": (T, 1, "eager", False, S * B * H * (10 + 24 / T + 5 * A * S / (H * T))),
    "tensor and sequence": (T, T, "eager", False, S * B * H / T * (34 + 5 * A * S / H)),
    "tensor and selective": (T, 1, "eager", "selective", S * B * H * (10 + 24 / T)),
    "all three": (T, T, "eager", "selective", S * B * H * 34 / T),
    "full": (1, 1, "eager", True, S * B * H * 2),
}


def saved_per_layer(tp, sp, attention, grad_ckpt):
    config = {
        "model_type": "gpt2", "n_embd": H, "n_layer": 2, "n_head": A, "vocab_size": 51200, "n_positions": S,
        "activation_function": "gelu", "attn_pdrop": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1,
    }  # fmt: skip
    found = []
    for layers in (4, 8):
        shape = ModelShape.from_config({**config, "n_layer": layers})
        document = {**BASE, "tp": tp, "sp": sp, "world": tp, "micro_batch": B, "seq_len": S, "model": dict(config)}
        job = Job.from_document({**document, "attention": attention, "grad_ckpt": grad_ckpt})
        s = resolve_setting(complete(job), shape)
        c, t, q = step_of(s, shape).saved
        found.append(c + t * B * S + q * B * S * S)
    return (found[1] - found[0]) / 4


@pytest.mark.parametrize("name", sorted(TABLE))
def test_activations_per_layer_as_published(name):
    *setting, published = TABLE[name]
    assert saved_per_layer(*setting) == pytest.approx(published, rel=0.06)


def test_micro_batches_in_flight():
    """arXiv 2205.05198, section 4.4: p stages' worth on the first stage, p (1 + (p - 1) / (p m)) when interleaved."""
    assert in_flight(8, 100) == (8, 1)
    assert in_flight(8, 3) == (3, 1)
    for p, m in ((8, 3), (35, 3), (4, 8)):
        assert in_flight(p, 1000, m)[0] == pytest.approx(p * (1 + (p - 1) / (p * m)))


def test_context_parallelism_divides_the_tokens():
    one = {**BASE, "model": GPT, "tp": 2, "world": 8, "micro_batch": 1, "seq_len": 8192, "grad_accum": 2}
    whole = price(Job.from_document(one)).estimate.phases["backward"].terms_bytes["activations"]
    halved = price(Job.from_document({**one, "cp": 2})).estimate.phases["backward"].terms_bytes["activations"]
    assert halved == pytest.approx(whole / 2, rel=0.01)


def test_the_distributed_optimizer_keeps_eighteen_bytes_or_six_and_twelve_over_dp():
    """NVIDIA/Megatron-LM issue 654: 2 + 4 + 4 + 8 bytes a parameter; weights and gradients are not partitioned."""
    one = {**BASE, "model": GPT, "tp": 1, "micro_batch": 1, "seq_len": 512}
    params = ModelShape.from_config(GPT).params
    for world, sharding, each in ((1, "ddp", 18), (8, "distributed-optimizer", 6 + 12 / 8)):
        job = complete(Job.from_document({**one, "world": world, "sharding": sharding}))
        shape = ModelShape.from_config(GPT)
        states = states_of(resolve_setting(job, shape), shape)
        total = states.weights + states.gradients + states.optimizer + states.masters
        assert total / params == pytest.approx(each, rel=0.01)


def test_a_switch_for_sequence_parallelism_means_the_tensor_parallel_group():
    one = {**BASE, "model": GPT, "tp": 4, "world": 4, "micro_batch": 1, "seq_len": 2048}
    off, one_rank, on, four = (
        price(Job.from_document({**one, "sp": sp})).estimate.allocated_bytes for sp in (False, 1, True, 4)
    )
    assert Job.from_document({**one, "sp": True}).sp == 4
    assert Job.from_document(one).with_fields({"sp": True, "tp": 2}).sp == 2
    assert Job.from_document({"model": GPT, "sp": True}).sp == 1
    assert off == one_rank > on == four


@pytest.mark.parametrize("framework", ["torchtitan", "verl"])
def test_sequence_parallelism_comes_with_tensor_parallelism_where_it_is_the_default(framework):
    one = {
        "model": GPT,
        "framework": framework,
        "tp": 4,
        "world": 4,
        "micro_batch": 1,
        "seq_len": 2048,
        "objective": "sft",
    }
    told = [price(Job.from_document({**one, **more})).estimate for more in ({}, {"sp": 4}, {"sp": 1})]
    kept = [estimate.phases["forward"].terms_bytes["activations"] for estimate in told]
    assert kept[0] == kept[1] < kept[2]
    assert "sp" in told[0].assumed


# The paper's equations over sizes, groups, recomputation and context parallelism (1 to 6; section 5).
@pytest.mark.parametrize(("tp", "on", "cp"), [(1, False, 2), (2, True, 1), (4, False, 2), (8, True, 2)])
@pytest.mark.parametrize("recomputed", ["none", "selective", "full"])
def test_activations_over_groups(tp, on, cp, recomputed):
    attention, rec = {"none": ("flash2", False), "selective": ("eager", "selective"), "full": ("flash2", True)}[
        recomputed
    ]
    config = {"model_type": "gpt2", "n_embd": H, "n_head": A, "vocab_size": 51200, "n_positions": S, "attn_pdrop": 0.1}
    config |= {"resid_pdrop": 0.1, "embd_pdrop": 0.1}
    found, tokens = [], B * S / cp
    for layers in (4, 8):
        shape = ModelShape.from_config({**config, "n_layer": layers})
        document = {**BASE, "model": {**config, "n_layer": layers}, "tp": tp, "sp": on, "cp": cp, "world": tp * cp}
        job = Job.from_document({**document, "micro_batch": B, "seq_len": S, "attention": attention, "grad_ckpt": rec})
        c, t, q = step_of(resolve_setting(complete(job), shape), shape).saved
        found.append(c + t * tokens + q * tokens * S)
    split = tp if on else 1
    published = tokens * H * (2 / split if rec is True else 34 / tp if on else 10 + 24 / tp)
    assert (found[1] - found[0]) / 4 == pytest.approx(published, rel=0.01)


def test_zero_1_under_megatron_is_its_distributed_optimizer():
    """Its buffers of fp32 gradients are there once, in one replica too; Megatron-DeepSpeed's ZeRO is DeepSpeed's."""
    shape = ModelShape.from_config(GPT)
    job = {"model": GPT, "framework": "megatron", "world": 8, "pp": 8, "micro_batch": 1, "seq_len": 64, "dp": 1}
    kinds = ("zero1", "distributed-optimizer")
    one, own = (states_of(resolve_setting(Job.from_document({**job, "sharding": k}), shape), shape) for k in kinds)
    assert one == own
    deepspeed = Job.from_document({**job, "framework": "megatron-deepspeed", "sharding": "zero1"})
    assert resolve_setting(deepspeed, shape).sharding == "zero1"
