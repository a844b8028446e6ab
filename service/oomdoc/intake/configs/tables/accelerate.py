"""accelerate: its YAML, ``accelerate launch`` flags and FSDP's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import FLAG, INT
from oomdoc.intake.configs.shards import stage_and_offload
from oomdoc.intake.configs.table import Group, Key, Reading, Table, View, words
from oomdoc.intake.configs.tables.common import zero_word
from oomdoc.intake.configs.values import flag, whole

__all__ = ["TABLE"]

_STRATEGY: Final = {
    "1": "fsdp",
    "full_shard": "fsdp",
    "2": "shard-grad-op",
    "shard_grad_op": "shard-grad-op",
    "4": "hsdp",
    "hybrid_shard": "hsdp",
    "3": "ddp",
    "no_shard": "ddp",
}
_DS: Final = "deepspeed_config."
_FS: Final = "fsdp_config."


def _name(view: View, *names: str) -> str | None:
    return view.first(*(p + n for n in names for p in (_DS, _FS, "")))


def _read_sharding(view: View) -> Iterator[Reading]:
    kind = view.get("distributed_type")
    word = str(kind.value).upper() if kind is not None else ""
    stage = _name(view, "zero_stage")
    file = _name(view, "deepspeed_config_file")
    fsdp = _name(view, "fsdp_sharding_strategy")
    version = _name(view, "fsdp_version")
    if word == "DEEPSPEED" or stage or file or flag(view.value("use_deepspeed")):
        if stage and whole(view[stage].value) is not None:
            yield "sharding", zero_word(whole(view[stage].value)), view[stage]
        elif file and isinstance(view[file].value, str):
            found, offload = stage_and_offload(view[file].value)
            if found is not None:
                yield "sharding", zero_word(found), view[file]
            if offload:
                yield "offload", list(offload), view[file]
        elif kind is not None:
            yield "sharding", "zero2", kind
    elif word == "FSDP" or fsdp or flag(view.value("use_fsdp")):
        entry = view[version] if version else view[fsdp] if fsdp else kind if kind is not None else view["use_fsdp"]
        if version and whole(view[version].value) == 2:
            yield "sharding", "fsdp2", entry
        elif fsdp:
            yield "sharding", _STRATEGY.get(str(view[fsdp].value).lower(), "fsdp"), view[fsdp]
        else:
            yield "sharding", "fsdp", entry
    elif word == "MULTI_GPU" and kind is not None:
        yield "sharding", "ddp", kind
    elif word == "NO" and kind is not None:
        yield "sharding", "none", kind


def _write_sharding(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    stage = _name(view, "zero_stage")
    yaml = view.form == "yaml"
    word = str(value)
    if word.startswith("zero"):
        if stage:
            return {stage: int(word[-1])}
        file = _name(view, "deepspeed_config_file")
        if file:
            return None
        return (
            {"distributed_type": "DEEPSPEED", _DS + "zero_stage": int(word[-1])}
            if yaml
            else {"use_deepspeed": True, "zero_stage": int(word[-1])}
        )
    if word in ("fsdp", "hsdp", "shard-grad-op"):
        name = _name(view, "fsdp_sharding_strategy") or (
            _FS + "fsdp_sharding_strategy" if yaml else "fsdp_sharding_strategy"
        )
        spelled = {"fsdp": "FULL_SHARD", "hsdp": "HYBRID_SHARD", "shard-grad-op": "SHARD_GRAD_OP"}[word]
        old = view.value(name)
        strategy: Any = (
            {"FULL_SHARD": 1, "SHARD_GRAD_OP": 2, "HYBRID_SHARD": 4}[spelled] if isinstance(old, int) else spelled
        )
        return {name: strategy} | (
            {"distributed_type": "FSDP"} if yaml and str(view.value("distributed_type")) != "FSDP" else {}
        )
    if word == "fsdp2":
        name = _name(view, "fsdp_version") or (_FS + "fsdp_version" if yaml else "fsdp_version")
        return {name: 2} | (
            {"distributed_type": "FSDP"} if yaml and str(view.value("distributed_type")) != "FSDP" else {}
        )
    if word == "ddp" and yaml:
        return {"distributed_type": "MULTI_GPU"}
    return None


def _read_offload(view: View) -> Iterator[Reading]:
    parts, where = [], None
    for part in ("optimizer", "param"):
        name = _name(view, f"offload_{part}_device")
        if name and str(view[name].value).lower() in ("cpu", "nvme"):
            parts.append(part)
            where = view[name]
    name = _name(view, "fsdp_offload_params")
    if name and flag(view[name].value):
        parts, where = ["param", "optimizer"], view[name]
    if where is not None:
        yield "offload", parts, where


def _write_offload(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    fsdp = _name(view, "fsdp_offload_params")
    if fsdp or (_name(view, "fsdp_sharding_strategy", "fsdp_version") and not _name(view, "zero_stage")):
        return {fsdp or _FS + "fsdp_offload_params": "param" in value}
    out: dict[str, Any] = {}
    for part in ("optimizer", "param"):
        name = _name(view, f"offload_{part}_device")
        if part in value:
            out[name or (f"{_DS}offload_{part}_device" if view.form == "yaml" else f"offload_{part}_device")] = "cpu"
        elif name:
            out[name] = "none"
    return out


def _read_precision(view: View) -> Iterator[Reading]:
    entry = view.get("mixed_precision")
    if entry is not None:
        word = str(entry.value).lower()
        yield "autocast", {"bf16": "bf16", "fp16": "fp16", "no": "none", "false": "none", "fp8": "fp8"}.get(word), entry


def _write_precision(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    return {"mixed_precision": "no" if value == "none" else value} if value in ("bf16", "fp16", "none", "fp8") else None


def _read_ckpt(view: View) -> Iterator[Reading]:
    name = _name(view, "fsdp_activation_checkpointing", "activation_checkpointing")
    if name and flag(view[name].value) is not None:
        yield "grad_ckpt", flag(view[name].value), view[name]


def _write_ckpt(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    name = _name(view, "fsdp_activation_checkpointing", "activation_checkpointing")
    if name:
        return {name: bool(value)}
    fsdp = _name(view, "fsdp_sharding_strategy", "fsdp_version")
    return {(_FS if view.form == "yaml" else "") + "fsdp_activation_checkpointing": bool(value)} if fsdp else None


def _read_reshard(view: View) -> Iterator[Reading]:
    name = _name(view, "fsdp_reshard_after_forward")
    if name and flag(view[name].value) is not None:
        yield "reshard_after_forward", flag(view[name].value), view[name]


def _write_reshard(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    name = _name(view, "fsdp_reshard_after_forward") or _FS + "fsdp_reshard_after_forward"
    return {name: bool(value)}


_NESTED: Final = tuple(
    p + n
    for p in (_DS, _FS, "")
    for n in (
        "zero_stage",
        "deepspeed_config_file",
        "offload_optimizer_device",
        "offload_param_device",
        "fsdp_sharding_strategy",
        "fsdp_version",
        "fsdp_offload_params",
        "fsdp_activation_checkpointing",
        "fsdp_reshard_after_forward",
    )
)

TABLE = Table(
    name="accelerate",
    keys=(
        Key("world", ("num_processes",), INT),
        Key("nodes", ("num_machines",), INT),
        Key("grad_accum", (_DS + "gradient_accumulation_steps", "gradient_accumulation_steps"), INT),
        Key("compile", ("dynamo_config.dynamo_backend",), FLAG),
        Key("tp", ("parallelism_config.parallelism_config_tp_size", "megatron_lm_config.megatron_lm_tp_degree"), INT),
        Key("cp", ("parallelism_config.parallelism_config_cp_size",), INT),
    ),
    groups=(
        Group(
            ("sharding",), ("distributed_type", "use_fsdp", "use_deepspeed", *_NESTED), _read_sharding, _write_sharding
        ),
        Group(("offload",), _NESTED, _read_offload, _write_offload),
        Group(("autocast",), ("mixed_precision",), _read_precision, _write_precision),
        Group(("grad_ckpt",), _NESTED, _read_ckpt, _write_ckpt),
        Group(("reshard_after_forward",), _NESTED, _read_reshard, _write_reshard),
    ),
    neutral=words(
        """
        compute_environment debug downcast_bf16 machine_rank main_training_function rdzv_backend
        same_network tpu_env tpu_use_cluster tpu_use_sudo use_cpu gpu_ids enable_cpu_affinity
        main_process_ip main_process_port deepspeed_config fsdp_config
        deepspeed_config.zero3_init_flag deepspeed_config.zero3_save_16bit_model
        deepspeed_config.deepspeed_multinode_launcher deepspeed_config.gradient_clipping
        fsdp_config.fsdp_auto_wrap_policy fsdp_config.fsdp_backward_prefetch
        fsdp_config.fsdp_backward_prefetch_policy fsdp_config.fsdp_cpu_ram_efficient_loading
        fsdp_config.fsdp_forward_prefetch fsdp_config.fsdp_state_dict_type
        fsdp_config.fsdp_sync_module_states fsdp_config.fsdp_use_orig_params dynamo_config
        fsdp_config.fsdp_transformer_layer_cls_to_wrap zero3_init_flag zero3_save_16bit_model
        fsdp_auto_wrap_policy fsdp_backward_prefetch fsdp_state_dict_type
        fsdp_transformer_layer_cls_to_wrap multi_gpu parallelism_config
        deepspeed_config.deepspeed_moe_layer_cls_names fsdp_config.fsdp_min_num_params command_file
        commands megatron_lm_config parallelism_config.parallelism_config_dp_replicate_size
        parallelism_config.parallelism_config_dp_shard_size
        parallelism_config.parallelism_config_cp_comm_strategy
        """
    ),
    marks=words(
        """
        compute_environment distributed_type main_training_function downcast_bf16 rdzv_backend
        fsdp_config.fsdp_auto_wrap_policy deepspeed_config.zero3_init_flag same_network
        tpu_use_cluster
        """
    ),
    hints=words("mixed_precision num_processes num_machines"),
)
