"""Codecs under the names that records use for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from oomdoc.intake.configs import codecs
from oomdoc.intake.configs.codecs import ATTENTION, FLAG, GRAD_CKPT, MODEL, OPTIMIZER, TARGETS, dtype_word
from oomdoc.intake.configs.shards import stage_and_offload
from oomdoc.intake.configs.shared import zero_word
from oomdoc.intake.configs.table import DROP, Codec, Raw, words
from oomdoc.intake.configs.values import flag, number, whole
from oomdoc.intake.configs.wordlist import listed, meanings
from oomkb.errors import JobError
from oomkb.frameworks import ENGINES, LAUNCHERS, canonical
from oomkb.kept import compiled
from oomkb.memory.mode import normalise

_DEGREE: Final = compiled(r"([a-z])([0-9]{1,5})")
_RANGE: Final = compiled(r"list\(range\(([0-9]{1,6}),\s?([0-9]{1,6})\)\)\Z")


def _never(_value: Any, _old: Any) -> Any:
    return None


def _degree(letter: str) -> Codec:
    """The size of one dimension in ``megatron:d4p1t2`` (AReaL); a dimension that is left out is one."""

    def read(value: Any) -> int | None:
        if not isinstance(value, str) or ":" not in value or len(value) > 100:
            return None
        parts = re.split(r"[(|)]", value.partition(":")[2])  # (attn:d4t2|ffn:d4t1e2): the experts' own degrees
        own = parts[0] or next((p for p in parts if p.startswith("ffn" if letter == "e" else "attn")), "")
        return int(dict(_DEGREE.findall(own.rpartition(":")[2])).get(letter, 1))

    def write(value: Any, old: Any) -> Any:
        head, colon, tail = str(old or "").partition(":")
        if "(" in tail:
            return None
        parts = dict(_DEGREE.findall(tail)) | {letter: str(value)}
        return f"{head}{colon}" + "".join(f"{name}{size}" for name, size in parts.items())

    return Codec(read, write)


def _engine(value: Any) -> str | None:
    found = canonical(re.split(r"[:_]", str(value), maxsplit=1)[0])
    return found if found in ENGINES else None


def _ranks(value: Any) -> int | None:
    """How many GPUs ``list(range(0,8))`` is."""
    found = _RANGE.match(value.strip()) if isinstance(value, str) else None
    return int(found[2]) - int(found[1]) if found and int(found[2]) > int(found[1]) else None


def _joined(value: Any, old: Any) -> Any:
    if value == "all-linear":
        return "all"
    names = [value] if isinstance(value, str) else list(value)
    return names if isinstance(old, list) else ",".join(names)


def _bucket(value: Any) -> Any:
    found = number(value)
    return "auto" if value == "auto" else None if found is None else int(found)


def _zero_of_file(value: Any) -> str | None:
    """The stage that a configuration of a launcher is named after (``configs/zero2.yaml``)."""
    name = value.rsplit("/", 1)[-1].lower() if isinstance(value, str) else ""
    return zero_word(stage_and_offload(name)[0]) if any(n in name for n in ("zero", *LAUNCHERS)) else None


def _offload_of_file(value: Any) -> list[str] | None:
    return list(stage_and_offload(value)[1]) or None if isinstance(value, str) else None


_STRATEGY: Final = meanings("fsdp_strategy")
_PRECISION: Final = {"bf16": "bf16", "fp16": "16", "fp32": "32"}


def _precision(value: Any) -> str | None:
    text = str(value).lower().replace("_", "-")
    return {"16-mixed": "fp16"}.get(text) or dtype_word(text.removesuffix("-mixed"))


def _write_precision(value: Any, old: Any) -> Any:
    return _PRECISION[value] + ("-mixed" if "mixed" in str(old or "") else "") if value in _PRECISION else None


_CLASSES: Final = listed("optimizer_class")


def _optimizer_class(value: Any) -> str | None:
    text = str(value)
    found = OPTIMIZER.read(text) or OPTIMIZER.read(text.rsplit(".", 1)[-1])
    return str(found) if found else None


def _write_class(value: Any, old: Any) -> Any:
    """The class as it stands there: by its whole name in a configuration, by its own where code imports it."""
    path = _CLASSES.get(value)
    if path is None or old is None or "." in str(old):
        return path
    home, _, name = path.rpartition(".")
    return Raw(name, f"from {home} import {name}")


_BUILDER: Final = compiled(r"torchtune\.models\.\w{1,40}\.(\w{1,80})")
_SIZE: Final = compiled(r"_?([0-9]{1,3}(?:_[0-9])?b)\b")
_ADAPTED: Final = compiled(r"^(?:qlora|lora|dora)_")


def _builder_model(value: Any) -> str | None:
    """The architecture and size that a builder's name says: ``llama3_1.lora_llama3_1_8b``."""
    found = _BUILDER.match(str(value))
    if found is None or not _SIZE.search(found[1]):
        return None
    return _ADAPTED.sub("", found[1]).replace("_", "-")


