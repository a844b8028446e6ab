"""DeepSpeed's JSON configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import INT, word
from oomdoc.intake.configs.table import Codec, Group, Key, Reading, Table, View, words
from oomdoc.intake.configs.tables.common import zero_word
from oomdoc.intake.configs.values import flag, number, whole

__all__ = ["BUCKETS", "TABLE"]

_ZERO: Final = "zero_optimization."
BUCKETS: Final = (
    "reduce_bucket_size",
    "allgather_bucket_size",
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "sub_group_size",
    "stage3_model_persistence_threshold",
)
_ALIASES: Final = {
    "stage3_prefetch_bucket_size": "prefetch_bucket_size",
    "stage3_param_persistence_threshold": "param_persistence_threshold",
    "stage3_max_live_parameters": "max_live_parameters",
    "stage3_max_reuse_distance": "max_reuse_distance",
}


def _read_zero(view: View) -> Iterator[Reading]:
    entry = view.get(_ZERO + "stage")
    if entry is not None and whole(entry.value) is not None:
        yield "sharding", zero_word(whole(entry.value)), entry
    offload, where = [], None
    for part in ("optimizer", "param"):
        device = view.get(f"{_ZERO}offload_{part}.device")
        whole_block = view.get(f"{_ZERO}offload_{part}")
        old = view.get(_ZERO + ("cpu_offload" if part == "optimizer" else "cpu_offload_params"))
        if device is not None and str(device.value).lower() in ("cpu", "nvme"):
            offload.append(part)
            where = device
        elif (whole_block is not None and flag(whole_block.value)) or (old is not None and flag(old.value)):
            offload.append(part)
            where = whole_block if old is None else old
        if device is not None and str(device.value).lower() == "nvme":
            yield "nvme_offload", True, device
    if where is not None:
        yield "offload", offload, where


def _write_zero(view: View, field: str, value: Any) -> dict[str, Any] | None:
    if field == "sharding":
        if value in ("none", "ddp"):
            return {_ZERO + "stage": 0}
        return {_ZERO + "stage": int(str(value)[-1])} if str(value).startswith("zero") else None
    out: dict[str, Any] = {}
    for part in ("optimizer", "param"):
        device = f"{_ZERO}offload_{part}.device"
        if part in value:
            out[device if device in view or f"{_ZERO}offload_{part}" in view else f"{_ZERO}offload_{part}"] = (
                "cpu" if device in view or f"{_ZERO}offload_{part}" in view else {"device": "cpu", "pin_memory": True}
            )
        elif device in view:
            out[device] = "none"
    return out


def _read_dtype(view: View) -> Iterator[Reading]:
    for name, dtype in (("bf16.enabled", "bf16"), ("bfloat16.enabled", "bf16"), ("fp16.enabled", "fp16")):
        entry = view.get(name)
        if entry is not None and flag(entry.value):
            yield "param_dtype", dtype, entry
            return


def _write_dtype(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    if value not in ("bf16", "fp16"):
        return None
    other = "fp16" if value == "bf16" else "bf16"
    return {f"{value}.enabled": True} | ({f"{other}.enabled": False} if f"{other}.enabled" in view else {})


def _bucket(value: Any) -> Any:
    if value == "auto":
        return "auto"
    found = number(value)
    return None if found is None else int(found)


def _read_ckpt(view: View) -> Iterator[Reading]:
    entry = view.get("activation_checkpointing.cpu_checkpointing")
    if entry is not None and flag(entry.value):
        yield "grad_ckpt", "offload", entry


_BUCKET: Final = Codec(_bucket, lambda v, old: int(v) if isinstance(v, float) and v == int(v) else v)

TABLE = Table(
    name="deepspeed",
    keys=(
        Key("micro_batch", ("train_micro_batch_size_per_gpu",), INT),
        Key("grad_accum", ("gradient_accumulation_steps",), INT),
        Key("tp", ("tensor_parallel.autotp_size",), INT),
        Key(
            "optimizer",
            ("optimizer.type",),
            word(
                {
                    "adam": "adamw",
                    "adamw": "adamw",
                    "onebitadam": "adamw",
                    "lion": "lion",
                    "sgd": "sgd",
                    "adagrad": "adagrad",
                    "fusedadam": "adamw",
                    "lamb": "adamw",
                    "muon": "muon",
                },
                canonical={"adamw": "AdamW"},
            ),
        ),
        *(
            Key(f"buckets.{b}", tuple(_ZERO + n for n in ((b, _ALIASES[b]) if b in _ALIASES else (b,))), _BUCKET)
            for b in BUCKETS
        ),
    ),
    groups=(
        Group(
            ("sharding", "offload", "nvme_offload"),
            tuple(
                _ZERO + n
                for n in (
                    "stage",
                    "offload_optimizer",
                    "offload_optimizer.device",
                    "offload_param",
                    "offload_param.device",
                    "cpu_offload",
                    "cpu_offload_params",
                )
            ),
            _read_zero,
            _write_zero,
        ),
        Group(
            ("param_dtype",),
            ("bf16.enabled", "fp16.enabled", "bfloat16.enabled", "bf16", "fp16", "bfloat16"),
            _read_dtype,
            _write_dtype,
        ),
        Group(("grad_ckpt",), ("activation_checkpointing.cpu_checkpointing",), _read_ckpt, lambda v, f, x: None),
    ),
    neutral=words(
        """
        train_batch_size gradient_clipping steps_per_print wall_clock_breakdown zero_optimization
        zero_allow_untested_optimizer optimizer optimizer.params scheduler scheduler.type
        zero_optimization.overlap_comm zero_optimization.contiguous_gradients
        zero_optimization.reduce_scatter zero_optimization.allgather_partitions
        zero_optimization.round_robin_gradients
        zero_optimization.stage3_gather_16bit_weights_on_model_save
        zero_optimization.gather_16bit_weights_on_model_save
        zero_optimization.stage3_gather_fp16_weights_on_model_save fp16.loss_scale
        fp16.loss_scale_window fp16.initial_scale_power fp16.hysteresis fp16.min_loss_scale
        fp16.auto_cast activation_checkpointing activation_checkpointing.partition_activations
        activation_checkpointing.number_checkpoints zero_optimization.memory_efficient_linear
        activation_checkpointing.contiguous_memory_optimization
        activation_checkpointing.synchronize_checkpoint_boundary activation_checkpointing.profile
        zero_optimization.offload_optimizer.pin_memory zero_optimization.offload_param.pin_memory
        zero_optimization.offload_optimizer.fast_init
        zero_optimization.offload_optimizer.buffer_count zero_optimization.offload_optimizer.ratio
        zero_optimization.offload_param.buffer_count zero_optimization.offload_param.buffer_size
        zero_optimization.offload_param.max_in_cpu zero_optimization.offload_optimizer.nvme_path
        zero_optimization.offload_param.nvme_path zero_optimization.elastic_checkpoint
        zero_optimization.zero_hpz_partition_size zero_optimization.load_from_fp32_weights
        zero_optimization.zero_quantized_weights zero_optimization.zero_quantized_gradients
        zero_optimization.ignore_unused_parameters zero_optimization.cpu_offload_use_pin_memory
        zero_optimization.offload_optimizer.pipeline_read
        zero_optimization.offload_optimizer.pipeline_write prescale_gradients
        communication_data_type data_types data_types.grad_accum_dtype fp16.consecutive_hysteresis
        aio flops_profiler autotuning zero_optimization.offload_optimizer.super_offload
        zero_optimization.offload_optimizer.cpuadam_cores_perc sequence_parallel_size
        compression_training.weight_quantization.shared_parameters.fp16_mixed_quantize.enabled
        compression_training.weight_quantization.shared_parameters.fp16_mixed_quantize.quantize_change_ratio
        bf16.bf16_master_weights_and_grads bf16.bf16_optimizer_states
        cpu_offload kv_offload disk_offload offload_dir quant_bit quant_bits gen_len prompt_len
        """
    ),
    commands=(r"\bdeepspeed\.initialize", r"\bimport deepspeed\b"),
    marks=words(
        """
        zero_optimization zero_optimization.stage train_micro_batch_size_per_gpu bf16.enabled
        fp16.enabled zero_allow_untested_optimizer
        """
    ),
    hints=frozenset(
        ["train_batch_size", "gradient_clipping", "steps_per_print", "wall_clock_breakdown", "fp16.loss_scale"]
    ),
)
