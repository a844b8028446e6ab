"""Settings without a job field that the memory model computes by reach the job, whatever a framework calls them."""

from __future__ import annotations

import pytest

from oomdoc.intake import read_text
from oomdoc.intake.configs import to_job
from oomkb.pricing import price

CASES = [
    (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 --seq-length 4096 --tensor-model-parallel-size 2 "
        "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2 --expert-tensor-parallel-size 1",
        {"num_layers_per_virtual_pipeline_stage": 2, "expert_tensor_parallel_size": 1},
    ),
    (
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=2 "
        "actor_rollout_ref.ref.megatron.expert_tensor_parallel_size=4",
        {"virtual_pipeline_model_parallel_size": 2},
    ),
    (
        "model_name_or_path: x/y-7b\nstage: sft\nfinetuning_type: lora\nadditional_target: embed_tokens,lm_head\n",
        {"modules_to_save": ["embed_tokens", "lm_head"]},
    ),
    (
        "base_model: x/y-7b\nadapter: lora\nlora_modules_to_save:\n  - embed_tokens\n  - lm_head\nlora_mlp_kernel: false\n",
        {"modules_to_save": ["embed_tokens", "lm_head"], "lora_mlp_kernel": False},
    ),
    (
        "swift sft --model x/y-vl-7b --train_type lora --modules_to_save embed_tokens lm_head --freeze_vit false",
        {"modules_to_save": ["embed_tokens", "lm_head"], "freeze_vit": False},
    ),
    (
        "from peft import LoraConfig\nc = LoraConfig(r=16, modules_to_save=['lm_head'])\n"
        "args = SFTConfig(per_device_train_batch_size=1, torch_empty_cache_steps=4)",
        {"modules_to_save": ["lm_head"], "torch_empty_cache_steps": 4},
    ),
    ("model_name_or_path: x/y-7b\nstage: sft\n# additional_target: lm_head\n", {}),
]


@pytest.mark.parametrize(("text", "extra"), CASES)
def test_they_reach_the_job(text, extra):
    evidence = read_text(text)
    assert dict(to_job(evidence.facts, evidence.framework, evidence.versions).extra) == extra


def test_the_estimate_counts_what_is_trained_beside_the_adapters():
    """Embedding and head of Qwen2.5-0.5B are one table of 151,936 x 896: with states it is gibibytes, not megabytes."""
    text = "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\nfinetuning_type: lora\nlora_rank: 8\nper_device_train_batch_size: 1\n"
    peaks = []
    for more in ("", "additional_target: embed_tokens\n"):
        evidence = read_text(text + more)
        peaks.append(price(to_job(evidence.facts, evidence.framework)).estimate.allocated_bytes)
    assert peaks[1] - peaks[0] > 4 * 151_936 * 896


def test_adapters_configured_in_a_snippet_are_read():
    evidence = read_text("It OOMs:\n```python\nconfig = LoraConfig(r=8, target_modules=['q_proj'])\n```")
    assert to_job(evidence.facts, evidence.framework).get("lora.r") == 8