def _model_folder(value: Any) -> str | None:
    """The model whose files lie in a folder."""
    parts = [p for p in str(value).split("/") if p not in ("", "original") and "$" not in p]
    base = parts[-1] if parts else ""
    return base if any(c.isdigit() for c in base) and base.lower() not in ("epoch_0", "output") else None


def _rebuilt(value: Any, old: Any) -> Any:
    """The builder of a model with adapters on a base in 16 or four bits; one without is another recipe's."""
    head, _, builder = str(old or "").rpartition(".")
    plain = _ADAPTED.sub("", builder)
    prefix = {"lora": "lora_", "qlora": "qlora_", "nf4": "qlora_", "nf4-double": "qlora_", "none": "lora_"}.get(value)
    return f"{head}.{prefix}{plain}" if head and prefix and builder != plain else None


_ATTENTION_PARTS: Final = ("q_proj", "k_proj", "v_proj", "output_proj")
_MLP_PARTS: Final = ("gate_proj", "up_proj", "down_proj")


def _also_on(*parts: str) -> Codec:
    """Adapters on the listed parts of attention (torchtune's names), and on further ones that switches turn on."""

    def read(value: Any) -> Any:
        found = TARGETS.read(value)
        names = [*found, *parts] if isinstance(found, list | tuple) else found
        return "all-linear" if set(names or ()) == {*_ATTENTION_PARTS, *_MLP_PARTS} else names

    def write(value: Any, _old: Any) -> Any:
        names = list(_ATTENTION_PARTS) if value == "all-linear" else value
        plain = ["output_proj" if name == "o_proj" else name for name in names if isinstance(names, list | tuple)]
        return plain if plain and set(plain) <= set(_ATTENTION_PARTS) else None

    return Codec(read, write)


def _listing(name: str) -> Codec:
    """A list that has to name a module, beside what it names already."""

    def write(_value: Any, old: Any) -> list[Any]:
        names = list(old) if isinstance(old, list | tuple) else [old] if isinstance(old, str) and old else []
        return names if name in names else [*names, name]

    return Codec(lambda value: name in value if isinstance(value, list | tuple) else None, write)


_WRITTEN_QUANT: Final = meanings("quantization")
_QUANT: Final = _WRITTEN_QUANT | meanings("quantization_read")
_QUANT_WRITTEN: Final = {name: spelling for spelling, name in reversed(_WRITTEN_QUANT.items())}


def _write_quantization(value: Any, _old: Any) -> Any:
    return DROP if value == "none" else _QUANT_WRITTEN.get(str(value).removesuffix("-double"))


_STORED: Final = r"[-_.:](?P<kind>i?q[2-8](?:_(?!i?q[2-8])[a-z0-9]{1,2}){0,2}|f16|bf16|f32|fp16|mxfp4|gguf)"
_GGUF: Final = compiled(rf"(?:{_STORED.replace('?P<kind>', '?:')})+(?:\.gguf)?\Z|\.gguf\Z", re.I)
_BLOCKS: Final = compiled(_STORED + r"(?:\.gguf)?\Z", re.I)
_RECIPE: Final = compiled(r"_(?:pretrain|sft|peft|finetune)(?:_\w{0,60})?\Z")


def _plain_model(value: Any) -> str | None:
    """The model of a file of weights or of a tag: ``Qwen3-14B-Q4_K_M.gguf``, ``llama3.1:8b-instruct-q4_K_M``."""
    found = MODEL.read(value)
    if found is None:
        return None
    name = found.rsplit("/", 1)[-1] if found.lower().endswith(".gguf") or found[:1] in "./~" else found
    return _GGUF.sub("", name).replace(":latest", "").replace(":", "-") or None


