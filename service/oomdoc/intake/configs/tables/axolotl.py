"""axolotl YAML: keys from its schema (up to 0.18), with the old spellings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import FLAG, INT, MODEL, NUMBER, TARGETS, word
from oomdoc.intake.configs.table import DROP, Group, Key, Reading, Table, View, words
from oomdoc.intake.configs.tables.transformers import TABLE as TRANSFORMERS
from oomdoc.intake.configs.values import flag

__all__ = ["TABLE"]

_ATTENTION: Final = (
    ("flash_attention", "flash2"),
    ("sdp_attention", "sdpa"),
    ("xformers_attention", "xformers"),
    ("eager_attention", "eager"),
    ("flex_attention", "flex"),
)
_PLUGINS: Final = (
    "liger_fused_linear_cross_entropy",
    "cut_cross_entropy",
    "chunked_cross_entropy",
    "unsloth_cross_entropy_loss",
)
_RL: Final = {
    "dpo": "dpo",
    "ipo": "dpo",
    "orpo": "orpo",
    "kto": "kto",
    "kto_pair": "kto",
    "simpo": "simpo",
    "grpo": "grpo",
    "gdpo": "grpo",
}


def _read_method(view: View) -> Iterator[Reading]:
    entry = view.get("adapter")
    if entry is None:
        return
    value = str(entry.value).lower()
    if value in ("lora", "qlora"):
        yield "method", value, entry
    elif value in ("none", ""):
        yield "method", "full", entry


def _write_method(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    if value in ("lora", "qlora"):
        out: dict[str, Any] = {"adapter": value}
        if value == "qlora":
            out["load_in_4bit"] = True
            if flag(view.value("load_in_8bit")):
                out["load_in_8bit"] = False
        elif flag(view.value("load_in_4bit")):
            out["load_in_4bit"] = False
        return out
    if value == "full":
        return {n: DROP if n == "adapter" else False for n in ("adapter", "load_in_4bit", "load_in_8bit") if n in view}
    return None


def _read_attention(view: View) -> Iterator[Reading]:
    for name, value in _ATTENTION:
        entry = view.get(name)
        if entry is not None and flag(entry.value):
            yield "attention", value, entry
            return


def _write_attention(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    wanted = next((n for n, v in _ATTENTION if v == value), None)
    if wanted is None or ("attn_implementation" in view and not any(n in view for n, _ in _ATTENTION)):
        return None
    return {wanted: True} | {n: False for n, _ in _ATTENTION if n in view and n != wanted and flag(view[n].value)}


def _read_ce(view: View) -> Iterator[Reading]:
    for name in _PLUGINS:
        entry = view.get(name)
        if entry is not None and flag(entry.value) is not None:
            yield "fused_ce", flag(entry.value), entry
            return
    plugins = view.get("plugins")
    if plugins is not None and "cut_cross_entropy" in str(plugins.value):
        yield "fused_ce", True, plugins


def _write_ce(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    name = view.first(*_PLUGINS)
    if name:
        return {name: bool(value)}
    return {"chunked_cross_entropy": True} if value else None


def _read_rl(view: View) -> Iterator[Reading]:
    entry = view.get("rl")
    if entry is not None and str(entry.value).lower() in _RL:
        yield "objective", _RL[str(entry.value).lower()], entry


def _write_rl(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    return {"rl": value} if value in _RL.values() else {"rl": DROP} if value == "sft" and "rl" in view else None


def _read_targets(view: View) -> Iterator[Reading]:
    entry = view.get("lora_target_linear")
    if entry is not None and flag(entry.value):
        yield "lora.targets", "all-linear", entry


def _write_targets(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    return {"lora_target_linear": True} if value == "all-linear" else None


def _read_fsdp(view: View) -> Iterator[Reading]:
    block = view.get("fsdp_config") or view.get("fsdp")
    items = view.get("fsdp")
    if block is None or (items is not None and not items.value and "fsdp_config" not in view):
        return
    version = view.value("fsdp_version", "fsdp_config.fsdp_version")
    if block.value is not None or any(n.startswith("fsdp_config.") for n in view):
        yield "sharding", "fsdp2" if str(version) == "2" else "fsdp", block
    offload = view.get("fsdp_config.fsdp_offload_params") or view.get("fsdp_config.offload_params")
    if offload is not None and flag(offload.value):
        yield "offload", ["param", "optimizer"], offload


def _write_fsdp(view: View, field: str, value: Any) -> dict[str, Any] | None:
    name = view.first("fsdp_config.fsdp_offload_params", "fsdp_config.offload_params")
    if field == "offload" and name:
        return {name: "param" in value}
    return None


def _read_offload(view: View) -> Iterator[Reading]:
    entry = view.get("activation_offloading")
    if entry is not None and (flag(entry.value) or str(entry.value) in ("legacy", "disk", "hidden_states")):
        yield "offload", ["activations"], entry


def _write_offload(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    return {"activation_offloading": bool(value)} if set(value) <= {"activations"} else None


def _read_gc(view: View) -> Iterator[Reading]:
    entry = view.get("gradient_checkpointing")
    if entry is not None and str(entry.value) in ("offload", "offload_disk", "unsloth"):
        yield "grad_ckpt", "offload", entry


TABLE = Table(
    name="axolotl",
    bases=(TRANSFORMERS,),
    keys=(
        Key("model", ("base_model",), MODEL),
        Key("micro_batch", ("micro_batch_size",), INT),
        Key("eval_micro_batch", ("eval_batch_size",), INT),
        Key("seq_len", ("sequence_len",), INT),
        Key("packing", ("sample_packing",), FLAG),
        Key("lora.r", ("lora_r",), INT),
        Key("lora.alpha", ("lora_alpha",), NUMBER),
        Key("lora.dropout", ("lora_dropout",), NUMBER),
        Key("lora.targets", ("lora_target_modules",), TARGETS),
        Key("lora.dora", ("peft_use_dora",), FLAG),
        Key(
            "attention",
            ("attn_implementation",),
            word(
                {
                    "flash_attention_2": "flash2",
                    "flash_attention": "flash2",
                    "sdpa": "sdpa",
                    "eager": "eager",
                    "flex_attention": "flex",
                    "flash_attention_3": "flash3",
                    "xformers": "xformers",
                    "kernels-community/vllm-flash-attn3": "flash3",
                    "kernels-community/flash-attn3": "flash3",
                }
            ),
        ),
        Key("sp", ("sequence_parallel_degree",), INT),
        Key("cp", ("context_parallel_size",), INT),
        Key("tp", ("tensor_parallel_size",), INT),
        Key("generations", ("trl.num_generations",), INT),
        Key("completion_len", ("trl.max_completion_length",), INT),
        Key(
            "rollout.gpu_memory_utilization", ("vllm.gpu_memory_utilization", "trl.vllm_gpu_memory_utilization"), NUMBER
        ),
    ),
    groups=(
        Group(("method",), ("adapter",), _read_method, _write_method),
        Group(("attention",), tuple(n for n, _ in _ATTENTION), _read_attention, _write_attention),
        Group(("fused_ce",), (*_PLUGINS, "plugins"), _read_ce, _write_ce),
        Group(("objective",), ("rl",), _read_rl, _write_rl),
        Group(("lora.targets",), ("lora_target_linear",), _read_targets, _write_targets),
        Group(
            ("sharding", "offload"),
            (
                "fsdp",
                "fsdp_config",
                "fsdp_version",
                "fsdp_config.fsdp_offload_params",
                "fsdp_config.offload_params",
                "fsdp_config.fsdp_version",
            ),
            _read_fsdp,
            _write_fsdp,
        ),
        Group(("offload",), ("activation_offloading",), _read_offload, _write_offload),
        Group(("grad_ckpt",), (), _read_gc, lambda v, f, x: None),
    ),
    neutral=words(
        """
        datasets type val_set_size num_epochs lr_scheduler pad_to_sequence_len wandb_project
        wandb_entity wandb_watch wandb_name eval_sample_packing flash_attn_cross_entropy
        flash_attn_rms_norm flash_attn_fuse_mlp flash_attn_fuse_qkv special_tokens model_type
        tokenizer_type is_llama_derived_model load_in_16bit lora_fan_in_fan_out lora_modules_to_save
        train_on_inputs saves_per_epoch evals_per_epoch dataset_prepared_path sample_packing_eff_est
        eval_table_size eval_max_new_tokens liger_rope liger_rms_norm liger_glu_activation
        liger_layer_norm liger_swiglu lora_mlp_kernel lora_qkv_kernel lora_o_kernel
        shuffle_merged_datasets unfrozen_parameters lora_model_dir local_rank s2_attention strict
        early_stopping_patience fsdp_config.fsdp_sharding_strategy fsdp_config.fsdp_state_dict_type
        fsdp_config.fsdp_auto_wrap_policy fsdp_config.fsdp_limit_all_gathers
        fsdp_config.fsdp_sync_module_states fsdp_config.fsdp_use_orig_params
        fsdp_config.fsdp_transformer_layer_cls_to_wrap fsdp_config.fsdp_cpu_ram_efficient_loading
        fsdp_config.activation_checkpointing fsdp_config.reshard_after_forward
        fsdp_config.state_dict_type fsdp_config.auto_wrap_policy fsdp_config.sharding_strategy
        fsdp_config.transformer_layer_cls_to_wrap fsdp_config.cpu_ram_efficient_loading
        fsdp_config.fsdp_reshard_after_forward fsdp_config.fsdp_activation_checkpointing
        fsdp_config.fsdp_backward_prefetch_policy fsdp_final_state_dict_type
        fsdp_config.fsdp_backward_prefetch qat qat.weight_dtype qat.activation_dtype qat.group_size
        torch_compile torch_compile_backend multipack_real_batches batch_flattening group_by_length
        fp8 fp8_enable_fsdp_float8_all_gather ring_attn_func heads_k_stride dataset_processes
        batch_size
        """
    ),
    commands=(r"\baxolotl\b",),
    marks=words(
        """
        base_model sequence_len sample_packing pad_to_sequence_len lora_target_linear val_set_size
        dataset_prepared_path flash_attention is_llama_derived_model datasets[].type saves_per_epoch
        """
    ),
    hints=words("micro_batch_size adapter datasets num_epochs special_tokens lora_r") | TRANSFORMERS.hints,
)
