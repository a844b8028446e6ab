"""transformers' TrainingArguments, PEFT's LoraConfig, ``from_pretrained`` and BitsAndBytesConfig."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import ATTENTION, DTYPE, FLAG, GRAD_CKPT, INT, MODEL, NUMBER, OPTIMIZER, TARGETS
from oomdoc.intake.configs.table import DROP, Codec, Group, Key, Raw, Reading, Table, View, words
from oomdoc.intake.configs.tables.common import bnb, deepspeed_path, mixed_precision, sized_attention, zero_word
from oomdoc.intake.configs.values import flag, whole

__all__ = ["TABLE"]


def _read_optim(view: View) -> Iterator[Reading]:
    for name in ("optim", "optimizer", "optim_type"):
        entry = view.get(name)
        if entry is None or not isinstance(entry.value, str):
            continue
        yield "optimizer", OPTIMIZER.read(entry.value), entry
        if "fused" in entry.value.lower():
            yield "optimizer_impl", "fused", entry
        return


def _write_optim(view: View, field: str, value: Any) -> dict[str, Any] | None:
    name = view.first("optim", "optimizer") or "optim"
    if field == "optimizer_impl":
        return {name: "adamw_torch_fused"} if value == "fused" else {name: "adamw_torch"}
    return {name: OPTIMIZER.write(value, None)}


def _read_fsdp(view: View) -> Iterator[Reading]:
    entry = view.get("fsdp")
    if entry is None:
        return
    text = " ".join(map(str, entry.value)) if isinstance(entry.value, list) else str(entry.value)
    low = text.lower()
    if not low or low in ("none", "false", "[]"):
        return
    if "hybrid_shard" in low:
        yield "sharding", "hsdp", entry
    elif "shard_grad_op" in low:
        yield "sharding", "shard-grad-op", entry
    elif low == "fsdp2":
        yield "sharding", "fsdp2", entry
    elif "full_shard" in low or low == "true":
        yield "sharding", "fsdp", entry
    if "offload" in low:
        yield "offload", ["param", "optimizer"], entry


def _write_fsdp(view: View, field: str, value: Any) -> dict[str, Any] | None:
    if field == "sharding":
        if value == "fsdp":
            return {"fsdp": "full_shard auto_wrap"}
        return {"fsdp": DROP} if "fsdp" in view and value in ("none", "ddp") else None
    if "fsdp" not in view:
        return None
    return {"fsdp": "full_shard auto_wrap" + (" offload" if value else "")}


_STAGES: Final = ("zero_stage", "actor_zero_stage", "zero")


def _read_stage(view: View) -> Iterator[Reading]:
    """Scripts that make their DeepSpeed configuration themselves take the stage as a flag."""
    name = view.first(*_STAGES)
    if name is not None:
        yield "sharding", zero_word(whole(view[name].value)), view[name]
    offload = view.get("offload")
    if name is not None and offload is not None and flag(offload.value):
        yield "offload", ["optimizer", "param"] if whole(view[name].value) == 3 else ["optimizer"], offload


def _write_stage(view: View, field: str, value: Any) -> dict[str, Any] | None:
    name = view.first(*_STAGES)
    if name is None:
        return None
    if field == "offload":
        return {"offload": True if value else DROP}
    word = str(value)
    return {name: int(word[-1])} if word.startswith("zero") else {name: 0} if word in ("ddp", "none") else None


def _read_peft(view: View) -> Iterator[Reading]:
    for name in ("use_peft", "use_lora"):
        entry = view.get(name)
        if entry is not None and flag(entry.value):
            yield "method", "lora", entry
    for name in ("LoraConfig()", "FastLanguageModel.get_peft_model()", "QLoRAConfig()"):
        entry = view.get(name)
        if entry is not None:
            yield "method", "lora", entry
    entry = view.get("q_lora")
    if entry is not None and flag(entry.value):
        yield "method", "qlora", entry


def _write_peft(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    name = view.first("use_peft", "use_lora")
    return {name: value in ("lora", "qlora")} if name else None


def _model_names(view: View) -> Iterator[Reading]:
    for name in (
        "model_name_or_path",
        "pretrained_model_name_or_path",
        "model_id",
        "model_name",
        "base_model",
        "from_pretrained:@0",
        "SFTTrainer:model",
        "GRPOTrainer:model",
        "DPOTrainer:model",
        "model_path",
        "MODEL_NAME",
        "actor_model_name_or_path",
    ):
        entry = view.get(name)
        if entry is None or not isinstance(entry.value, str) or (not entry.resolved and "$" not in entry.value):
            continue
        call = entry.scope
        if name == "from_pretrained:@0" and "Tokenizer" in call:
            continue
        found = MODEL.read(entry.value)
        if found and len(found) < 160 and " " not in found:
            yield "model", found, entry
            return


def _write_model(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    name = view.first(
        "model_name_or_path",
        "pretrained_model_name_or_path",
        "from_pretrained:@0",
        "model_id",
        "model_name",
        "base_model",
    )
    return {name or "model_name_or_path": value}


def _bnb_dtype(value: Any) -> Any:
    return None


_UNREAD: Final = Codec(_bnb_dtype, lambda v, old: Raw("torch.bfloat16") if v == "bf16" else v)

_NEUTRAL: Final = words(
    """
        max_source_length max_target_length critic_zero_stage critic_gradient_checkpointing critic_lora_dim
        per_device_generation_batch_size per_device_mini_batch_size pad_to_max_length
        enable_hybrid_engine actor_lora_module_name cpu_offload kv_offload offload_dir
        offload_reference_model critic_model_name_or_path only_optimize_lora max_new_tokens
        quant_bits use_meta pin_memory disk_offload ds_offload quant_bit output_dir do_train do_eval
        do_predict learning_rate weight_decay num_train_epochs max_steps lr_scheduler_type
        warmup_ratio warmup_steps logging_steps save_steps save_strategy save_total_limit report_to
        run_name seed dataset_name overwrite_output_dir logging_dir eval_strategy
        evaluation_strategy eval_steps remove_unused_columns ddp_timeout ddp_find_unused_parameters
        max_grad_norm adam_beta1 adam_beta2 adam_epsilon resume_from_checkpoint
        dataloader_num_workers dataloader_pin_memory group_by_length tf32 trust_remote_code
        load_best_model_at_end metric_for_best_model push_to_hub save_safetensors save_only_model
        overwrite_cache preprocessing_num_workers eval_accumulation_steps prediction_loss_only
        bf16_full_eval fp16_full_eval gradient_checkpointing_kwargs.use_reentrant
        gradient_checkpointing_kwargs bias task_type lora_alpha use_reentrant max_samples
        eval_on_start batch_eval_metrics bnb_4bit_quant_type bnb_4bit_compute_dtype device_map
        use_cache bnb_4bit_quant_storage modules_to_save train_batch_size fsdp_config
        fsdp_transformer_layer_cls_to_wrap ddp_bucket_cap_mb optim_args torch_empty_cache_steps
        auto_find_batch_size include_num_input_tokens_seen neftune_noise_alpha low_cpu_mem_usage
        label_names dataset_batch_size
        """
)

TABLE = Table(
    name="transformers",
    keys=(
        Key(
            "micro_batch",
            (
                "per_device_train_batch_size",
                "per_gpu_train_batch_size",
                "per_device_training_batch_size",
                "per_device_batch_size",
            ),
            INT,
        ),
        Key("grad_accum", ("gradient_accumulation_steps",), INT),
        Key("eval_micro_batch", ("per_device_eval_batch_size", "per_gpu_eval_batch_size"), INT),
        Key(
            "seq_len",
            (
                "max_length",
                "max_seq_length",
                "model_max_length",
                "cutoff_len",
                "block_size",
                "max_seq_len",
            ),
            INT,
        ),
        Key(
            "grad_ckpt",
            (
                "gradient_checkpointing",
                "activation_checkpointing",
                "use_gradient_checkpointing",
                "actor_gradient_checkpointing",
            ),
            GRAD_CKPT,
        ),
        Key("attention", ("attn_implementation", "attn_impl", "_attn_implementation"), ATTENTION),
        Key("param_dtype", ("torch_dtype", "dtype", "model_dtype"), DTYPE),
        Key("fused_ce", ("use_liger_kernel", "use_liger", "use_liger_loss"), FLAG),
        Key("packing", ("packing",), FLAG),
        Key("lora.r", ("lora_r", "lora_rank", "LoraConfig:r", "get_peft_model:r", "lora_dim", "actor_lora_dim"), INT),
        Key("lora.alpha", ("LoraConfig:lora_alpha", "get_peft_model:lora_alpha", "lora_alpha"), NUMBER),
        Key("lora.dropout", ("lora_dropout", "LoraConfig:lora_dropout"), NUMBER),
        Key(
            "lora.targets",
            (
                "target_modules",
                "lora_target_modules",
                "LoraConfig:target_modules",
                "get_peft_model:target_modules",
                "lora_module_name",
            ),
            TARGETS,
        ),
        Key("lora.dora", ("use_dora",), FLAG),
        Key("max_pixels", ("max_pixels", "image_max_pixels"), INT),
        Key("prompt_len", ("max_prompt_seq_len",), INT),
        Key("completion_len", ("max_answer_seq_len",), INT),
        Key("compile", ("torch_compile",), FLAG),
    ),
    groups=(
        Group(
            ("model",),
            ("model_name_or_path", "pretrained_model_name_or_path", "model_id", "model_name", "model_path"),
            _model_names,
            _write_model,
        ),
        Group(("optimizer", "optimizer_impl"), ("optim", "optimizer", "optim_type"), _read_optim, _write_optim),
        mixed_precision(),
        bnb(),
        sized_attention(),
        deepspeed_path(("deepspeed", "deepspeed_config")),
        Group(("sharding", "offload"), ("fsdp",), _read_fsdp, _write_fsdp),
        Group(("method",), ("use_peft", "use_lora", "q_lora"), _read_peft, _write_peft),
        Group(("sharding", "offload"), (*_STAGES, "offload"), _read_stage, _write_stage),
    ),
    neutral=_NEUTRAL,
    adds=words(
        """
        per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps gradient_checkpointing
        optim bf16 fp16 deepspeed fsdp torch_compile use_liger_kernel
        """
    ),
    commands=(
        r"\btransformers\b",
        r"\bTrainingArguments\(\)",
        r"\bAutoModelForCausalLM",
        r"\brun_(?:clm|mlm|glue|seq2seq)\w*\.py",
        r"\bTrainer\(\)",
    ),
    hints=words(
        """
        per_device_train_batch_size gradient_accumulation_steps gradient_checkpointing
        model_name_or_path output_dir optim bf16 per_device_eval_batch_size num_train_epochs
        lr_scheduler_type
        """
    ),
)