def _gguf_quant(value: Any) -> str | None:
    """How a file or tag is stored, in llama.cpp's words."""
    found = _BLOCKS.search(str(value)[-200:])
    kind = found["kind"].lower() if found else ""
    if "q" in kind[:2]:
        return _block(kind)
    return {"f16": "none", "bf16": "none", "fp16": "none", "mxfp4": "mxfp4"}.get(kind)


def _block(kind: str) -> str | None:
    try:
        return str(normalise("quant", kind))
    except JobError:
        return None


def _last_layers(value: Any) -> int | None:
    """How many of the last layers; every one where it is none or less (mlx-lm's ``model.layers[-max(n, 0) :]``)."""
    found = whole(value)
    return None if found is None else max(0, found)


_METHODS: Final = ("qlora", "lora", "full", "freeze")
_BESIDE_METHOD: Final = words("custom sft peft fine tuning tune finetune finetuning ft training train parameter param")


def _method(value: Any) -> str | None:
    """What is trained, by the words that a setting is called after: ``full_finetune``, ``LoRA``, ``custom_qlora``."""
    said = words(compiled("[^a-z]+").sub(" ", str(value).lower()))
    named = [method for method in _METHODS if method in said]
    return named[0] if len(named) == 1 and said <= _BESIDE_METHOD | set(named) else None


def _recipe_model(value: Any) -> str | None:
    """The model that a recipe is named after: ``llama3_8b_pretrain_config``."""
    name = _RECIPE.sub("", str(value))
    return name.replace("_", "-") if name != str(value) and _SIZE.search(name) else None


CODECS: Final[Mapping[str, Codec]] = {
    **{
        name: getattr(codecs, name.upper())
        for name in (
            *("int", "count", "number", "fraction", "text", "model", "flag", "dtype", "attention", "optimizer", "not"),
            *("targets", "grad_ckpt", "fp8_named"),
        )
    },
    "truth": Codec(lambda value: bool(flag(value)), FLAG.write),
    "engine": Codec(_engine, lambda value, _old: value),
    "ranks": Codec(_ranks, lambda value, _old: f"list(range(0,{value}))"),
    **{f"degree_{letter}": _degree(letter) for letter in "tpdce"},
    "attention_parts": _also_on(),
    "and_mlp": _also_on(*_MLP_PARTS),
    "axolotl_liger": _listing("axolotl.integrations.liger.LigerPlugin"),
    "and_output": _also_on("lm_head"),
    "and_mlp_output": _also_on(*_MLP_PARTS, "lm_head"),
    "targets_joined": Codec(TARGETS.read, _joined),
    "attention_short": Codec(
        ATTENTION.read,
        lambda value, old: (
            "flash_attn" if value == "flash2" and "attention_2" not in str(old) else ATTENTION.write(value, old)
        ),
    ),
    "grad_ckpt_unsloth": Codec(GRAD_CKPT.read, lambda value, _old: "unsloth" if value == "offload" else value),
    "bucket": Codec(_bucket, lambda v, _old: int(v) if isinstance(v, float) and v == int(v) else v),
    "zero": Codec(
        lambda value: zero_word(whole(value)), lambda value, _old: int(value[-1]) if "zero" in str(value) else None
    ),
    "stage_of_file": Codec(lambda v: zero_word(stage_and_offload(v)[0]) if isinstance(v, str) else None, _never),
    "zero_of_file": Codec(_zero_of_file, _never),
    "offload_of_file": Codec(_offload_of_file, _never),
    "fsdp_strategy": Codec(lambda value: _STRATEGY.get(str(value).lower(), "fsdp"), _never),
    "precision": Codec(_precision, _write_precision),
    "optimizer_class": Codec(_optimizer_class, _write_class),
    "builder_model": Codec(_builder_model, _never),
    "model_folder": Codec(_model_folder, _never),
    "builder": Codec(MODEL.read, _rebuilt),
    "quantization": Codec(lambda value: _QUANT.get(str(value).lower()), _write_quantization),
    "method": Codec(_method, _never),
    "last_layers": Codec(_last_layers, lambda value, _old: value or -1),
    "plain_model": Codec(_plain_model, _never),
    "recipe_model": Codec(_recipe_model, _never),
    "gguf_quant": Codec(_gguf_quant, _never),
}
