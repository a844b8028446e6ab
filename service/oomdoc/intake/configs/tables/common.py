"""Groups that several frameworks share: precision pairs, quantisation, DeepSpeed by path, adapters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from oomdoc.intake.configs.codecs import dtype_word
from oomdoc.intake.configs.shards import name_for, stage_and_offload
from oomdoc.intake.configs.table import DROP, Group, Raw, Reading, View
from oomdoc.intake.configs.values import flag, whole

__all__ = ["bnb", "deepspeed_path", "mixed_precision", "quant_word", "sized_attention", "zero_word"]


def mixed_precision(bf16: str = "bf16", fp16: str = "fp16", field: str = "autocast") -> Group:
    """The pair of flags ``bf16`` / ``fp16`` for one field."""

    def read(view: View) -> Iterator[Reading]:
        low, high = view.get(fp16), view.get(bf16)
        if high is not None and (flag(high.value) or str(high.value).lower() in ("auto", "full")):
            yield field, "bf16", high
        elif low is not None and flag(low.value):
            yield field, "fp16", low
        elif (
            high is not None
            and flag(high.value) is False
            and (low is None or flag(low.value) is False)
            and field == "autocast"
        ):
            yield field, "none", high

    def write(view: View, _name: str, value: Any) -> dict[str, Any] | None:
        if value == "none" and field == "autocast":
            return {k: False for k in (bf16, fp16) if k in view}
        if value not in ("bf16", "fp16"):
            return {k: DROP for k in (bf16, fp16) if k in view} if value == "fp32" else None
        on, off = (bf16, fp16) if value == "bf16" else (fp16, bf16)
        return {on: True} | ({off: DROP if view.form == "shell" else False} if off in view else {})

    return Group((field,), (bf16, fp16), read, write)


_NF4: Final = 'load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype="bfloat16"'
_BNB: Final = {"nf4": _NF4, "nf4-double": _NF4 + ", bnb_4bit_use_double_quant=True", "int8": "load_in_8bit=True"}


def quant_word(bits: int | None, *, double: bool | None = None, kind: str = "nf4") -> str | None:
    """The storage word of a number of bits."""
    if bits == 8:
        return "int8"
    if bits == 4:
        return "nf4-double" if double and kind in ("nf4", "fp4") else "nf4"
    return "none" if bits in (16, 32) else None


def bnb(
    four: tuple[str, ...] = ("load_in_4bit",),
    eight: tuple[str, ...] = ("load_in_8bit",),
    double: tuple[str, ...] = ("bnb_4bit_use_double_quant", "use_bnb_nested_quant"),
    *,
    doubled: bool = False,
) -> Group:
    """Bitsandbytes by flags. ``doubled``: whether the framework double-quantises unless told otherwise."""

    def is_double(view: View) -> bool:
        name = view.first(*double)
        return bool(flag(view[name].value)) if name else doubled

    def read(view: View) -> Iterator[Reading]:
        name4, name8 = view.first(*four), view.first(*eight)
        if name4 and flag(view[name4].value):
            yield "quant", quant_word(4, double=is_double(view)), view[name4]
        elif name8 and flag(view[name8].value):
            yield "quant", "int8", view[name8]
        elif name4 and flag(view[name4].value) is False:
            yield "quant", "none", view[name4]

    def write(view: View, _name: str, value: Any) -> dict[str, Any] | None:
        name4, name8 = view.first(*four), view.first(*eight)
        name2 = view.first(*double)
        if (
            view.form == "python"
            and view.framework in ("transformers", "trl", "accelerate")
            and not (name4 or name8)
            and value in _BNB
        ):
            return {
                "quantization_config": Raw(
                    f"BitsAndBytesConfig({_BNB[value]})", "from transformers import BitsAndBytesConfig"
                )
            }
        if value in ("nf4", "nf4-double"):
            out: dict[str, Any] = {name4 or four[0]: True}
            if name8 and flag(view[name8].value):
                out[name8] = False
            wanted = value == "nf4-double"
            if name2 or wanted != doubled:
                out[name2 or double[0]] = wanted
            return out
        if value == "int8":
            return {name8 or eight[0]: True} | ({name4: False} if name4 else {})
        if value == "none":
            return {n: False for n in (name4, name8) if n}
        return None

    return Group(("quant",), (*four, *eight, *double), read, write)


def zero_word(stage: int | None) -> str | None:
    """``zero3`` for 3; stage 0 replicates."""
    return None if stage is None else "ddp" if stage == 0 else f"zero{stage}"


def deepspeed_path(names: tuple[str, ...] = ("deepspeed",)) -> Group:
    """DeepSpeed given as the path or the short name of a configuration."""

    def read(view: View) -> Iterable[Reading]:
        name = view.first(*names)
        if name is None:
            return
        entry = view[name]
        value = entry.value
        if isinstance(value, dict):
            zero = value.get("zero_optimization")
            stage = whole(zero.get("stage")) if isinstance(zero, dict) else None
            if stage is not None:
                yield "sharding", zero_word(stage), entry
            return
        if not isinstance(value, str):
            return
        stage, offload = stage_and_offload(value, view.framework)
        if stage is not None:
            yield "sharding", zero_word(stage), entry
        if offload:
            yield "offload", list(offload), entry

    def current(view: View) -> tuple[str | None, int | None, tuple[str, ...]]:
        name = view.first(*names)
        value = view[name].value if name else None
        if not isinstance(value, str):
            return None, None, ()
        return value, *stage_and_offload(value, view.framework)

    def write(view: View, name: str, value: Any) -> dict[str, Any] | None:
        old, stage, offload = current(view)
        key = view.first(*names) or names[0]
        if name == "sharding":
            if value in ("none", "ddp"):
                return {key: DROP} if key in view else {}
            if not str(value).startswith("zero"):
                return None
            stage = int(str(value)[-1])
            # A file that offloads although its name does not say so is no wish of the person's.
            said = offload if old and "offload" in old else ()
            path = name_for(old, stage, said, view.framework)
        else:
            path = name_for(old, stage or 3, tuple(value), view.framework)
        return {key: path} if path else None

    return Group(("sharding", "offload"), names, read, write)


_FLASH_NAMES: Final = ("use_flash_attention_2", "use_flash_attn", "use_flash_attention", "flash_attention")


def sized_attention(names: tuple[str, ...] = _FLASH_NAMES) -> Group:
    """Flags that only switch FlashAttention on."""

    def read(view: View) -> Iterator[Reading]:
        name = view.first(*names)
        if name is not None and flag(view[name].value):
            yield "attention", "flash2", view[name]

    def write(view: View, _name: str, value: Any) -> dict[str, Any] | None:
        name = view.first(*names)
        return {name: value == "flash2"} if name else None

    return Group(("attention",), names, read, write)


def dtype_field(view: View, name: str) -> str | None:
    """The dtype a key names."""
    entry = view.get(name)
    return dtype_word(entry.value) if entry is not None else None
