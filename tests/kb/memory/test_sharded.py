"""Sharding wrappers: traces of FSDP1, the ZeRO paper's figures, host memory as DeepSpeed's code allocates it."""

import json
import math
from pathlib import Path

import pytest

from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.setting import resolve_setting
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "sharded.jsonl").read_text().splitlines()]
ENGINES = [json.loads(line) for line in (Path(__file__).parent / "data" / "deepspeed.jsonl").read_text().splitlines()]
STATES = ("weights", "gradients", "optimizer states", "fp32 masters")


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_step_under_fsdp1(row):
    """torch 2.13, every decoder layer and the root a unit; the forward peak still holds the last step's gradients."""
    said = estimate(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"]))
    measured = row["measured"]
    assert said.phases["backward"].total_bytes / GIB == pytest.approx(measured["peak_backward"], rel=0.005)
    assert said.phases["optimizer-step"].total_bytes / GIB == pytest.approx(measured["peak_step"], rel=0.005)
    assert said.allocated_bytes / GIB == pytest.approx(measured["allocated_gib"], rel=0.005)


@pytest.mark.parametrize("row", ENGINES, ids=[row["id"] for row in ENGINES])
def test_passes_under_deepspeeds_own_engines(row):
    """DeepSpeed 0.19.8 (``bench/trace_deepspeed.py``); its step there is torch's Adam, not the fused one.

    The first eight ran without padding, the later ones with a mask. ``accumulated``: the last of several micro-batches,
    the partition of earlier gradients waiting.
    """
    said = estimate(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"]))
    forward = max(said.phases[p].total_bytes for p in ("forward", "loss")) / GIB
    assert forward == pytest.approx(row["measured"]["peak_forward"], rel=row.get("within", 0.02))
    assert said.phases["backward"].total_bytes / GIB == pytest.approx(row["measured"]["peak_backward"], rel=0.045)


@pytest.mark.parametrize(
    ("stated", "stay"),
    [
        ({}, False),
        ({"memory_efficient_linear": False}, True),
        ({"zero3_init_flag": False, "versions": {"deepspeed": "0.19.5"}}, True),
        ({"zero3_init_flag": False, "versions": {"deepspeed": "0.19.6"}}, False),
    ],
)
def test_torchs_own_linear_layers_keep_gathered_weights_for_backward(stated, stay):
    """DeepSpeed's ``zero/linear.py`` saves none; before 0.19.6 models made outside ``zero.Init`` ran without it.

    FlagPerf's llama2_7b-deepspeed (``memory_efficient_linear`` off, no checkpointing): 57 GiB of an A800, 46.8 else.
    """
    job = {"params_b": 7.5, "sharding": "zero3", "world": 8, "gpus": 8, "micro_batch": 1, "seq_len": 64, **stated}
    shape = ModelShape.from_params_b(7.5)
    for ckpt, size in ((False, 2.0 * shape.layer_params), (True, 0.0)):
        terms = estimate(Job.from_document({**job, "grad_ckpt": ckpt}), shape).phases["loss"].terms_bytes
        assert terms.get("saved weights", 0.0) == pytest.approx(size if stay else 0.0, rel=0.01)


def states_gb(phase="optimizer-step", **fields):
    shape = ModelShape.from_params_b(7.5)
    job = {"params_b": 7.5, "method": "full", "param_dtype": "fp16", "optimizer": "adamw", "seq_len": 1, **fields}
    terms = estimate(Job.from_document({**job, "micro_batch": 1}), shape).phases[phase].terms_bytes
    return sum(terms.get(name, 0.0) for name in STATES) / 1e9 * 7.5e9 / shape.params


@pytest.mark.parametrize(("stage", "gb"), [("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.88)])
def test_model_states_of_the_zero_paper(stage, gb):
    """arXiv 1910.02054, figure 1: 7.5 billion parameters over 64 GPUs in mixed precision."""
    # Of whole gradients DeepSpeed leaves each rank its partition after backward.
    phase = "backward" if stage == "zero1" else "optimizer-step"
    assert states_gb(phase, sharding=stage, world=64) == pytest.approx(gb, rel=0.01)


def test_without_sharding_the_paper_counts_sixteen_bytes():
    assert states_gb(sharding="zero1", world=1) == pytest.approx(120, rel=0.01)


T0_3B = {"params_b": 2.783, "method": "full", "param_dtype": "bf16", "sharding": "zero3", "world": 1, "micro_batch": 1}


@pytest.mark.parametrize(
    ("stage", "offload", "accum", "each"),
    [
        ("zero2", ["optimizer"], 1, 18),
        ("zero2", ["optimizer"], 4, 20),
        ("zero3", ["optimizer"], 4, 18),
        ("zero3", ["optimizer", "param"], 1, 20),
    ],
)
def test_host_memory_of_deepspeeds_buffers(stage, offload, accum, each):
    """Measured without pinning: 10 bytes a parameter after ``deepspeed.initialize``, 18 after a step (issue 7693).

    DeepSpeed's own estimators give 24 and 27: their buffer factor of 1.5 is no buffer that its code makes.
    """
    shape = ModelShape.from_params_b(2.783)
    job = {**T0_3B, "sharding": stage, "seq_len": 1, "offload": offload, "grad_accum": accum}
    said = estimate(Job.from_document(job), shape)
    # Stage 2 has room for one more gradient of the largest parameter (``temp_grad_buffer_for_cpu_offload``).
    more = 2 * shape.dims.vocab * shape.dims.hidden / shape.params if stage == "zero2" else 0
    assert said.host_bytes / shape.params == pytest.approx(each + more, rel=0.01)


def test_pinned_buffers_are_powers_of_two():
    """Stage 2 pins masters, their gradients, 16-bit weights on their way back and one more gradient."""
    shape = ModelShape.from_params_b(2.783)
    job = {**T0_3B, "sharding": "zero2", "seq_len": 1, "offload": ["optimizer"]}
    plain, pinned = (
        estimate(Job.from_document({**job, "pin_memory": pins}), shape).host_most_bytes for pins in (False, True)
    )
    sizes = [*(each * shape.params for each in (4, 2, 4)), 2 * shape.dims.vocab * shape.dims.hidden]
    assert pinned - plain == pytest.approx(sum(2 ** math.ceil(math.log2(size)) - size for size in sizes), rel=0.01)


def test_nvme_needs_only_the_buffers_of_the_host():
    """Five buffers of 1e8 elements for parameters and four of a sub-group's size: DeepSpeed's defaults."""
    shape = ModelShape.from_params_b(70)
    job = {"params_b": 70, "method": "full", "sharding": "zero3", "gpus": 8, "seq_len": 1, "micro_batch": 1}
    both = {**job, "offload": ["optimizer", "param"]}
    said = estimate(Job.from_document({**both, "nvme_offload": True}), shape).host_bytes
    assert said == pytest.approx(8 * (5 * 1e8 * 2 + 4 * 4 * 1e9), rel=0.01)
    assert said < estimate(Job.from_document(both), shape).host_bytes / 10


def test_hybrid_sharding_stays_within_a_machine():
    """``ShardingStrategy.HYBRID_SHARD``: full sharding inside a node, replicas over nodes (torch's FSDP docs)."""
    shape = ModelShape.from_params_b(7.5)
    job = {"params_b": 7.5, "method": "full", "seq_len": 512, "micro_batch": 1, "nodes": 4, "gpus": 8}
    kept = {
        kind: estimate(Job.from_document({**job, "sharding": kind}), shape).phases["load"].terms_bytes["weights"]
        for kind in ("hsdp", "fsdp")
    }
    assert kept["hsdp"] == pytest.approx(4 * kept["fsdp"], rel=0.01)


def test_saving_gathers_one_unit_at_a_time():
    """``get_model_state_dict(full_state_dict=True, cpu_offload=True)`` and ZeRO-3's consolidation go unit by unit."""
    shape = ModelShape.from_params_b(7.5)
    job = {"params_b": 7.5, "method": "full", "seq_len": 512, "micro_batch": 1, "gpus": 8, "sharding": "fsdp2"}
    said = estimate(Job.from_document(job), shape)
    kept = said.phases["save"].total_bytes - said.phases["save"].terms_bytes["gathered weights"]
    assert 0 < said.phases["save"].terms_bytes["gathered weights"] < 0.1 * shape.params * 2
    assert said.phases["save"].total_bytes < said.phases["backward"].total_bytes
    assert kept < said.phases["backward"].total_bytes


@pytest.mark.parametrize(
    ("sizes", "shards"),
    [({"dp": 2, "sp": 4}, 8), ({"sp": 4}, 8), ({"dp": 8}, 8), ({"dp": 2, "tp": 4, "sp": True}, 2)],
)
def test_ranks_that_split_a_sequence_share_the_states(sizes, shards):
    """Two replicas of four ranks each hold an eighth (DeepSpeed ``engine.py``); tensor parallelism splits by itself."""
    job = {"params_b": 7, "sharding": "zero2", "world": 8, "gpus": 8, "seq_len": 4096, **sizes}
    assert resolve_setting(Job.from_document(job), ModelShape.from_params_b(7)).shards == shards
