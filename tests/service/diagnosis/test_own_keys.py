"""Changes are told in the keys that a person typed, also where no file of a known framework was read."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoc.diagnosis.engine import diagnose
from oomdoc.diagnosis.planning.changes import worded
from oomdoc.diagnosis.planning.spelling import spelled
from oomdoc.intake import read_text
from oomkb.memory.job import Job

_FAILED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB"
)


@pytest.mark.parametrize("key", ["batch_size", "micro_batch_size", "batch_size_per_gpu"])
@pytest.mark.parametrize("other", ["lora_r=8", "heads=8", ""])
def test_the_key_before_the_old_value_is_kept(key: str, other: str) -> None:
    text = f"my own loop: {other} {key}=8 gradient checkpointing on, Qwen2.5-1.5B LoRA, sequence length 4096, RTX 3090"
    found = diagnose(read_text(f"{text}\n{_FAILED}"))
    keys = {c.key for plan in found.plans for c in plan.changes if "micro_batch" in c.fields}
    assert keys <= {key}


@pytest.mark.parametrize("padding", [0, 40, 160])
@pytest.mark.parametrize("note", ["(8x A100 40G)", "# 8x A100 40G", "on 8x A100 40G"])
def test_cards_noted_behind_a_command_are_read(padding: int, note: str) -> None:
    command = (
        "deepspeed --module openrlhf.cli.train_dpo --pretrain Qwen/Qwen2.5-14B-Instruct --max_len 8192 --zero_stage 3"
    )
    evidence = read_text(f"{command} --output_dir out/{'x' * padding} {note}\n{_FAILED}")
    assert evidence.value("gpu_count") == 8
    assert str(evidence.value("gpu")).startswith("A100")


@pytest.mark.parametrize(
    ("framework", "field", "value", "words"),
    [
        ("llama-factory", "attention", "flash2", {"flash_attn": "fa2"}),
        ("llama-factory", "grad_ckpt", True, {"disable_gradient_checkpointing": False}),
        ("axolotl", "attention", "flash2", {"flash_attention": True}),
        (
            "megatron",
            "grad_ckpt",
            True,
            {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": 1},
        ),
    ],
)
def test_a_switch_is_spoken_of_in_the_framework_s_words(
    framework: str, field: str, value: Any, words: dict[str, Any]
) -> None:
    job = Job.from_document({"framework": framework, "objective": "sft", "method": "full", "model": "Qwen/Qwen3-8B"})
    assert {key: new for key, _, new in worded(job, job, field, value)} == words


@pytest.mark.parametrize("sharding", ["fsdp", "fsdp2", "shard-grad-op"])
@pytest.mark.parametrize("kinds", [["optimizer"], ["param"], ["optimizer", "param"]])
def test_fsdp_has_one_switch_for_what_is_offloaded(sharding: str, kinds: list[str]) -> None:
    keys = {"trl": "fsdp_config.fsdp_offload_params", "axolotl": "fsdp_config.offload_params"}
    keys |= {"torchtitan": "training.enable_cpu_offload", "torchtune": "fsdp_cpu_offload"}
    for framework, key in keys.items():
        assert spelled(framework, "offload", kinds, sharding=sharding) == ((key, True),)
    assert spelled("verl", "offload", ["optimizer"], sharding=sharding)[0][0].endswith("fsdp_config.optimizer_offload")


def test_a_library_without_keys_is_advised_in_words() -> None:
    text = (
        "Fine-tuning gemma 7b in flax on an A100 40GB, batch 8 x 2048 tokens\n"
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12884901888 bytes."
    )
    changes = diagnose(read_text(text)).plans[0].changes
    assert changes
    assert all(change.instruction is not None for change in changes)
    assert {change.remedy for change in changes} <= {"micro-batch", "seq-len", "grad-ckpt", "lora"}
