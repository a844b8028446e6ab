"""A plan's patch, applied and read again, is the planned job: for every framework, in its own format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomdoc.diagnosis.planning.changes import plain
from oomdoc.diagnosis.planning.for_diagnosis import planning_for
from oomdoc.diagnosis.result import Plan
from oomdoc.evidence import Evidence, Source
from oomdoc.intake import read
from oomdoc.intake.configs import patch
from oomkb.frameworks import complete
from oomkb.memory.job import Job

LOG = "\n".join(
    [
        "[INFO] Initializing {gpus} distributed tasks at: 127.0.0.1:29500",
        '[rank0]:   File "train.py", line 7, in training_step',
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 0 has a total capacity of"
        " 23.64 GiB of which 2.13 GiB is free. Including non-PyTorch memory, this process has 21.50 GiB memory in use.",
    ]
)
FLAGS = "--per_device_train_batch_size 8 --gradient_accumulation_steps 2 --bf16 --learning_rate 1e-5 --output_dir out"
FILES: dict[str, tuple[str, str]] = {
    "llama-factory": (
        "train.yaml",
        "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
        "cutoff_len: 4096  # long answers\nper_device_train_batch_size: 8\ngradient_accumulation_steps: 2\nbf16: true\n",
    ),
    "ms-swift": (
        "run.sh",
        "NPROC_PER_NODE=4 \\\nswift sft \\\n    --model Qwen/Qwen2.5-7B-Instruct \\\n    --train_type lora \\\n"
        "    --max_length 4096 \\\n    --per_device_train_batch_size 8 \\\n    --gradient_accumulation_steps 2 \\\n"
        "    --torch_dtype bfloat16 \\\n    --output_dir output\n",
    ),
    "axolotl": (
        "config.yml",
        "base_model: Qwen/Qwen2.5-7B\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
        "sequence_len: 4096\nsample_packing: true\nmicro_batch_size: 8  # was 4\ngradient_accumulation_steps: 2\n"
        "optimizer: adamw_torch\nbf16: true\n",
    ),
    "transformers": (
        "run.sh",
        "torchrun --nproc_per_node 4 run_clm.py --model_name_or_path Qwen/Qwen2.5-7B --block_size 4096 " + FLAGS + "\n",
    ),
    "trl": (
        "run.sh",
        "accelerate launch --num_processes 4 -m trl.scripts.sft --model_name_or_path Qwen/Qwen2.5-7B"
        " --dataset_name x --use_peft --lora_r 16 --max_length 4096 " + FLAGS + "\n",
    ),
    "openrlhf": (
        "run.sh",
        "deepspeed --num_gpus 4 --module openrlhf.cli.train_sft \\\n   --pretrain Qwen/Qwen2.5-7B \\\n"
        "   --max_len 4096 \\\n   --micro_train_batch_size 8 \\\n   --train_batch_size 64 \\\n   --zero_stage 2 \\\n"
        "   --bf16 \\\n   --learning_rate 5e-6\n",
    ),
    "verl": (
        "run.sh",
        "python3 -m verl.trainer.main_ppo \\\n    algorithm.adv_estimator=grpo \\\n"
        "    data.max_prompt_length=1024 \\\n    data.max_response_length=3072 \\\n    data.train_batch_size=256 \\\n"
        "    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct \\\n"
        "    actor_rollout_ref.actor.ppo_mini_batch_size=64 \\\n"
        "    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \\\n"
        "    actor_rollout_ref.rollout.name=vllm \\\n    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\\n"
        "    trainer.n_gpus_per_node=8 \\\n    trainer.nnodes=1\n",
    ),
    "torchtune": (
        "recipe.yaml",
        "model:\n  _component_: torchtune.models.qwen2_5.lora_qwen2_5_7b_base\n"
        "  lora_attn_modules: ['q_proj', 'v_proj']\n  lora_rank: 8\n"
        "tokenizer:\n  _component_: torchtune.models.qwen2_5.qwen2_5_tokenizer\n  max_seq_len: 4096\n"
        "batch_size: 8\ngradient_accumulation_steps: 2\nenable_activation_checkpointing: False\ndtype: bf16\n",
    ),
    "unsloth": (
        "train.py",
        "from unsloth import FastLanguageModel\nfrom trl import SFTConfig\n\n"
        "model, tok = FastLanguageModel.from_pretrained(\n    model_name='unsloth/Qwen2.5-7B', max_seq_length=4096,"
        " load_in_4bit=False\n)\nmodel = FastLanguageModel.get_peft_model(model, r=16)\n"
        "args = SFTConfig(\n    per_device_train_batch_size=16,  # too much?\n    gradient_accumulation_steps=2,\n"
        "    bf16=True,\n)\n",
    ),
    "xtuner": (
        "config.py",
        "pretrained_model_name_or_path = 'Qwen/Qwen2.5-7B-Instruct'\nmax_length = 4096\nbatch_size = 8\n"
        "accumulative_counts = 2\n",
    ),
    "deepspeed": (
        "ds_config.json",
        json.dumps(
            {
                "bf16": {"enabled": True},
                "train_micro_batch_size_per_gpu": 8,
                "gradient_accumulation_steps": 2,
                "zero_optimization": {"stage": 1, "reduce_bucket_size": 500000000},
            },
            indent=2,
        )
        + "\n",
    ),
    "megatron": (
        "run.sh",
        "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32"
        " --ffn-hidden-size 11008 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 8"
        " --global-batch-size 64 --bf16\n",
    ),
    "nemo": (
        "config.yaml",
        "trainer:\n  devices: 4\n  num_nodes: 1\n  precision: bf16\nmodel:\n  micro_batch_size: 8\n"
        "  global_batch_size: 64\n  encoder_seq_length: 4096\n  num_layers: 32\n  hidden_size: 4096\n"
        "  ffn_hidden_size: 11008\n  num_attention_heads: 32\n  tensor_model_parallel_size: 1\n",
    ),
    "vllm": (
        "serve.sh",
        "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 32768 --gpu-memory-utilization 0.6 --max-num-seqs 256\n",
    ),
    "sglang": (
        "serve.sh",
        "python -m sglang.launch_server --model-path Qwen/Qwen2.5-7B-Instruct --context-length 32768"
        " --mem-fraction-static 0.6\n",
    ),
}
GPUS = {"unsloth": 1, "vllm": 1, "sglang": 1, "verl": 8}


def planned(framework: str) -> tuple[Evidence, Job, Plan, str, str]:
    name, text = FILES[framework]
    gpus = GPUS.get(framework, 4)
    options: dict[str, Any] = {"gpu": "RTX 4090", "gpus": gpus}
    if framework == "deepspeed":
        options |= {"model": "Qwen/Qwen2.5-7B", "seq_len": 4096}
    elif framework == "xtuner":
        options |= {"model": "Qwen/Qwen2.5-7B-Instruct"}
    evidence = read([Source("train.log", LOG.format(gpus=gpus)), Source(name, text)], options)
    job = job_of(evidence)
    plans = planning_for(evidence, job).plans
    assert plans, f"{framework}: no plan"
    return evidence, job, plans[0], name, text


def job_of(evidence: Evidence) -> Job:
    from oomdoc.diagnosis.engine import diagnose

    return diagnose(evidence, plans=False).job


def applied(plan: Plan, name: str, text: str, framework: str) -> tuple[str, dict[str, Any]]:
    fields = {f: v for change in plan.changes for f, v in change.fields.items() if change.file == name}
    done = patch(text, filename=name, framework=framework, changes=fields)
    assert done.error is None
    return done.text, {f: v for f, v in fields.items() if f not in done.unplaced}


def in_order(value: Any) -> Any:
    value = plain(value)
    return sorted(value) if isinstance(value, list) else value


@pytest.mark.parametrize("framework", sorted(FILES))
def test_a_plan_reads_back_as_planned(framework: str) -> None:
    evidence, _, plan, name, text = planned(framework)
    after, written = applied(plan, name, text, evidence.documents[-1].framework or framework)
    assert written, f"{framework}: {plan.changes}"
    options = {"gpu": "RTX 4090", "gpus": GPUS.get(framework, 4)}
    again = complete(job_of(read([Source(name, after)], options)))
    for field in written:
        assert in_order(again.get(field)) == in_order(plan.job.get(field)), field


VARIABLES = """#!/bin/bash
NUM_LAYERS=32
SIZES="--num-layers $NUM_LAYERS --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008"
torchrun --nproc_per_node 8 pretrain_gpt.py $SIZES --seq-length 4096 --vocab-size 32000 --swiglu --bf16 \\
  --tensor-model-parallel-size 2 --use-distributed-optimizer --micro-batch-size 2 --global-batch-size 256
