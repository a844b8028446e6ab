"""The four situations that the project began with, from the example files as a new user would run them."""

from __future__ import annotations

from pathlib import Path

import pytest

import oomdoc
from oomdoc.diagnosis.engine import diagnose
from oomdoc.diagnosis.result import Diagnosis
from oomdoc.evidence import Source
from oomdoc.intake import read
from oomdoc.report.words import render
from oomkb.memory.device import Device


def example(root: Path, name: str, *, without: str = "") -> Diagnosis:
    folder = root / "examples" / name
    texts = {p.name: p.read_text(encoding="utf-8") for p in sorted(folder.iterdir())}
    if without:
        texts = {n: "\n".join(x for x in t.splitlines() if without not in x.lower()) for n, t in texts.items()}
    return diagnose(read([Source(n, t) for n, t in texts.items()]), plans=False)


def said(found: Diagnosis) -> str:
    why = [m for c in found.causes[:3] for m in c.why]
    return "\n".join(render(m, "en") for m in (*found.summary, *found.warnings, *why))


def test_dpo_on_v100_is_the_logits(root: Path) -> None:
    found = example(root, "dpo-v100")
    assert found.causes[0].cause == "logits"
    text = said(found)
    assert "2 × 4,096 tokens × 151,936 words × 4 bytes = 4.64 GiB" in text
    assert "LoRA rank 16" in text
    assert "does not fit" in text
    assert "no bf16, FlashAttention-2" in text
    assert found.tensors[0].shape == (8192, 151_936)


def test_lora_on_4090_is_not_the_optimizer(root: Path) -> None:
    found = example(root, "lora-4090")
    assert {"logits", "model-states", "activations"} >= {c.cause for c in found.causes[:2]}
    assert "15." in said(found)


def test_grpo_with_one_process_shards_nothing(root: Path) -> None:
    found = example(root, "grpo-3090")
    assert {found.causes[0].cause} <= {"inactive-setting", "rollout-engine"}
    text = said(found)
    assert "ZeRO-2 never shards weights" in text
    assert "Do not share the card" in text


def test_actor_70b_should_fit(root: Path) -> None:
    found = example(root, "actor-70b")
    assert found.causes[0].cause == "version-regression"
    text = said(found)
    assert "0.16.8" in text
    assert "0.15.0" in text


def test_actor_70b_without_versions_asks(root: Path) -> None:
    found = example(root, "actor-70b", without="deepspeed==")
    assert "version-regression" in [c.cause for c in found.causes[:3]]
    assert any(q.fact == "versions.deepspeed" for q in found.questions)


@pytest.mark.parametrize("name", ["dpo-v100", "lora-4090", "grpo-3090", "actor-70b"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_sentence_is_whole(root: Path, name: str, language: str) -> None:
    found = example(root, name)
    for message in (*found.summary, *found.warnings, *(m for c in found.causes for m in c.why)):
        text = render(message, language)
        assert "{" not in text.replace("{setting}", "") or "“" in text


def test_v100_lacks_what_is_not_proposed() -> None:
    from oomkb.catalog import gpus

    device = gpus.find("V100-16GB")
    assert isinstance(device, Device)
    assert not device.can("bf16")


def test_a_merge_that_is_killed_is_not_told_of_data_loaders() -> None:
    text = "Killed\nMerging LoRA weights into a 70B model on a machine with 96 GB of RAM"
    shown = oomdoc.diagnose(text).text()
    assert "Gather, merge and export in 16 bits" in shown
    assert "dataloader_num_workers" not in shown


def test_host_memory_is_freed_in_the_framework_s_own_keys() -> None:
    text = """ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.
python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-14B-Instruct \\
  actor_rollout_ref.actor.fsdp_config.optimizer_offload=True trainer.n_gpus_per_node=8
"""
    shown = oomdoc.diagnose(text).text()
    assert "actor_rollout_ref.actor.fsdp_config.optimizer_offload=False" in shown
    assert "offload_optimizer" not in shown


def test_activations_are_checkpointed_before_they_are_offloaded() -> None:
    text = """# tune run --nproc_per_node 4 lora_finetune_distributed --config this.yaml  (4x A100 80GB): what to change?
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_70b
  lora_attn_modules: ['q_proj', 'v_proj']
  lora_rank: 8
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 4096
batch_size: 4
dtype: bf16
enable_activation_checkpointing: False
enable_activation_offloading: False
"""
    plans = oomdoc.diagnose(text).document()["plans"]
    assert plans
    assert all(
        any(c["fields"].get("grad_ckpt") for c in plan["changes"])
        for plan in plans
        if any("offload" in c["fields"] for c in plan["changes"])
    )
    assert "enable_activation_checkpointing" in {c["key"] for c in plans[0]["changes"]}


def test_what_no_card_holds_is_not_kept_on_it() -> None:
    text = """[launch.py:319:sigkill_handler] Killing subprocess 4711
exits with return code = -9
Qwen2.5-72B full fine-tuning on 8x A100 40GB, 512 GB of RAM; ds_z3.json has offload_param and offload_optimizer, both cpu"""
    shown = oomdoc.diagnose(text).text()
    assert "Keep the optimizer states on the GPU" not in shown
    assert "nvme" in shown


def test_processes_that_load_are_counted_in_the_dtype_that_the_framework_loads() -> None:
    text = (
        "base_model: org/thing-70b\nadapter: lora\nlora_r: 16\nsequence_len: 4096\nmicro_batch_size: 1\nbf16: true\n"
        "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_cpu_ram_efficient_loading: false\n"
        "  fsdp_state_dict_type: SHARDED_STATE_DICT\n\n8x A100 80GB, #SBATCH --mem=480G\n"
        "Loading checkpoint shards:  43%|####      | 13/30 [03:49<04:59, 17.60s/it]\n"
        "slurmstepd: error: Detected 1 oom_kill event in StepId=2841.0. Some of the step tasks have been OOM Killed.\n"
    )
    found = oomdoc.diagnose(text).document()
    assert found["causes"][0]["cause"] == "host-ram"
    assert "(bf16)" in str(found["causes"][0]["why"])
    # accelerate refuses the one setting without the other
    assert "fsdp_cpu_ram_efficient_loading: true, fsdp_sync_module_states: true" in str(found["plans"])
