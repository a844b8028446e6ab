"""LLaMA-Factory: YAML and ``llamafactory-cli`` flags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import FLAG, INT, MODEL, NUMBER, TARGETS, word
from oomdoc.intake.configs.table import DROP, Codec, Group, Key, Reading, Table, View, words
from oomdoc.intake.configs.tables.common import quant_word
from oomdoc.intake.configs.tables.megatron import TABLE as MEGATRON
from oomdoc.intake.configs.tables.transformers import TABLE as TRANSFORMERS
from oomdoc.intake.configs.values import flag, whole

__all__ = ["TABLE"]

_STAGES: Final = {"sft": "sft", "pt": "pretrain", "dpo": "dpo", "kto": "kto", "rm": "rm", "ppo": "ppo"}
_LOSSES: Final = {"orpo": "orpo", "simpo": "simpo"}
_FLASH: Final = {
    "fa2": "flash2",
    "flash_attention_2": "flash2",
    "true": "flash2",
    "sdpa": "sdpa",
    "disabled": "eager",
    "false": "sdpa",
    "eager": "eager",
    "fa3": "flash3",
    "off": "eager",
}


def _read_objective(view: View) -> Iterator[Reading]:
    stage = view.get("stage")
    if stage is None:
        return
    found = _STAGES.get(str(stage.value).lower())
    loss = view.get("pref_loss") or view.get("dpo_loss")
    if found == "dpo" and loss is not None and str(loss.value).lower() in _LOSSES:
        yield "objective", _LOSSES[str(loss.value).lower()], loss
    elif found:
        yield "objective", found, stage


def _write_objective(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    if value in _LOSSES:
        return {"stage": "dpo", "pref_loss": value}
    stage = {v: k for k, v in _STAGES.items()}.get(value)
    if stage is None:
        return None
    drop = {"pref_loss": "sigmoid"} if stage == "dpo" and str(view.value("pref_loss")) in _LOSSES else {}
    return {"stage": stage} | drop


def _read_quant(view: View) -> Iterator[Reading]:
    entry = view.get("quantization_bit")
    if entry is None:
        return
    double = view.get("double_quantization")
    doubled = flag(double.value) if double is not None else True
    found = quant_word(whole(entry.value), double=doubled, kind=str(view.value("quantization_type") or "nf4"))
    if found:
        yield "quant", found, entry


def _write_quant(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    if value == "none":
        return {"quantization_bit": DROP} if "quantization_bit" in view else {}
    bits = {"nf4": 4, "nf4-double": 4, "int8": 8}.get(value)
    if bits is None:
        return None
    out: dict[str, Any] = {"quantization_bit": bits}
    if value == "nf4" and flag(view.value("double_quantization")) is not False:
        out["double_quantization"] = False
    if value == "nf4-double" and flag(view.value("double_quantization")) is False:
        out["double_quantization"] = True
    return out


def _read_method(view: View) -> Iterator[Reading]:
    kind = view.get("finetuning_type")
    for name, method in (("use_badam", "badam"), ("use_galore", "galore"), ("use_apollo", "apollo")):
        entry = view.get(name)
        if entry is not None and flag(entry.value):
            yield "method", method, entry
            return
    if kind is None:
        return
    value = str(kind.value).lower()
    if value == "lora" and whole(view.value("quantization_bit")) in (2, 3, 4, 5, 6, 8):
        yield "method", "qlora", kind
    elif value in ("lora", "full", "freeze", "oft"):
        yield "method", value, kind


def _write_method(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    drop = {"quantization_bit": DROP} if "quantization_bit" in view else {}
    if value == "qlora":
        return {"finetuning_type": "lora", "quantization_bit": whole(view.value("quantization_bit")) or 4}
    if value in ("lora", "full", "freeze", "oft"):
        return {"finetuning_type": value} | drop
    if value in ("galore", "apollo", "badam"):
        return {"finetuning_type": "full", f"use_{value}": True}
    return None


def _read_ckpt(view: View) -> Iterator[Reading]:
    off, unsloth = view.get("disable_gradient_checkpointing"), view.get("use_unsloth_gc")
    if off is not None and flag(off.value) is not None:
        yield "grad_ckpt", not flag(off.value), off
    elif unsloth is not None and flag(unsloth.value):
        yield "grad_ckpt", "offload", unsloth


def _write_ckpt(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    if value == "offload":
        drop = {"disable_gradient_checkpointing": False} if "disable_gradient_checkpointing" in view else {}
        return {"use_unsloth_gc": True} | drop
    if value is True and "disable_gradient_checkpointing" not in view:
        return (
            {"use_unsloth_gc": False}
            if flag(view.value("use_unsloth_gc"))
            else {"disable_gradient_checkpointing": False}
        )
    if isinstance(value, bool):
        return {"disable_gradient_checkpointing": not value}
    return None


def _read_pure(view: View) -> Iterator[Reading]:
    entry = view.get("pure_bf16")
    if entry is not None and flag(entry.value):
        yield "param_dtype", "bf16", entry
        yield "autocast", "none", entry


def _write_pure(view: View, field: str, value: Any) -> dict[str, Any] | None:
    if field == "param_dtype" and value == "bf16":
        return {"pure_bf16": True}
    return {"pure_bf16": False} if "pure_bf16" in view and field == "param_dtype" else None


def _write_targets(value: Any, old: Any) -> Any:
    if value == "all-linear":
        return "all"
    names = [value] if isinstance(value, str) else list(value)
    return names if isinstance(old, list) else ",".join(names)


TABLE = Table(
    name="llama-factory",
    bases=(TRANSFORMERS, MEGATRON),
    ignores=words("gradient_checkpointing"),
    sections=("peft_config.", "kernel_config.", "dist_config.", "quant_config.", "init_config."),
    keys=(
        Key("model", ("model_name_or_path", "model"), MODEL),
        Key("micro_batch", ("per_device_train_batch_size", "micro_batch_size"), INT),
        Key("seq_len", ("cutoff_len", "cutoff_length"), INT),
        Key("attention", ("flash_attn",), word(_FLASH)),
        Key("fused_ce", ("enable_liger_kernel",), FLAG),
        Key("lora.r", ("lora_rank",), INT),
        Key("lora.targets", ("lora_target",), Codec(TARGETS.read, _write_targets)),
        Key("lora.alpha", ("lora_alpha",), NUMBER),
        Key("lora.dora", ("use_dora",), FLAG),
        Key("packing", ("packing", "neat_packing"), FLAG),
        Key("max_pixels", ("image_max_pixels", "image_resolution"), INT),
        Key("completion_len", ("max_new_tokens",), INT),
    ),
    groups=(
        Group(("objective",), ("stage", "pref_loss", "dpo_loss"), _read_objective, _write_objective),
        Group(("method",), ("finetuning_type", "use_badam", "use_galore", "use_apollo"), _read_method, _write_method),
        Group(("quant",), ("quantization_bit", "double_quantization", "quantization_type"), _read_quant, _write_quant),
        Group(("grad_ckpt",), ("disable_gradient_checkpointing", "use_unsloth_gc"), _read_ckpt, _write_ckpt),
        Group(("param_dtype", "autocast"), ("pure_bf16",), _read_pure, _write_pure),
    ),
    neutral=words(
        """
        template dataset dataset_dir eval_dataset val_size lora_target pref_beta pref_ftx plot_loss
        infer_backend upcast_layernorm adapter_name_or_path export_dir export_size export_device
        export_legacy_format quantization_method upcast_lmhead_output freeze_trainable_layers
        freeze_trainable_modules freeze_vision_tower ref_model reward_model reward_model_type
        streaming compute_accuracy predict_with_generate do_sample quantization_device_map
        rope_scaling shift_attn resize_vocab use_unsloth create_new_adapter loraplus_lr_ratio
        use_reentrant_gc video_max_pixels badam_mode badam_switch_mode badam_switch_interval
        badam_verbose galore_layerwise galore_target galore_rank galore_scale apollo_layerwise
        apollo_target apollo_rank apollo_scale mixture_of_depths ref_model_quantization_bit
        ppo_score_norm vllm_enforce_eager vllm_maxlen enable_thinking pissa_init pissa_iter
        pissa_convert ray_run_name ray_storage_path ray_num_workers resources_per_worker
        placement_strategy flash_attn tool_format media_dir mix_strategy use_adam_mini use_muon
        packing train_on_prompt mask_history model_class kernel_config dist_config quant_config peft_config
        train_dataset sample_backend batching_strategy
        """
    ),
    commands=(r"\bllamafactory-cli\b", r"\btrain_bash\.py\b", r"\bllamafactory\b", r"\blmf\b", r"LLaMA-Factory"),
    marks=words(
        """
        cutoff_len finetuning_type lora_target dataset_dir neat_packing pref_loss pure_bf16
        enable_liger_kernel use_unsloth_gc disable_gradient_checkpointing upcast_layernorm
        infer_backend quantization_bit model_class dist_config.name kernel_config.name
        """
    ),
    hints=words(
        """
        stage template flash_attn lora_rank quantization_method do_train export_dir
        """
    )
    | TRANSFORMERS.hints,
)
