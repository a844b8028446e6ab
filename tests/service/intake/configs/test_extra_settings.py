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
    (
        "swift sft --model x/y-7b --padding_free true --attn_impl flash_attn --max_length 2048",
        {"padding_free": True},
    ),
    ("swift sft --model x/y-7b --padding_free true --packing true --attn_impl flash_attn", {}),
    (
        '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true}}}',
        {"pin_memory": True},
    ),
    ("model_name_or_path: x/y-7b\nstage: sft\n# additional_target: lm_head\n", {}),
    (
        "model_name_or_path: x/y-7b\nstage: sft\nfinetuning_type: lora\nadditional_target: lm_head\nresize_vocab: true\n",
        {"modules_to_save": ["lm_head"]},
    ),
    ("model_name_or_path: x/y-7b\nstage: sft\nfinetuning_type: lora\nresize_vocab: false\n", {}),
    (
        "model_name_or_path: x/y-7b\nstage: sft\nfinetuning_type: full\neval_strategy: steps\ncompute_accuracy: true\n",
        {"compute_metrics": True, "preprocess_logits_for_metrics": True},
    ),
    (
        "model_name_or_path: x/y-7b\nstage: sft\nfinetuning_type: full\neval_strategy: steps\ncompute_accuracy: false\n",
        {},
    ),
    (
        "args = TrainingArguments(output_dir='o', eval_accumulation_steps=16, per_device_eval_batch_size=2)\n"
        "trainer = Trainer(model=model, args=args, train_dataset=a, eval_dataset=b, compute_metrics=accuracy_of(tok))\n",
        {"compute_metrics": True, "eval_accumulation_steps": 16},
    ),
    (
        "trainer = TokenWeightedTrainer(model=model, compute_metrics=perplexity,\n"
        "    preprocess_logits_for_metrics=lambda scores, _: scores.argmax(-1))\n",
        {"compute_metrics": True, "preprocess_logits_for_metrics": True},
    ),
    ("trainer = SFTTrainer(model=model, args=SFTConfig(output_dir='o'), compute_metrics=None)\n", {}),
    (
        "args = Seq2SeqTrainingArguments(output_dir='o', predict_with_generate=True)\n"
        "trainer = Seq2SeqTrainer(model=model, args=args, compute_metrics=rouge)\n",
        {},
    ),
    (
        "args = TrainingArguments(output_dir='o', per_device_train_batch_size=1, batch_eval_metrics=True)\n"
        "trainer = Trainer(model=model, args=args, compute_metrics=accuracy)\n",
        {},
    ),
    (
        "[INFO|trainer.py:4309] 2026-02-03 10:11:12,001 >> \n***** Running Evaluation *****\n"
        "[INFO|trainer.py:4311] 2026-02-03 10:11:12,001 >>   Num examples = 750\n"
        "[INFO|trainer.py:4314] 2026-02-03 10:11:12,001 >>   Batch size = 2\n",
        {"eval_samples": 750},
    ),
    ("***** Running Evaluation *****\n  Num examples = 1250\n  Batch size = 8\n", {"eval_samples": 1250}),
    ("***** Running Evaluation *****\n  Num examples: Unknown\n  Batch size = 8\n", {}),
    (
        "recipe: TrainFinetuneRecipeForNextTokenPrediction\nmodel:\n"
        "  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
        "  pretrained_model_name_or_path: x/y-7b\n  use_liger_kernel: false\n"
        "step_scheduler:\n  global_batch_size: 64\n  local_batch_size: 8\n"
        "distributed:\n  _target_: nemo_automodel.components.distributed.fsdp2.FSDP2Manager\n  tp_size: 1\n",
        {"use_liger_kernel": False},
    ),
    ("vllm serve x/y-7b --num-speculative-tokens 5 --gpu-memory-utilization 0.9", {"num_speculative_tokens": 5}),
    ("***** Running training *****\n  Num examples = 52,002\n  Num Epochs = 3\n", {}),
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


def test_several_evaluation_sets_are_no_conflict():
    """A run with several sets prints a banner for each; the first is taken, and none contradicts another."""
    text = "".join(f"***** Running Evaluation *****\n  Num examples = {n}\n  Batch size = 8\n" for n in (900, 40))
    evidence = read_text(text)
    assert evidence.facts["extra.eval_samples"].value == 900
    assert evidence.conflicts == ()
