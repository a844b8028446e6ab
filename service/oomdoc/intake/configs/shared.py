"""Rules that several frameworks share, by the name under which their records ask for them (``shared = "..."``).

What follows the name in a record are the keys, or ``option=keys``: ``bitsandbytes four=load_in_4bit,ds.load_in_4bit``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from oomdoc.intake.configs.codecs import MODEL
from oomdoc.intake.configs.role_groups import models_of_roles, roles_on_gpus
from oomdoc.intake.configs.shards import name_for, stage_and_offload
from oomdoc.intake.configs.table import DROP, Group, Raw, Reading, View, norm
from oomdoc.intake.configs.values import flag, whole

Options = Mapping[str, tuple[str, ...]]


def shared_group(text: str) -> Group:
    """The group of ``name key key option=key,key``.

    :raises KeyError: for a name that nobody has.
    """
    name, *words = text.split()
    options = {
        option: tuple(keys.split(",")) if keys else ()
        for option, _, keys in (w.partition("=") for w in words if "=" in w)
    }
    plain = tuple(word for word in words if "=" not in word)
    return SHARED[name](plain, options)


def zero_word(stage: int | None) -> str | None:
    """``zero3`` for 3; stage 0 replicates."""
    return None if stage is None else "ddp" if stage == 0 else f"zero{stage}"


def _mixed_precision(_: tuple[str, ...], options: Options) -> Group:
    """The pair of flags ``bf16`` / ``fp16`` for one field."""
    bf16, fp16, field = "bf16", "fp16", options.get("field", ("autocast",))[0]

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


def _bitsandbytes(words: tuple[str, ...], options: Options) -> Group:
    """Bitsandbytes. ``doubled``: double quantisation unless it is off; ``one``: there is one kind of four bits;
    ``flags``: without a configuration object.
    """
    four, eight = options.get("four", ("load_in_4bit",)), options.get("eight", ("load_in_8bit",))
    double = ("bnb_4bit_use_double_quant", "use_bnb_nested_quant", "use_nested_quant")
    doubled = "doubled" in words

    def read(view: View) -> Iterator[Reading]:
        name4, name8, name2 = view.first(*four), view.first(*eight), view.first(*double)
        twice = bool(flag(view[name2].value)) if name2 else doubled
        if name4 and flag(view[name4].value):
            yield "quant", "nf4-double" if twice else "nf4", view[name4]
        elif name8 and flag(view[name8].value):
            yield "quant", "int8", view[name8]
        elif name4 and flag(view[name4].value) is False:
            yield "quant", "none", view[name4]

    def write(view: View, _name: str, value: Any) -> dict[str, Any] | None:
        name4, name8, name2 = view.first(*four), view.first(*eight), view.first(*double)
        if view.form == "python" and not words and not (name4 or name8) and value in _BNB:
            made = Raw(f"BitsAndBytesConfig({_BNB[value]})", "from transformers import BitsAndBytesConfig")
            return {"quantization_config": made}
        if value in ("nf4", "nf4-double"):
            out: dict[str, Any] = {name4 or four[0]: True}
            if name8 and flag(view[name8].value):
                out[name8] = False
            wanted = value == "nf4-double"
            return out | ({name2 or double[0]: wanted} if name2 or ("one" not in words and wanted != doubled) else {})
        if value == "int8":
            return {name8 or eight[0]: True} | ({name4: False} if name4 else {})
        if (
            value != "none"
            or not (name4 or name8)
            or any("BitsAndBytesConfig" in view[n].scope for n in (name4, name8) if n)
        ):
            return None  # the object itself quantises, in four bits where it says neither
        return {n: False for n in (name4, name8) if n}

    return Group(("quant",), (*four, *eight, *double), read, write)


def _deepspeed_file(names: tuple[str, ...], _: Options) -> Group:
    """DeepSpeed given as the path or the short name of a configuration."""

    def said(view: View, path: str) -> tuple[int | None, tuple[str, ...]]:
        return stage_and_offload(path, view.table.record.deepspeed_offloading if view.table else ())

    def read(view: View) -> Iterator[Reading]:
        name = view.first(*names)
        value = view[name].value if name else None
        if name and isinstance(value, dict):
            zero = value.get("zero_optimization")
            stage = whole(zero.get("stage")) if isinstance(zero, dict) else None
            if stage is not None:
                yield "sharding", zero_word(stage), view[name]
        elif name and isinstance(value, str):
            stage, offload = said(view, value)
            if stage is not None:
                yield "sharding", zero_word(stage), view[name]
            if offload:
                yield "offload", list(offload), view[name]

    def write(view: View, name: str, value: Any) -> dict[str, Any] | None:
        key = view.first(*names) or names[0]
        old = view.value(key)
        stage, offload = said(view, old) if isinstance(old, str) else (None, ())
        template = view.table.record.deepspeed_file if view.table else ""
        if name == "sharding":
            if value in ("none", "ddp"):
                return {key: DROP} if key in view else {}
            if not str(value).startswith("zero"):
                return None
            # A file that offloads although its name does not say so is no wish of the person's.
            kept = offload if isinstance(old, str) and "offload" in old else ()
            path = name_for(old if isinstance(old, str) else None, int(str(value)[-1]), kept, template)
        else:
            path = name_for(old if isinstance(old, str) else None, stage or 3, tuple(value), template)
        return {key: path} if path else None

    return Group(("sharding", "offload"), names, read, write)


_CARRIES_ITS_MODEL: Final = (
    "from_pretrained:@0",
    "SFTTrainer:model",
    "GRPOTrainer:model",
    "DPOTrainer:model",
    "model_path",
    "MODEL_NAME",
    "actor_model_name_or_path",
)


def _model_of_call(names: tuple[str, ...], _: Options) -> Group:
    """The model by key, or as the argument of the call that loads it."""

    def read(view: View) -> Iterator[Reading]:
        for name in (*names, *_CARRIES_ITS_MODEL):
            entry = view.get(name)
            if entry is None or not isinstance(entry.value, str) or (not entry.resolved and "$" not in entry.value):
                continue
            found = MODEL.read(entry.value)
            if found and len(found) < 160:
                yield "model", found, entry
                return

    def write(view: View, _field: str, value: Any) -> dict[str, Any] | None:
        return {view.first(*names[:2], "from_pretrained:@0", *names[2:]) or names[0]: value}

    return Group(("model",), (*names, "model_path"), read, write)


def _model_argument(flags: tuple[str, ...], options: Options) -> Group:
    """The model by flag, or as the word after the subcommand."""
    before = options["before"]

    def read(view: View) -> Iterator[Reading]:
        name = view.first(*map(norm, flags))
        if name is not None and (said := MODEL.read(view[name].value)):
            yield "model", said, view[name]
            return
        words = [view[f"@{i}"] for i in range(10) if f"@{i}" in view]
        follows = [second for first, second in pairwise(words) if str(first.value) in before]
        if words and set(before).intersection(view.programs.split()[:1]) and "/" in str(words[0].value):
            follows.append(words[0])
        calls = (view[name] for name in ("LLM:@0", "pipeline:@0", "Engine:@0") if name in view)
        yield from [("model", said, entry) for entry in (*follows, *calls) if (said := MODEL.read(entry.value))][:1]

    def write(view: View, _field: str, value: Any) -> dict[str, Any] | None:
        name = view.first(*map(norm, flags))
        if name is None:
            words = [f"@{i}" for i in range(10) if f"@{i}" in view]
            name = next((b for a, b in pairwise(words) if str(view[a].value) in before), None)
        return {name or flags[0]: value}

    return Group(("model",), flags, read, write)


_BLOCK: Final = "zero_optimization."
_OLD: Final = {"optimizer": _BLOCK + "cpu_offload", "param": _BLOCK + "cpu_offload_params"}


def _offload_blocks(_words: tuple[str, ...], _: Options) -> Group:
    """``offload_optimizer: {device: cpu}`` of a ZeRO configuration, and the flags it was once written by."""

    def read(view: View) -> Iterator[Reading]:
        parts, where = [], None
        for part in ("optimizer", "param"):
            device, block, old = (
                view.get(n) for n in (f"{_BLOCK}offload_{part}.device", f"{_BLOCK}offload_{part}", _OLD[part])
            )
            if device is not None and str(device.value).lower() in ("cpu", "nvme"):
                parts.append(part)
                where = device
            elif any(entry is not None and flag(entry.value) for entry in (block, old)):
                parts.append(part)
                where = block if old is None else old
            elif device is not None and str(device.value).lower() == "none":
                where = where or device
        if where is not None:
            yield "offload", parts, where

    def write(view: View, _field: str, value: Any) -> dict[str, Any] | None:
        out: dict[str, Any] = {}
        for part in ("optimizer", "param"):
            block = f"{_BLOCK}offload_{part}"
            device = f"{block}.device"
            if part in value and (device in view or block in view):
                out[device] = "cpu"
            elif part in value:
                out[block] = {"device": "cpu", "pin_memory": True}
            elif device in view:
                out[device] = "none"
        return out

    names = tuple(f"{_BLOCK}offload_{part}{end}" for part in ("optimizer", "param") for end in ("", ".device"))
    return Group(("offload",), (f"{_BLOCK}stage", *names, *_OLD.values()), read, write)


SHARED: Final[Mapping[str, Callable[[tuple[str, ...], Options], Group]]] = {
    "mixed_precision": _mixed_precision,
    "bitsandbytes": _bitsandbytes,
    "deepspeed_file": _deepspeed_file,
    "model_of_call": _model_of_call,
    "model_argument": _model_argument,
    "offload_blocks": _offload_blocks,
    "roles_on_gpus": roles_on_gpus,
    "models_of_roles": models_of_roles,
}
