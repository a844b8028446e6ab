"""``oomdoc plan`` as a library: a file, and fields set on top of what it says."""

from __future__ import annotations

import pytest

from oomdoc.planner import plan_job
from oomkb.errors import JobError
from oomkb.units import GIB

SWIFT = "# 4*50GiB\nCUDA_VISIBLE_DEVICES=0,1 \\\nswift sft \\\n  --model Qwen/Qwen2.5-7B \\\n  --train_type lora \\\n  --per_device_train_batch_size 8\n"


def test_another_card_brings_its_own_capacity() -> None:
    there = plan_job(SWIFT, "run.sh", {"gpu": "A100-40GB"}).table
    assert there.estimate.capacity_bytes is not None
    assert 38 * GIB < there.estimate.capacity_bytes < 40 * GIB
    stated = plan_job(SWIFT, "run.sh", {"gpu": "A100-40GB", "capacity_gib": 36.0}).table
    assert stated.estimate.capacity_bytes == pytest.approx(36 * GIB, rel=0.01)


def test_a_job_without_a_model_is_refused_with_the_way_out() -> None:
    with pytest.raises(JobError, match="model"):
        plan_job("", "empty.yaml", {"gpu": "H100"})


def test_the_same_text_and_fields_give_the_same_plans() -> None:
    first, second = (plan_job(SWIFT, "run.sh", {"gpu": "T4", "gpus": 2}) for _ in range(2))
    assert first.table.planning.plans == second.table.planning.plans
    assert first.job.world == 2


@pytest.mark.parametrize("more", [{}, {"sharding": "fsdp"}, {"method": "qlora"}], ids=str)
def test_adapters_beside_a_reference_model_are_planned(more: dict[str, object]) -> None:
    stated: dict[str, object] = {
        "model": "Qwen/Qwen2.5-7B",
        "framework": "verl",
        "objective": "grpo",
        "method": "lora",
        "lora": {"r": 8},
        "rollout": {"engine": "vllm", "colocated": True, "gpu_memory_utilization": 0.5},
        "extra_models": [{"role": "reference"}],
        "gpu": "H100",
        "gpus": 8,
        **more,
    }
    table = plan_job("", "", stated).table
    assert ("extra_models", []) in [(knob.change.key, knob.change.new) for knob in table.knobs]


def test_a_peak_in_evaluation_is_lowered_there() -> None:
    stated = {"model": "Qwen/Qwen2.5-0.5B", "framework": "transformers", "method": "lora", "grad_ckpt": True}
    sizes = {"micro_batch": 1, "eval_micro_batch": 16, "seq_len": 2048, "gpu": "RTX 3060 12GB"}
    table = plan_job("", "", {**stated, **sizes}).table
    assert table.estimate.peak_phase == "evaluation"
    assert any("eval_micro_batch" in change.fields for p in table.planning.plans for change in p.changes)


def test_a_job_document_with_a_key_of_its_own_is_read_as_one() -> None:
    text = '{"model": "Qwen/Qwen2.5-7B", "method": "lora", "micro_batch": 2, "seq_len": 512, "grad_ckpt": false, '
    planned = plan_job(text + '"gpu": "A100-80GB", "run_name": "mine"}', "job.json", {})
    assert planned.evidence is None
    assert (planned.job.micro_batch, planned.job.grad_ckpt) == (2, False)


def test_the_largest_batch_of_a_pipeline_keeps_its_stages_filled() -> None:
    """70.6B over 32 cards with fp32 gradients: 25.4 GiB of states, and 1.8 GiB for each sample of 8,192 tokens."""
    job = {"model": "meta-llama/Llama-3.1-70B", "objective": "pretrain", "framework": "megatron", "gpu": "H100 80GB"}
    layout = {"gpus": 8, "nodes": 8, "tp": 8, "pp": 4, "sp": 8, "sharding": "distributed-optimizer"}
    run = {**job, **layout, "param_dtype": "bf16", "seq_len": 8192, "grad_ckpt": True}
    largest = plan_job("", "", run).table.planning.largest["micro_batch"]
    assert 20 <= largest <= 29
    assert plan_job("", "", {**run, "micro_batch": largest}).table.fits
