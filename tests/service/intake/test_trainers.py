"""A trainer that generates with a serving engine is the framework; a model that is served is the engine's job."""

from __future__ import annotations

import pytest

from oomdoc.intake import read_text
from oomdoc.intake.configs import to_job
from oomkb.frameworks import ENGINES

TRAINED = [
    ("verl GRPO of a 7B on 8xA100, vllm colocated, gpu_memory_utilization 0.6, OOM", "verl", "grpo", 0.6),
    ("verl GRPO with vLLM rollout, gpu_memory_utilization=0.8: OOM", "verl", "grpo", 0.8),
    ("用 verl 跑 GRPO，vllm 做 rollout，gpu_memory_utilization=0.5，训练时爆显存", "verl", "grpo", 0.5),
    ("EasyR1 DAPO, rollout.gpu_memory_utilization=0.7, OOM", "verl", "grpo", 0.7),
    ("OpenRLHF PPO with vllm engines, gpu_memory_utilization=0.4: OOM", "openrlhf", "ppo", 0.4),
    ("GRPOTrainer with vllm in colocate mode, gpu_memory_utilization=0.3: OOM", "trl", "grpo", 0.3),
]


@pytest.mark.parametrize(("text", "framework", "objective", "share"), TRAINED)
def test_the_trainer_is_the_framework(text, framework, objective, share):
    evidence = read_text(text)
    job = to_job(evidence.facts, evidence.framework, evidence.versions)
    assert (evidence.framework, job.framework, job.objective) == (framework, framework, objective)
    assert job.get("rollout.gpu_memory_utilization") == share
    assert job.serving is None


def test_the_engine_splits_its_own_copy():
    evidence = read_text("verl GRPO, vLLM rollout with tensor_parallel_size=2, gpu_memory_utilization=0.8: OOM")
    job = to_job(evidence.facts, evidence.framework)
    assert (job.tp, job.get("rollout.tensor_parallel"), job.get("rollout.engine")) == (None, 2, "vllm")
    assert evidence.value("tp") == 2


def test_colocation_is_read():
    evidence = read_text("verl GRPO, actor and vLLM colocated, gpu_memory_utilization=0.8: OOM")
    assert to_job(evidence.facts, evidence.framework).get("rollout.colocated") is True


SERVED = [
    "I trained the model with trl PPO and now serve it with vLLM; vllm serve goes OOM, gpu_memory_utilization=0.9",
    "verl 的 GRPO 训完之后用 vllm 部署，gpu_memory_utilization=0.9，启动就 OOM",
    "vllm serve my-org/llama-8b-chat --gpu-memory-utilization 0.9\nOOM",
    "gpu_memory_utilization=0.9, vllm OOM\ntrl        0.15.2\nppo-pytorch 1.0\n",
    "vllm OOM at gpu_memory_utilization=0.9; not GRPO, only chats",
]


@pytest.mark.parametrize("text", SERVED)
def test_what_is_served_stays_the_engines(text):
    evidence = read_text(text)
    assert evidence.framework == "vllm"
    assert to_job(evidence.facts, evidence.framework).get("rollout.gpu_memory_utilization") is None


def test_scattered_keys_of_an_engine_do_not_outweigh_a_trainers_own_marks():
    evidence = read_text("we set ppo_micro_batch_size_per_gpu to 2 and rollout.gpu_memory_utilization 0.5, OOM")
    assert (evidence.framework, evidence.value("objective"), evidence.value("micro_batch")) == ("verl", None, 2)


def test_engines_serve():
    assert {"vllm", "sglang", "lmdeploy", "tgi", "tensorrt-llm", "llama.cpp"} <= ENGINES
    assert not {"verl", "trl", "transformers", "megatron"} & ENGINES
