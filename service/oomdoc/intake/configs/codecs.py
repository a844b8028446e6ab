"""How single values are read and written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from oomdoc.intake.configs.table import Codec, Raw
from oomdoc.intake.configs.values import flag, number, whole

__all__ = [
    "ATTENTION",
    "COUNT",
    "DTYPE",
    "EAGER_INVERTED",
    "FLAG",
    "FRACTION",
    "GRAD_CKPT",
    "INT",
    "MODEL",
    "NOT",
    "NUMBER",
    "OPTIMIZER",
    "TARGETS",
    "TEXT",
    "dtype_word",
    "word",
]


def _keep(value: Any, _old: Any) -> Any:
    return value


def _positive(value: Any) -> int | None:
    found = whole(value)
    return found if found is not None and found > 0 else None


def _fraction(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and 0 < found <= 1 else None


def _non_negative(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and found >= 0 else None


def _text(value: Any) -> str | None:
    if not isinstance(value, str) or not value.strip() or "$" in value or len(value) > 300:
        return None
    return value.strip()


_ARGUMENT: Final = re.compile(r"\w*(?:name_or_path|model_(?:id|name|path|dir))", re.I)


def _model(value: Any) -> str | None:
    """A model's name; of a path through an unknown variable, its last part."""
    if not isinstance(value, str) or len(value) > 300:
        return None
    text = value.strip().rstrip("/").removeprefix("hf://")
    if text.startswith("datasets/") or (text.isidentifier() and (not text.isascii() or _ARGUMENT.fullmatch(text))):
        return None  # a data set, a word of another language behind an option's name, a variable
    if "$" in text:
        text = text.rsplit("/", 1)[-1]
        if "$" in text or not any(c.isdigit() for c in text):
            return None
    return (
        text
        if text and " " not in text and text not in ("???", "null", "None") and not any(c in text for c in '<[("')
        else None
    )


def _truth(value: Any, old: Any) -> Any:
    # Keep to the spelling that stands there: True/true/1.
    if isinstance(old, int) and not isinstance(old, bool):
        return int(bool(value))
    return bool(value)


def _negated(value: Any) -> bool | None:
    found = flag(value)
    return None if found is None else not found


INT: Final = Codec(_positive, _keep)
COUNT: Final = Codec(whole, _keep)
NUMBER: Final = Codec(_non_negative, _keep)
FRACTION: Final = Codec(_fraction, _keep)
TEXT: Final = Codec(_text, _keep)
MODEL: Final = Codec(_model, _keep)
FLAG: Final = Codec(flag, _truth)
NOT: Final = Codec(_negated, lambda v, old: _truth(not v, old))
EAGER_INVERTED: Final = NOT


def word(table: Mapping[str, str], *, canonical: Mapping[str, str] | None = None) -> Codec:
    """Words: ``table`` from spelling (lower case) to canonical; written by ``canonical`` or the first spelling."""
    back: dict[str, str] = {}
    for spelling, meaning in table.items():
        back.setdefault(meaning, spelling)
    if canonical:
        back.update(canonical)

    def read(value: Any) -> str | None:
        if isinstance(value, bool) or value is None:
            return table.get(str(value).lower())
        return table.get(str(value).strip().strip("\"'").lower())

    def write(value: Any, old: Any) -> Any:
        return back.get(str(value), value)

    return Codec(read, write)


_DTYPES: Final = {
    "float32": "fp32",
    "fp32": "fp32",
    "float": "fp32",
    "32": "fp32",
    "32-true": "fp32",
    "bfloat16": "bf16",
    "bf16": "bf16",
    "bf16-true": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "16": "fp16",
    "16-true": "fp16",
}
_LONG: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def dtype_word(value: Any) -> str | None:
    """``torch.bfloat16`` → ``bf16``; ``auto`` and the unknown say nothing."""
    text = str(value).strip().strip("\"'").lower().rsplit(".", 1)[-1]
    return _DTYPES.get(text)


def _write_dtype(value: Any, old: Any) -> Any:
    text = str(old) if old is not None else ""
    if text.startswith("torch."):
        return Raw("torch." + _LONG.get(str(value), str(value)))
    if text in ("fp32", "bf16", "fp16"):
        return value
    return _LONG.get(str(value), value)


DTYPE: Final = Codec(dtype_word, _write_dtype)

_ATTENTION: Final = {
    "eager": "eager",
    "disabled": "eager",
    "off": "eager",
    "math": "eager",
    "sdpa": "sdpa",
    "sdp": "sdpa",
    "sdp_attention": "sdpa",
    "flash_attention_2": "flash2",
    "fa2": "flash2",
    "flash_attn": "flash2",
    "flash_attention": "flash2",
    "flash_attn_2": "flash2",
    "flash2": "flash2",
    "flash-attention-2": "flash2",
    "flash": "flash2",
    "flashattention2": "flash2",
    "flash_attention_3": "flash3",
    "fa3": "flash3",
    "flash_attn_3": "flash3",
    "flex_attention": "flex",
    "flex": "flex",
    "xformers": "xformers",
    "kernels-community/flash-attn": "flash2",
    "kernels-community/flash-attn2": "flash2",
    "kernels-community/flash-attn3": "flash3",
    "kernels-community/vllm-flash-attn3": "flash3",
    "attentionbackend.flash": "flash2",
    "fused": "flash2",
}
_HF_ATTENTION: Final = {
    "eager": "eager",
    "sdpa": "sdpa",
    "flash2": "flash_attention_2",
    "flash3": "flash_attention_3",
    "flex": "flex_attention",
}
ATTENTION: Final = word(_ATTENTION, canonical=_HF_ATTENTION)

