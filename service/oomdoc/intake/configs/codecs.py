"""How single values are read and written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from oomdoc.intake.configs.table import Codec, Raw
from oomdoc.intake.configs.values import flag, number, whole
from oomdoc.intake.configs.wordlist import meanings


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


_MEMBER: Final = re.compile(r"[A-Za-z_]{2,30}(?:\.[A-Za-z_]{1,40}){1,3}")
"""``args.model``: a name of the program's own."""
_ARGUMENT: Final = re.compile(r"\w*(?:name_or_path|model_(?:id|name|path|dir))", re.I)


def _model(value: Any) -> str | None:
    """A model's name; of a path through an unknown variable, its last part."""
    if not isinstance(value, str) or len(value) > 300:
        return None
    text = value.strip().rstrip("/").removeprefix("hf://")
    if (
        text.startswith("datasets/")
        or _MEMBER.fullmatch(text)
        or (text.isidentifier() and (not text.isascii() or _ARGUMENT.fullmatch(text)))
    ):
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
FP8_NAMED: Final = Codec(_text, lambda v, _old: "fp8_e4m3" if v == "fp8" else v)
"""A KV cache whose fp8 is called by its layout (SGLang ``server_args.py``, ``--kv-cache-dtype``)."""
MODEL: Final = Codec(_model, _keep)
FLAG: Final = Codec(flag, _truth)
NOT: Final = Codec(_negated, lambda v, old: _truth(not v, old))


def word(table: Mapping[str, str]) -> Codec:
    """Words: ``table`` from spelling (lower case) to canonical; written by the first spelling."""
    back: dict[str, str] = {}
    for spelling, meaning in table.items():
        back.setdefault(meaning, spelling)

    def read(value: Any) -> str | None:
        if isinstance(value, bool) or value is None:
            return table.get(str(value).lower())
        return table.get(str(value).strip().strip("\"'").lower())

    def write(value: Any, old: Any) -> Any:
        return back.get(str(value), value)

    return Codec(read, write)


_DTYPES: Final = meanings("dtype")
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

ATTENTION: Final = word(meanings("attention"))

OPTIMIZER: Final = word(meanings("optimizer"))
"""Written as transformers spells them (``OptimizerNames``, 4.28 to 5.23)."""


_CHECKPOINTED: Final = meanings("grad_ckpt")


def _read_ckpt(value: Any) -> bool | str | None:
    found = _CHECKPOINTED.get(value.strip().lower()) if isinstance(value, str) else None
    return flag(value) if found is None else True if found == "full" else found


GRAD_CKPT: Final = Codec(_read_ckpt, lambda v, old: "unsloth" if v == "offload" and old == "unsloth" else _keep(v, old))

_ALL: Final = frozenset({"all", "all-linear", "all_linear", "all-linear-layers", "linear", "default"})


def _read_targets(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip().strip("[]")
        if text.lower() in _ALL:
            return "all-linear"
        if not text or "$" in text or text.startswith(("^", "(")) or "\\" in text:
            return None
        value = [p.strip().strip("\"'") for p in (text.split(",") if "," in text else text.split()) if p.strip()]
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
