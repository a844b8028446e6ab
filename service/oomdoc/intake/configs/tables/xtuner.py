"""xtuner: mmengine Python configs (0.1) and v1's pydantic ones, with ``xtuner train`` flags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import ATTENTION, FLAG, INT, MODEL, NUMBER, OPTIMIZER, dtype_word
from oomdoc.intake.configs.table import Group, Key, Raw, Reading, Table, View, words
from oomdoc.intake.configs.tables.common import bnb, deepspeed_path
from oomdoc.intake.configs.tables.transformers import TABLE as TRANSFORMERS

__all__ = ["TABLE"]

_CLASSES: Final = {
    "adamw": "AdamW",
    "paged_adamw": "PagedAdamW32bit",
    "paged_adamw_8bit": "PagedAdamW8bit",
    "sgd": "SGD",
}


def _read_optim(view: View) -> Iterator[Reading]:
    entry = view.get("optim_type")
    if entry is not None:
        yield "optimizer", OPTIMIZER.read(str(entry.value).rsplit(".", 1)[-1]), entry


def _write_optim(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    if value not in _CLASSES or "optim_type" not in view:
        return None
    home = "bitsandbytes.optim" if "Paged" in _CLASSES[value] else "torch.optim"
    return {"optim_type": Raw(_CLASSES[value], f"from {home} import {_CLASSES[value]}")}


def _read_amp(view: View) -> Iterator[Reading]:
    entry = view.get("AmpOptimWrapper:dtype")
    if entry is not None and dtype_word(entry.value):
        yield "autocast", dtype_word(entry.value), entry


def _write_amp(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    long = {"bf16": "bfloat16", "fp16": "float16"}.get(value)
    return {"AmpOptimWrapper:dtype": long} if long and "AmpOptimWrapper:dtype" in view else None


def _read_method(view: View) -> Iterator[Reading]:
    adapters = view.get("LoraConfig()")
    if adapters is not None:
        four = view.get("load_in_4bit") or view.get("BitsAndBytesConfig:load_in_4bit")
        yield "method", "qlora" if four is not None and four.value is True else "lora", adapters
        return
    trained = view.get("SupervisedFinetune()")
    if trained is not None:
        yield "method", "full", trained


def _read_objective(view: View) -> Iterator[Reading]:
    for name, objective in (
        ("DPO()", "dpo"),
        ("ORPO()", "orpo"),
        ("RewardModel()", "rm"),
        ("SupervisedFinetune()", "sft"),
        ("LLaVAModel()", "sft"),
    ):
        if name in view:
            yield "objective", objective, view[name]
            return


TABLE = Table(
    name="xtuner",
    bases=(TRANSFORMERS,),
    keys=(
        Key("model", ("llm_name_or_path", "load_from", "pretrained_model_name_or_path", "model_path"), MODEL),
        Key("micro_batch", ("batch_size",), INT),
        Key("grad_accum", ("accumulative_counts",), INT),
        Key("seq_len", ("max_length", "sequence_length", "pack_max_length", "max_position_embeddings"), INT),
        Key("packing", ("pack_to_max_length",), FLAG),
        Key("sp", ("sequence_parallel_size", "sp_size"), INT),
        Key("attention", ("attn_implementation",), ATTENTION),
        Key("lora.r", ("LoraConfig:r",), INT),
        Key("lora.alpha", ("LoraConfig:lora_alpha",), NUMBER),
        Key("lora.dropout", ("LoraConfig:lora_dropout",), NUMBER),
        Key("grad_ckpt", ("use_activation_checkpointing",), FLAG),
        Key("tp", ("FSDPConfig:tp_size",), INT),
        Key("ep", ("FSDPConfig:ep_size", "ep_size"), INT),
    ),
    groups=(
        Group(("optimizer",), ("optim_type",), _read_optim, _write_optim),
        Group(("autocast",), ("AmpOptimWrapper:dtype",), _read_amp, _write_amp),
        Group(("method",), ("LoraConfig()", "SupervisedFinetune()"), _read_method, lambda v, f, x: None),
        Group(("objective",), (), _read_objective, lambda v, f, x: None),
        bnb(),
        deepspeed_path(),
    ),
    neutral=words(
        """
        data_path prompt_template max_epochs dataloader_num_workers lr betas weight_decay max_norm
        warmup_ratio save_steps evaluation_freq SYSTEM evaluation_inputs llm_int8_threshold
        llm_int8_has_fp16_weight bnb_4bit_compute_dtype max_dataset_length use_varlen_attn
        accumulative_counts loss_scale data_num data_files data_dir dataset quantization_config
        optimizer AmpOptimWrapper:optimizer prefetch_factor freeze_llm freeze_visual_encoder
        visual_encoder_name_or_path global_batch_size work_dir cpu_offload image_aspect_ratio cfg
        dataset_map_fn template_map_fn shuffle_before_pack remove_unused_columns batch_size_per_gpu
        train_batch_size pack_level optim_wrapper optim_cfg fsdp_cfg loss_cfg dataloader_cfg
        dataset_config batch_sampler custom_hooks default_hooks env_cfg randomness log_level resume
        launcher visualizer log_processor strategy runner_type model_wrapper_cfg
        """
    ),
    commands=(r"\bxtuner\b", r"\bmmengine\b", r"\bSupervisedFinetune\b"),
    marks=words(
        """
        pack_to_max_length accumulative_counts use_varlen_attn optim_wrapper evaluation_freq
        dataset_map_fn
        """
    ),
    hints=words("batch_size max_length optim_type prompt_template train_dataloader"),
)
