"""torchtune YAML and ``tune run`` overrides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import DTYPE, FLAG, INT, NUMBER, OPTIMIZER, TARGETS
from oomdoc.intake.configs.table import DROP, Group, Key, Reading, Table, View, words
from oomdoc.intake.configs.values import flag

__all__ = ["TABLE"]

_FAMILY: Final = re.compile(r"torchtune\.models\.(\w{1,40})\.(\w{1,80})")
_SIZE: Final = re.compile(r"_?([0-9]{1,3}(?:_[0-9])?b)\b")
_OPTIMIZERS: Final = {
    "adamw": "torch.optim.AdamW",
    "paged_adamw_8bit": "bitsandbytes.optim.PagedAdamW8bit",
    "sgd": "torch.optim.SGD",
    "adamw_8bit": "bitsandbytes.optim.AdamW8bit",
    "paged_adamw": "bitsandbytes.optim.PagedAdamW",
}
_CHUNKED: Final = ("chunked", "linearcrossentropy")


def _read_model(view: View) -> Iterator[Reading]:
    entry = view.get("model._component_")
    if entry is None:
        return
    match = _FAMILY.match(str(entry.value))
    if match is None:
        return
    builder = match[2]
    if builder.startswith("qlora"):
        yield "method", "qlora", entry
    elif builder.startswith(("lora", "dora")):
        yield "method", "lora", entry
    else:
        yield "method", "full", entry
    directory = view.get("checkpointer.checkpoint_dir")
    # The component names the architecture and size: llama3_1.lora_llama3_1_8b.
    size = _SIZE.search(builder)
    if directory is not None and isinstance(directory.value, str):
        parts = [p for p in directory.value.split("/") if p not in ("", "original") and "$" not in p]
        base = parts[-1] if parts else ""
        if any(c.isdigit() for c in base) and base.lower() not in ("epoch_0", "output"):
            yield "model", base, directory
            return
    if size:
        yield (
            "model",
            builder.removeprefix("qlora_").removeprefix("lora_").removeprefix("dora_").replace("_", "-"),
            entry,
        )


def _read_quant(view: View) -> Iterator[Reading]:
    entry = view.get("model._component_")
    base = view.get("model.quantize_base")
    if entry is not None and "qlora_" in str(entry.value):
        yield "quant", "nf4", entry
    elif base is not None and flag(base.value):
        yield "quant", "nf4", base


def _write_method(view: View, field: str, value: Any) -> dict[str, Any] | None:
    entry = view.get("model._component_")
    if entry is None or field not in ("method", "quant"):
        return None
    head, _, builder = str(entry.value).rpartition(".")
    plain = builder.removeprefix("qlora_").removeprefix("lora_")
    if field == "quant":
        wanted = (
            "qlora_" if value in ("nf4", "nf4-double") else "lora_" if builder.startswith(("lora_", "qlora_")) else ""
        )
    else:
        if value not in ("full", "lora", "qlora"):
            return None
        wanted = "" if value == "full" else f"{value}_"
    return {"model._component_": f"{head}.{wanted}{plain}"}


def _read_optimizer(view: View) -> Iterator[Reading]:
    entry = view.get("optimizer._component_") or view.get("optimizer")
    if entry is None or not isinstance(entry.value, str):
        return
    yield "optimizer", OPTIMIZER.read(entry.value) or OPTIMIZER.read(entry.value.rsplit(".", 1)[-1]), entry
    fused = view.get("optimizer.fused")
    if fused is not None and flag(fused.value):
        yield "optimizer_impl", "fused", fused


def _write_optimizer(view: View, field: str, value: Any) -> dict[str, Any] | None:
    if field == "optimizer_impl":
        return {"optimizer.fused": value == "fused"}
    return {"optimizer._component_": _OPTIMIZERS[value]} if value in _OPTIMIZERS else None


def _read_loss(view: View) -> Iterator[Reading]:
    entry = view.get("loss._component_")
    if entry is not None and isinstance(entry.value, str):
        yield "fused_ce", any(c in entry.value.lower() for c in _CHUNKED), entry


def _write_loss(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    return {
        "loss._component_": "torchtune.modules.loss.CEWithChunkedOutputLoss" if value else "torch.nn.CrossEntropyLoss"
    }


def _read_offload(view: View) -> Iterator[Reading]:
    activations, cpu = view.get("enable_activation_offloading"), view.get("fsdp_cpu_offload")
    parts, where = [], None
    if activations is not None and flag(activations.value):
        parts, where = ["activations"], activations
    if cpu is not None and flag(cpu.value):
        parts, where = [*parts, "param", "optimizer"], cpu
    if where is not None:
        yield "offload", parts, where


def _write_offload(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    out: dict[str, Any] = {}
    for key, wanted in (
        ("enable_activation_offloading", "activations" in value),
        ("fsdp_cpu_offload", "param" in value or "optimizer" in value),
    ):
        if wanted or (key in view and flag(view[key].value)):
            out[key] = wanted
    return out


def _read_ckpt(view: View) -> Iterator[Reading]:
    entry, mode = view.get("enable_activation_checkpointing"), view.get("ac_mode")
    if mode is not None and str(mode.value) in ("selective", "full"):
        yield "grad_ckpt", "selective" if mode.value == "selective" else True, mode
    elif entry is not None and flag(entry.value) is not None:
        yield "grad_ckpt", flag(entry.value), entry


def _write_ckpt(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    if value == "selective":
        return {"ac_mode": "selective", "ac_option": 2}
    if not isinstance(value, bool):
        return None
    # Where a mode is given, it decides: the switch counts only without one.
    mode = {"ac_mode": "full"} if value else {"ac_mode": DROP, "ac_option": DROP}
    named = {n: v for n, v in mode.items() if n in view}
    return named if value and named else {"enable_activation_checkpointing": value} | named


def _read_objective(view: View) -> Iterator[Reading]:
    loss = view.get("loss._component_")
    if loss is not None and "rlhf" in str(loss.value):
        yield "objective", "dpo", loss
        return
    for entry in view.values():
        text = f"{entry.scope} {entry.value}" if entry.style in ("item", "flag") else entry.scope
        for word_, objective in (
            ("dpo", "dpo"),
            ("ppo", "ppo"),
            ("grpo", "grpo"),
            ("knowledge_distillation", "distill"),
            ("finetune", "sft"),
        ):
            if word_ in text.lower():
                yield "objective", objective, entry
                return


TABLE = Table(
    name="torchtune",
    keys=(
        Key("micro_batch", ("batch_size",), INT),
        Key("grad_accum", ("gradient_accumulation_steps",), INT),
        Key("seq_len", ("tokenizer.max_seq_len", "max_seq_len"), INT),
        Key("packing", ("dataset.packed", "packed"), FLAG),
        Key("param_dtype", ("dtype",), DTYPE),
        Key("lora.r", ("model.lora_rank",), INT),
        Key("lora.alpha", ("model.lora_alpha",), NUMBER),
        Key("lora.dropout", ("model.lora_dropout",), NUMBER),
        Key("lora.targets", ("model.lora_attn_modules",), TARGETS),
        Key("lora.dora", ("model.use_dora",), FLAG),
        Key("compile", ("compile",), FLAG),
        Key("reshard_after_forward", ("fsdp_reshard_after_forward",), FLAG),
        Key("tp", ("tensor_parallel_dim",), INT),
        Key("cp", ("context_parallel_dim",), INT),
    ),
    groups=(
        Group(("model", "method"), ("model._component_", "checkpointer.checkpoint_dir"), _read_model, _write_method),
        Group(("quant",), ("model._component_", "model.quantize_base"), _read_quant, _write_method),
        Group(
            ("optimizer", "optimizer_impl"),
            ("optimizer._component_", "optimizer.fused", "optimizer"),
            _read_optimizer,
            _write_optimizer,
        ),
        Group(("fused_ce",), ("loss._component_",), _read_loss, _write_loss),
        Group(("offload",), ("enable_activation_offloading", "fsdp_cpu_offload"), _read_offload, _write_offload),
        Group(("grad_ckpt",), ("enable_activation_checkpointing", "ac_mode", "ac_option"), _read_ckpt, _write_ckpt),
        Group(("objective",), (), _read_objective, lambda v, f, x: None),
    ),
    neutral=words(
        """
        output_dir tokenizer tokenizer._component_ tokenizer.path dataset dataset._component_ seed
        shuffle checkpointer checkpointer._component_ checkpointer.checkpoint_files
        checkpointer.model_type resume_from_checkpoint optimizer.lr lr_scheduler._component_ loss
        epochs max_steps_per_epoch optimizer_in_bwd device metric_logger log_every_n_steps
        log_peak_memory_stats profiler profiler.cpu profiler.cuda profiler.profile_memory
        custom_sharded_layers clip_grad_norm model.apply_lora_to_mlp model.apply_lora_to_output
        profiler.with_stack profiler.with_flops profiler.record_shapes save_adapter_weights_only
        checkpointer.adapter_checkpoint checkpointer.recipe_checkpoint compile.model compile.loss
        compile.optimizer_step compile.scale_grads optimizer.weight_decay model model.encoder_lora
        model.decoder_lora model.fusion_lora model.image_size model.decoder_trainable
        model.encoder_trainable model.fusion_trainable enable_kv_cache max_new_tokens batch_size_val
        run_val_every_n_steps inference_batch_size
        """
    ),
    commands=(r"\btune (?:run|cp|download)\b", r"\btorchtune\b"),
    marks=words(
        """
        model._component_ tokenizer._component_ checkpointer._component_
        enable_activation_checkpointing enable_activation_offloading max_steps_per_epoch
        log_peak_memory_stats optimizer_in_bwd loss._component_ dataset._component_
        """
    ),
    hints=words("batch_size epochs compile dtype checkpointer tokenizer metric_logger"),
)
