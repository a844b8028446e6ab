"""unsloth scripts: ``FastLanguageModel.from_pretrained`` and ``get_peft_model`` before TRL's configs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomdoc.intake.configs.codecs import FRACTION, GRAD_CKPT, INT, MODEL
from oomdoc.intake.configs.table import Codec, Group, Key, Reading, Table, View, words
from oomdoc.intake.configs.tables.common import bnb
from oomdoc.intake.configs.tables.trl import TABLE as TRL
from oomdoc.intake.configs.values import flag

__all__ = ["TABLE"]


def _read_method(view: View) -> Iterator[Reading]:
    full = view.get("full_finetuning")
    if full is not None and flag(full.value):
        yield "method", "full", full
        return
    adapters = next((e for n, e in view.items() if n.endswith("get_peft_model()")), None)
    if adapters is not None:
        four = view.get("load_in_4bit")
        yield "method", "qlora" if four is None or flag(four.value) else "lora", adapters


def _write_method(view: View, _field: str, value: Any) -> dict[str, Any] | None:
    if value == "full":
        return {"full_finetuning": True, "load_in_4bit": False}
    if value in ("lora", "qlora"):
        drop = {"full_finetuning": False} if "full_finetuning" in view else {}
        return {"load_in_4bit": value == "qlora"} | drop
    return None


TABLE = Table(
    name="unsloth",
    bases=(TRL,),
    keys=(
        Key("model", ("from_pretrained:model_name", "model_name"), MODEL),
        Key("seq_len", ("max_seq_length", "max_length"), INT),
        Key(
            "grad_ckpt",
            ("use_gradient_checkpointing",),
            Codec(GRAD_CKPT.read, lambda v, old: "unsloth" if v == "offload" else v),
        ),
        Key(
            "rollout.gpu_memory_utilization",
            ("from_pretrained:gpu_memory_utilization", "gpu_memory_utilization"),
            FRACTION,
        ),
    ),
    groups=(
        Group(("method",), ("full_finetuning",), _read_method, _write_method),
        bnb(doubled=True),
    ),
    neutral=words(
        """
        random_state use_rslora loftq_config fast_inference max_lora_rank offload_embedding
        unsloth_tiled_mlp dtype load_in_16bit finetune_vision_layers finetune_language_layers
        dataset_text_field dataset_num_proc
        """
    ),
    commands=(r"\bunsloth\b", r"\bFast(?:Language|Vision)?Model\b"),
    marks=words(
        """
        full_finetuning unsloth_tiled_mlp offload_embedding fast_inference max_lora_rank
        """
    ),
    hints=words("max_seq_length load_in_4bit use_gradient_checkpointing") | TRL.hints,
)
