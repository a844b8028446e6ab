"""NeMo: 1.0 YAML (``model.micro_batch_size``), 2.0 recipes and NeMo-RL's ``policy``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import FLAG, INT, MODEL, NUMBER, OPTIMIZER, TARGETS
from oomdoc.intake.configs.table import Group, Key, Reading, Table, View, words
from oomdoc.intake.configs.tables.megatron import TABLE as MEGATRON
from oomdoc.intake.configs.values import flag

__all__ = ["TABLE"]

_PRECISION: Final = {
    "bf16": "bf16",
    "bf16-mixed": "bf16",
    "16": "fp16",
    "16-mixed": "fp16",
    "32": "fp32",
    "fp16": "fp16",
    "bf16_mixed": "bf16",
    "bf16-true": "bf16",
    "32-true": "fp32",
    "bfloat16": "bf16",
}


def _read_precision(view: View) -> Iterator[Reading]:
    name = view.first("trainer.precision", "precision", "policy.precision")
    if name is not None:
        yield "param_dtype", _PRECISION.get(str(view[name].value).lower()), view[name]


def _write_precision(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    name = view.first("trainer.precision", "precision", "policy.precision") or "trainer.precision"
    old = str(view[name].value) if name in view else ""
    mixed = "-mixed" if "mixed" in old else ""
    return (
        {name: {"bf16": "bf16", "fp16": "16", "fp32": "32"}[value] + mixed}
        if value in ("bf16", "fp16", "fp32")
        else None
    )


_CKPT: Final = (
    "model.activations_checkpoint_granularity",
    "recompute_granularity",
    "activations_checkpoint_granularity",
)


def _read_ckpt(view: View) -> Iterator[Reading]:
    name = view.first(*_CKPT)
    if name is not None:
        value = str(view[name].value).lower()
        yield "grad_ckpt", "selective" if value == "selective" else value == "full", view[name]
    simple = view.get("policy.activation_checkpointing_enabled") or view.get("activation_checkpointing")
    if simple is not None and flag(simple.value) is not None:
        yield "grad_ckpt", flag(simple.value), simple


def _write_ckpt(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    simple = view.first("policy.activation_checkpointing_enabled", "activation_checkpointing")
    if simple and not view.first(*_CKPT):
        return {simple: bool(value)}
    name = view.first(*_CKPT) or "model.activations_checkpoint_granularity"
    if value == "selective":
        return {name: "selective"}
    if value is True:
        stem = "activations_checkpoint" if "checkpoint" in name else "recompute"
        prefix = "model." if name.startswith("model.") else ""
        out: dict[str, Any] = {name: "full"}
        for key, default in (("method", "uniform"), ("num_layers", 1)):
            full = f"{prefix}{stem}_{key}"
            if view.value(full) is None:
                out[full] = default
        return out
    return {name: None} if value is False else None


def _read_optim(view: View) -> Iterator[Reading]:
    entry = view.get("model.optim.name")
    if entry is None or not isinstance(entry.value, str):
        return
    yield "optimizer", OPTIMIZER.read(entry.value), entry
    if "distributed" in entry.value:
        yield "sharding", "distributed-optimizer", entry


def _write_optim(view: View, field: str, value: Any) -> dict[str, Any] | None:
    if field == "sharding" and value == "distributed-optimizer":
        return {"model.optim.name": "distributed_fused_adam"}
    return None


def _read_fsdp(view: View) -> Iterator[Reading]:
    entry = view.get("model.fsdp") or view.get("fsdp")
    if entry is not None and (flag(entry.value) or str(entry.value) in ("megatron", "pytorch")):
        hybrid = str(view.value("model.fsdp_sharding_strategy", "fsdp_sharding_strategy") or "")
        yield "sharding", {"hybrid": "hsdp", "grad": "shard-grad-op"}.get(hybrid, "fsdp"), entry


def _write_fsdp(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    name = view.first("model.fsdp", "fsdp")
    return {name: value in ("fsdp", "hsdp")} if name and value in ("fsdp", "hsdp", "none", "ddp") else None


def _read_peft(view: View) -> Iterator[Reading]:
    entry = view.get("model.peft.peft_scheme")
    if entry is not None and entry.value is not None:
        yield "method", "lora" if "lora" in str(entry.value) else "full", entry
        return
    scheme = view.get("peft_scheme") or view.get("finetune_recipe:peft_scheme") or view.get("peft")
    if scheme is not None and "lora" in str(scheme.value).lower():
        yield "method", "lora", scheme


def _write_peft(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    return {"model.peft.peft_scheme": value if value == "lora" else None} if value in ("lora", "full") else None


TABLE = Table(
    name="nemo",
    bases=(MEGATRON,),
    keys=(
        Key(
            "model",
            (
                "model.restore_from_path",
                "policy.model_name",
                "model.pretrained_model_name_or_path",
                "base_model_path",
                "pretrained_checkpoint.restore_from_path",
            ),
            MODEL,
        ),
        Key(
            "micro_batch",
            (
                "model.micro_batch_size",
                "micro_batch_size",
                "policy.train_micro_batch_size",
                "step_scheduler.local_batch_size",
                "data.micro_batch_size",
                "mbs",
                "model.data.micro_batch_size",
                "model.train_ds.micro_batch_size",
                "train_micro_batch_size",
            ),
            INT,
        ),
        Key(
            "seq_len",
            (
                "model.encoder_seq_length",
                "model.data.seq_length",
                "seq_length",
                "policy.max_total_sequence_length",
                "model.data.train_ds.max_seq_length",
                "model.seq_length",
                "data.max_input_seq_length",
                "encoder_seq_length",
            ),
            INT,
        ),
        Key("tp", ("model.tensor_model_parallel_size", "tensor_model_parallel_size", "tensor_parallel_size"), INT),
        Key(
            "pp", ("model.pipeline_model_parallel_size", "pipeline_model_parallel_size", "pipeline_parallel_size"), INT
        ),
        Key("cp", ("model.context_parallel_size", "context_parallel_size"), INT),
        Key("ep", ("model.expert_model_parallel_size", "expert_model_parallel_size"), INT),
        Key(
            "gpus",
            (
                "trainer.devices",
                "num_gpus_per_node",
                "gpus_per_node",
                "cluster.gpus_per_node",
                "trainer.gpus",
                "trainer.num_gpus_per_node",
            ),
            INT,
        ),
        Key("nodes", ("trainer.num_nodes", "num_nodes", "cluster.num_nodes"), INT),
        Key("lora.r", ("model.peft.lora_tuning.adapter_dim", "peft.dim", "LoRA:dim", "policy.lora_cfg.dim"), INT),
        Key("lora.alpha", ("model.peft.lora_tuning.alpha", "peft.alpha", "LoRA:alpha"), NUMBER),
        Key("lora.dropout", ("model.peft.lora_tuning.adapter_dropout", "peft.dropout"), NUMBER),
        Key("lora.targets", ("model.peft.lora_tuning.target_modules", "peft.target_modules"), TARGETS),
        Key("fused_ce", ("cross_entropy_loss_fusion",), FLAG),
        Key("packing", ("policy.sequence_packing.enabled",), FLAG),
        Key("grad_accum", ("trainer.accumulate_grad_batches",), INT),
        Key("generations", ("grpo.num_generations_per_prompt",), INT),
        Key("rollout.gpu_memory_utilization", ("policy.generation.vllm_cfg.gpu_memory_utilization",), NUMBER),
        Key("rollout.tensor_parallel", ("policy.generation.vllm_cfg.tensor_parallel_size",), INT),
        Key("rollout.colocated", ("policy.generation.colocated.enabled",), FLAG),
    ),
    groups=(
        Group(
            ("param_dtype",), ("trainer.precision", "precision", "policy.precision"), _read_precision, _write_precision
        ),
        Group(
            ("grad_ckpt",),
            (
                *_CKPT,
                "policy.activation_checkpointing_enabled",
                "activation_checkpointing",
                "model.activations_checkpoint_method",
                "model.activations_checkpoint_num_layers",
            ),
            _read_ckpt,
            _write_ckpt,
        ),
        Group(("optimizer", "sharding"), ("model.optim.name",), _read_optim, _write_optim),
        Group(("method",), ("model.peft.peft_scheme",), _read_peft, _write_peft),
        Group(("sharding",), ("model.fsdp", "fsdp", "fsdp_sharding_strategy"), _read_fsdp, _write_fsdp),
    ),
    suffix=True,
    sections=(
        "policy.",
        "grpo.",
        "loss_fn.",
        "checkpointing.",
        "logger.",
        "reward_penalties.",
        "distillation.",
        "cluster.",
        "step_scheduler.",
        "distributed.",
        "recipe.",
        "packed_sequence.",
    ),
    neutral=words(
        """
        name trainer trainer.accelerator trainer.max_epochs trainer.max_steps
        trainer.log_every_n_steps trainer.val_check_interval trainer.gradient_clip_val exp_manager
        model.global_batch_size global_batch_size model.num_layers model.hidden_size
        model.num_attention_heads model.virtual_pipeline_model_parallel_size model.sequence_parallel
        model.megatron_amp_O2 model.activations_checkpoint_layers_per_pipeline model.optim.lr
        virtual_pipeline_model_parallel_size megatron_amp_O2 model.max_position_embeddings
        min_seq_length max_src_seq_length max_tgt_seq_length seq_length_dec pad_to_max_length
        no_seqlen_plus_one_input_tokens seq_len_interpolation_factor fsdp_sharding_strategy
        fsdp_grad_reduce_dtype fsdp_sharded_checkpoint fsdp_use_orig_params fsdp_cpu_offload
        cpu_offloading cpu_offloading_num_layers cpu_offloading_activations cpu_offloading_weights
        max_position_embeddings model.data.data_prefix native_amp_init_scale
        native_amp_growth_interval hysteresis fp32_residual_connection fp16_lm_cross_entropy
        gradient_accumulation_fusion use_flash_attention rampup_batch_size batch_size fp8 fp8_e4m3
        fp8_hybrid fp8_margin fp8_amax_history_len grad_allreduce_chunk_size_mb
        gradient_as_bucket_view bucket_cap_mb grad_div_ar_fusion overlap_grad_sync grad_sync_dtype
        max_seq_length activations_checkpoint_layers_per_pipeline
        num_micro_batches_with_partial_activation_checkpoints activations_checkpoint_method
        activations_checkpoint_num_layers train_global_batch_size generation_batch_size
        logprob_batch_size attention_dropout num_attention_heads num_query_groups ub_tp_comm_overlap
        batch_p2p_comm precision val_batch_size micro_batch_size_per_gpu max_sequence_length
        """
    ),
    commands=(
        r"\bnemo\b",
        r"\bNeMo\b",
        r"\bmegatron_gpt_\w{1,40}\.py",
        r"\bnemo_run\b",
        r"\bnemo\.collections\b",
        r"\brun_(?:grpo|sft|dpo)\w*\.py",
    ),
    marks=words(
        """
        exp_manager trainer.precision model.megatron_amp_O2 model.tensor_model_parallel_size
        model.micro_batch_size megatron_amp_O2 model.encoder_seq_length trainer.devices
        policy.model_name exp_manager.exp_dir restore_from_path step_scheduler.local_batch_size
        step_scheduler.global_batch_size policy.train_global_batch_size policy.train_micro_batch_size
        recipe step_scheduler.ckpt_every_steps distributed.tp_size policy.megatron_cfg.enabled
        policy.dtensor_cfg.enabled grpo.num_prompts_per_step
        grpo.num_generations_per_prompt policy.generation.vllm_cfg.tensor_parallel_size
        policy.megatron_cfg.tensor_model_parallel_size policy.dtensor_cfg.tensor_parallel_size
        """
    ),
    hints=words(
        """
        trainer trainer.accelerator model trainer.num_nodes trainer.max_epochs model.optim
        model.train_ds model.optim.name model.train_ds.batch_size trainer.max_steps hidden_size
        micro_batch_size
        """
    ),
)