_OPTIMIZERS: Final = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_hf": "adamw",
    "adamw": "adamw",
    "adam": "adamw",
    "adamw_torch_xla": "adamw",
    "adamw_apex_fused": "adamw",
    "fusedadam": "adamw",
    "deepspeedcpuadam": "adamw",
    "torch.optim.adamw": "adamw",
    "torch.optim.adam": "adamw",
    "fused_adam": "adamw",
    "distributed_fused_adam": "adamw",
    "adamw_anyprecision": "adamw",
    "torch_adam": "adamw",
    "megatron_fused_adam": "adamw",
    "adamw_8bit": "adamw_8bit",
    "adamw_bnb_8bit": "adamw_8bit",
    "adamw8bit": "adamw_8bit",
    "bitsandbytes.optim.adamw8bit": "adamw_8bit",
    "ao_adamw_8bit": "adamw_8bit",
    "adamw_torch_8bit": "adamw_8bit",
    "ademamix_8bit": "adamw_8bit",
    "torchao.optim.adamw8bit": "adamw_8bit",
    "adamw_torch_4bit": "adamw_4bit",
    "ao_adamw_4bit": "adamw_4bit",
    "paged_adamw": "paged_adamw",
    "paged_adamw_32bit": "paged_adamw",
    "pagedadamw32bit": "paged_adamw",
    "pagedadamw": "paged_adamw",
    "bitsandbytes.optim.pagedadamw": "paged_adamw",
    "paged_adamw_8bit": "paged_adamw_8bit",
    "pagedadamw8bit": "paged_adamw_8bit",
    "bitsandbytes.optim.pagedadamw8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "torch.optim.sgd": "sgd",
    "lion_32bit": "lion",
    "lion": "lion",
    "paged_lion_32bit": "lion",
    "lion_8bit": "lion_8bit",
    "paged_lion_8bit": "paged_lion_8bit",
    "adagrad": "adagrad",
    "rmsprop": "rmsprop",
    "muon": "muon",
    "galore_adamw": "galore_adamw",
    "galore_adamw_layerwise": "galore_adamw",
    "galore_adamw_8bit": "galore_adamw_8bit",
    "galore_adamw_8bit_layerwise": "galore_adamw_8bit",
    "apollo_adamw": "apollo_adamw",
    "apollo_adamw_layerwise": "apollo_adamw",
    "lomo": "lomo",
    "adalomo": "lomo",
    "schedule_free_adamw": "adamw",
    "optimi_adamw": "adamw",
    "came_pytorch": "adafactor",
    "adam_bnb_8bit": "adamw_8bit",
    "transformers.adafactor": "adafactor",
    "dist_muon": "muon",
    "adamw8": "adamw_8bit",
    "onebitadam": "adamw",
}
OPTIMIZER: Final = word(
    _OPTIMIZERS,
    canonical={"adamw": "adamw_torch", "adamw_8bit": "adamw_8bit", "adamw_4bit": "adamw_torch_4bit"}
    | {"paged_adamw": "paged_adamw_32bit", "lion": "lion_32bit"},
)
"""Written as transformers spells them (``OptimizerNames``, 4.28 to 5.23)."""


def _read_ckpt(value: Any) -> bool | str | None:
    if isinstance(value, str):
        low = value.strip().lower()
        if low in ("unsloth", "offload", "offload_disk"):
            return "offload"
        if low in ("selective", "core_attn"):
            return "selective"
        if low in ("full", "uniform", "block"):
            return True
    return flag(value)


GRAD_CKPT: Final = Codec(_read_ckpt, lambda v, old: "unsloth" if v == "offload" and old == "unsloth" else _keep(v, old))

_ALL: Final = frozenset({"all", "all-linear", "all_linear", "all-linear-layers", "linear", "default"})


def _read_targets(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip().strip("[]")
        if text.lower() in _ALL:
            return "all-linear"
        if not text or "$" in text or text.startswith(("^", "(")) or "\\" in text:
            return None
        value = [p.strip().strip("\"'") for p in text.split(",") if p.strip()]
    if isinstance(value, list | tuple):
        names = [str(v) for v in value if isinstance(v, str)]
        if len(names) == 1 and names[0].lower() in _ALL:
            return "all-linear"
        if any(n.lower() in _ALL for n in names):
            return "all-linear"
        return names[:40] or None
    return None


def _write_targets(value: Any, old: Any) -> Any:
    if value == "all-linear":
        return "all" if old is not None and not isinstance(old, list) and "linear" not in str(old) else "all-linear"
    names = [value] if isinstance(value, str) else list(value)
    return ",".join(names) if isinstance(old, str) and ("," in old or old.lower() in _ALL) else names


TARGETS: Final = Codec(_read_targets, _write_targets)
