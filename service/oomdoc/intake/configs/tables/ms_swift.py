"""ms-swift: ``swift sft|pt|rlhf|...`` and ``megatron sft`` flags, 2.x to 4.x."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import ATTENTION, DTYPE, FLAG, FRACTION, GRAD_CKPT, INT, MODEL, NUMBER, TARGETS
from oomdoc.intake.configs.table import DROP, Codec, Group, Key, Reading, Table, View, words
from oomdoc.intake.configs.tables.common import quant_word
from oomdoc.intake.configs.tables.megatron import TABLE as MEGATRON
from oomdoc.intake.configs.tables.transformers import TABLE as TRANSFORMERS
from oomdoc.intake.configs.values import flag, whole

__all__ = ["TABLE"]

_TYPES: Final = ("tuner_type", "train_type", "sft_type")
_BITS: Final = ("quant_bits", "quantization_bit")
_RLHF: Final = {
    "dpo": "dpo",
    "orpo": "orpo",
    "simpo": "simpo",
    "kto": "kto",
    "cpo": "simpo",
    "rm": "rm",
    "ppo": "ppo",
    "grpo": "grpo",
    "gkd": "distill",
}


def _read_objective(view: View) -> Iterator[Reading]:
    kind = view.get("rlhf_type")
    if kind is not None and str(kind.value).lower() in _RLHF:
        yield "objective", _RLHF[str(kind.value).lower()], kind
        return
    for name in ("@0", "@1"):
        entry = view.get(name)
        found = {"sft": "sft", "pt": "pretrain", "rlhf": "dpo", "infer": "inference", "deploy": "inference"}.get(
            str(entry.value) if entry is not None else ""
        )
        if entry is not None and found:
            yield "objective", found, entry
            return


def _write_objective(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    back = {v: k for k, v in _RLHF.items() if k != "cpo"}
    return {"rlhf_type": back[value]} if "rlhf_type" in view and value in back else None


def _read_method(view: View) -> Iterator[Reading]:
    name = view.first(*_TYPES)
    if name is None:
        return
    value = str(view[name].value).lower()
    bits = whole(view.value(*_BITS))
    if value in ("lora", "qlora", "longlora", "adalora", "dora", "rslora"):
        yield "method", "qlora" if bits in (4, 8) or value == "qlora" else "lora", view[name]
    elif value in ("full", "freeze"):
        yield "method", value, view[name]


def _write_method(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    name = view.first(*_TYPES) or "train_type"
    bits = view.first(*_BITS)
    if value == "qlora":
        extra = {} if bits else {"quant_method": "bnb"}
        return {name: "lora", bits or "quant_bits": whole(view.value(*_BITS)) or 4} | extra
    if value in ("lora", "full"):
        drops = {n: DROP for n in (*_BITS, "quant_method") if n in view}
        return {name: value} | drops
    return None


def _read_quant(view: View) -> Iterator[Reading]:
    name = view.first(*_BITS)
    if name is None:
        return
    double = flag(view.value("bnb_4bit_use_double_quant"))
    found = quant_word(whole(view[name].value), double=double is not False)
    if found:
        yield "quant", found, view[name]


def _write_quant(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    name = view.first(*_BITS) or "quant_bits"
    bits = {"nf4": 4, "nf4-double": 4, "int8": 8}.get(value)
    if value == "none":
        return {n: DROP for n in (*_BITS, "quant_method") if n in view}
    if bits is None:
        return None
    extra: dict[str, Any] = {} if "quant_method" in view or name == "quantization_bit" else {"quant_method": "bnb"}
    if value == "nf4" and flag(view.value("bnb_4bit_use_double_quant")) is not False:
        extra["bnb_4bit_use_double_quant"] = False
    if value == "nf4-double" and flag(view.value("bnb_4bit_use_double_quant")) is False:
        extra["bnb_4bit_use_double_quant"] = True
    return {name: bits} | extra


def _read_rollout(view: View) -> Iterator[Reading]:
    use, mode, sleep = view.get("use_vllm"), view.get("vllm_mode"), view.get("sleep_level")
    on = flag(use.value) if use is not None else None
    if use is not None and on is False:
        yield "rollout.colocated", False, use  # no engine at all, whatever its mode is set to
    elif use is not None and on:
        yield "rollout.engine", "vllm", use
    if mode is not None and on is not False:
        yield "rollout.colocated", str(mode.value).lower() == "colocate", mode
    if sleep is not None and whole(sleep.value) is not None:
        yield "rollout.sleep", (whole(sleep.value) or 0) > 0, sleep


def _write_rollout(view: View, field: str, value: Any) -> dict[str, Any] | None:
    if field == "rollout.sleep":
        return {"sleep_level": 1 if value else 0}
    if field == "rollout.colocated":
        return {"vllm_mode": "colocate" if value else "server"}
    return None


def _write_attention(value: Any, old: Any) -> Any:
    if value == "flash2" and "attention_2" not in str(old):
        return "flash_attn"
    return ATTENTION.write(value, old)


TABLE = Table(
    name="ms-swift",
    bases=(TRANSFORMERS, MEGATRON),
    keys=(
        Key("model", ("model", "model_id_or_path", "model_type", "load"), MODEL),
        Key("micro_batch", ("per_device_train_batch_size", "batch_size", "micro_batch_size"), INT),
        Key("eval_micro_batch", ("per_device_eval_batch_size", "eval_batch_size"), INT),
        Key("seq_len", ("max_length",), INT),
        Key("grad_ckpt", ("gradient_checkpointing",), GRAD_CKPT),
        Key("attention", ("attn_impl", "attention_backend"), Codec(ATTENTION.read, _write_attention)),
        Key("param_dtype", ("torch_dtype", "dtype"), DTYPE),
        Key("lora.r", ("lora_rank",), INT),
        Key("lora.targets", ("target_modules", "lora_target_modules"), TARGETS),
        Key("lora.alpha", ("lora_alpha",), NUMBER),
        Key("lora.dropout", ("lora_dropout", "lora_dropout_p"), NUMBER),
        Key("packing", ("packing", "padding_free"), FLAG),
        Key("sp", ("sequence_parallel_size",), INT),
        Key("max_pixels", ("max_pixels",), INT),
        Key("generations", ("num_generations",), INT),
        Key("completion_len", ("max_completion_length",), INT),
        Key("rollout.gpu_memory_utilization", ("vllm_gpu_memory_utilization",), FRACTION),
        Key("rollout.tensor_parallel", ("vllm_tensor_parallel_size",), INT),
    ),
    groups=(
        Group(("objective",), ("rlhf_type",), _read_objective, _write_objective),
        Group(("method",), _TYPES, _read_method, _write_method),
        Group(("quant",), (*_BITS, "quant_method", "bnb_4bit_use_double_quant"), _read_quant, _write_quant),
        Group(
            ("rollout.engine", "rollout.colocated", "rollout.sleep"),
            ("use_vllm", "vllm_mode", "sleep_level"),
            _read_rollout,
            _write_rollout,
        ),
    ),
    neutral=words(
        """
        rlhf_type external_plugins split_dataset_ratio load_from_cache_file multi_turn_scheduler gym_env use_gym_env
        max_turns steps_per_generation vllm_max_model_len enable_thinking temperature top_p top_k epsilon epsilon_high
        loss_type importance_sampling_level dynamic_sample overlong_filter log_completions colocate_groups
        advantage_estimator log_rollout_offpolicy_metrics sleep_level beta
        gradient_accumulation_fusion offload_model offload_optimizer
        dataset val_dataset system split_dataset_ratio truncation_strategy model_author model_name
        dataset_num_proc tuner_backend freeze_vit freeze_aligner freeze_llm use_hf lazy_tokenize
        reward_funcs temperature beta log_completions adapters resume_only_model vllm_max_model_len
        vllm_limit_mm_per_prompt offload_model offload_optimizer move_model_batches infer_backend
        vllm_server_host vllm_server_port vllm_enforce_eager external_plugins loss_scale loss_type
        use_logits_to_keep vit_gradient_checkpointing reward_model reward_model_plugin teacher_model
        check_model acc_strategy template_type num_labels ref_model deepspeed_autotp_size
        init_weights vit_lr aligner_lr dataset_shuffle strict create_checkpoint_symlink
        use_chat_template max_new_tokens stream merge_lora temperature top_p top_k num_iterations
        steps_per_generation generation_batch_size vllm_max_num_seqs packing_length
        vllm_max_lora_rank vllm_enable_lora max_batch_size vllm_data_parallel_size lora_dtype
        bnb_4bit_compute_dtype eval_num_samples calibration swanlab offload_teacher_model
        offload_bridge
        """
    ),
    commands=(
        r"\bswift\s+(?:sft|pt|rlhf|infer|deploy|export|rollout|eval|app|sample|merge-lora|web-ui)\b",
        r"\bmegatron\s+(?:sft|pt|rlhf|export)\b",
        r"\bswift[./]cli[./]",
        r"\bswift\.llm\b",
        r"\bms-swift\b",
        r"(?:^| )llm_(?:sft|rlhf)\.py",
    ),
    marks=words(
        """
        tuner_type train_type sft_type tuner_backend rlhf_type split_dataset_ratio
        vit_gradient_checkpointing model_id_or_path truncation_strategy
        """
    ),
    hints=frozenset(["quant_bits", "torch_dtype", "attn_impl", "max_length", "model", "lora_rank"])
    | TRANSFORMERS.hints,
)