"""


@pytest.mark.parametrize("framework", [*sorted(FILES), "variables"])
def test_what_is_listed_for_a_file_is_what_its_patch_writes(framework: str) -> None:
    if framework == "variables":
        text = f"What should I change?\n\n{VARIABLES}\n{LOG.format(gpus=8)}"
        evidence = read([Source("input", text)], {"gpu": "A100 40GB", "gpus": 8})
    else:
        evidence, *_ = planned(framework)
    for plan in planning_for(evidence, job_of(evidence)).plans:
        added = [line[1:] for line in plan.patch.splitlines() if line.startswith("+") and not line.startswith("+++")]
        for change in plan.changes:
            if change.file is not None and change.instruction is None and change.new is not None:
                last = change.key.lstrip("-").rpartition(".")[2]
                assert any(last in line for line in added), (change.key, plan.patch)


def test_the_example_is_patched_in_its_own_file(root: Path) -> None:
    folder = root / "examples" / "lora-4090"
    texts = {p.name: p.read_text(encoding="utf-8") for p in sorted(folder.iterdir())}
    evidence = read([Source(n, t) for n, t in texts.items()])
    for plan in planning_for(evidence, job_of(evidence)).plans:
        assert "train.log" not in plan.patch
        assert {c.file for c in plan.changes} <= {"train.yaml", None}


def test_a_log_is_never_patched() -> None:
    text = "$ " + FILES["trl"][1] + LOG.format(gpus=4)
    evidence = read([Source("train.log", text)], {"gpu": "RTX 4090", "gpus": 4})
    plans = planning_for(evidence, job_of(evidence)).plans
    assert plans
    assert all(not p.patch for p in plans)


PPO = """python3 -m openrlhf.cli.train_ppo_ray \\
   --ref_num_nodes 1 --ref_num_gpus_per_node 1 \\
   --reward_num_nodes 1 --reward_num_gpus_per_node 1 \\
   --critic_num_nodes 1 --critic_num_gpus_per_node 1 \\
   --actor_num_nodes 1 --actor_num_gpus_per_node 1 \\
   --pretrain meta-llama/Llama-2-7b-chat-hf \\
   --micro_train_batch_size 8 \\
   --train_batch_size 64 \\
   --prompt_max_len 1024 \\
   --generate_max_len 1024 \\
   --zero_stage 2 \\
   --bf16
"""


def test_roles_on_gpus_of_their_own_are_not_beside_the_actor() -> None:
    job = job_of(read([Source("run.sh", PPO)]))
    assert job.extra_models == ()
    both = job_of(read([Source("run.sh", PPO.replace("--bf16", "--bf16 --colocate_actor_ref"))]))
    assert [m.role for m in both.extra_models or ()] == ["reference"]


def test_what_follows_from_a_change_is_not_written_and_adapters_keep_their_rank() -> None:
    evidence = read([Source("run.sh", PPO), Source("log.txt", LOG.format(gpus=1))])
    found = planning_for(evidence, job_of(evidence).with_fields({"gpu": "RTX 4090"}))
    patches = [p.patch for p in found.plans]
    assert any("--generate_max_len 512" in text or "--gradient_checkpointing" in text for text in patches)
    for one in found.plans:
        assert "--max_len" not in one.patch
        if one.job.method == "lora":
            assert f"--lora_rank {one.job.get('lora.r')}" in one.patch
