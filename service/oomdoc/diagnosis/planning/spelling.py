"""A job field in the words of the person's framework: the keys of its table, as the person's own file spells them.

Settings that a framework says with several keys, or with words of its own, are said as its own table writes them.

The table that patches a person's file is asked to write into an empty one: what it writes is what the change is called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from oomdoc.evidence import Document
from oomdoc.intake.configs import TABLES, Text, patch
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.rules import never
from oomdoc.intake.configs.table import DROP, View
from oomkb.errors import OomdocError
from oomkb.frameworks import canonical, find, line, lineage
from oomkb.memory.job import Job
from oomkb.memory.offload import by_fsdp

_YAML: Final = "model_name_or_path: m\n"
_SHELL: Final = "run --model m"
_HYDRA: Final = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=m trainer.n_gpus_per_node=8"
_FLAGS: Final = frozenset({"megatron", "nemo", "verl", "openrlhf", "vllm", "sglang", "tgi", "lmdeploy", "deepspeed"})
DASHED: Final = frozenset({"lmdeploy", "llama.cpp", "megatron", "openrlhf", "sglang", "tensorrt-llm", "tgi", "vllm"})
"""Frameworks whose settings are options of a command, unless a file says otherwise."""
_BASES: Final[Mapping[str, str]] = {"accelerate": "transformers", "fsdp": "transformers", "peft": "transformers"}
# What no table can write, because it is another file's or the launcher's.
_OTHERWISE: Final[Mapping[tuple[str, str], tuple[str, Any]]] = {
    ("sharding", "zero1"): ("zero_optimization.stage", 1),
    ("sharding", "zero2"): ("zero_optimization.stage", 2),
    ("sharding", "zero3"): ("zero_optimization.stage", 3),
    ("sharding", "fsdp"): ("fsdp", "full_shard auto_wrap"),
    ("sharding", "fsdp2"): ("fsdp_version", 2),
    ("sharding", "hsdp"): ("fsdp", "hybrid_shard auto_wrap"),
    ("sharding", "shard-grad-op"): ("fsdp", "shard_grad_op auto_wrap"),
    ("sharding", "distributed-optimizer"): ("--use-distributed-optimizer", True),
    ("optimizer_impl", "fused"): ("optim", "adamw_torch_fused"),
    ("offload", "optimizer"): ("zero_optimization.offload_optimizer.device", "cpu"),
    ("offload", "param"): ("zero_optimization.offload_param.device", "cpu"),
    ("offload", "activations"): ("activation_offloading", True),
    ("method", "lora"): ("peft_config", "LoraConfig(...)"),
    ("method", "qlora"): ("quantization_config", "BitsAndBytesConfig(load_in_4bit=True)"),
    ("quant", "nf4"): ("load_in_4bit", True),
    ("quant", "int8"): ("load_in_8bit", True),
    ("param_dtype", "bf16"): ("torch_dtype", "bfloat16"),
    ("param_dtype", "fp16"): ("torch_dtype", "float16"),
    ("autocast", "bf16"): ("bf16", True),
    ("autocast", "fp16"): ("fp16", True),
}
_ADAM_OFFLOAD: Final = ("--adam_offload", True)
_FSDP_OFFLOAD: Final = ("fsdp_config.fsdp_offload_params", True)
"""In the file that ``accelerate launch`` reads (accelerate 1.x, ``utils/dataclasses.py``)."""


def spelled(
    framework: str | None, field: str, value: Any, *, sharding: str | None = None
) -> tuple[tuple[str, Any], ...]:
    """The framework's keys and values that say a job field; empty where neither a table nor a convention does.

    :param sharding: how the run is sharded: what is offloaded is a setting of DeepSpeed or of FSDP, whose one switch
        takes parameters and optimizer.
    """
    name = _BASES.get(framework or "transformers", framework or "transformers")
    if field == "offload" and by_fsdp(Job(framework=framework, offload=tuple(value or ())), sharding or ""):
        if (key := line(name, "offload-fsdp")) is not None:
            return ((key, True),)
        both = ["optimizer", "param", *(part for part in value if part not in ("optimizer", "param"))]
        return _written(name, field, json.dumps(both)) or own_words(name, field, both) or (_FSDP_OFFLOAD,)
    if field == "offload" and name == "openrlhf":
        return (_ADAM_OFFLOAD,)
    if field == "offload" and (sharding or "").startswith("zero") and name in ("transformers", "trl", "unsloth"):
        return tuple(_OTHERWISE["offload", v] for v in value if ("offload", v) in _OTHERWISE)
    if (field, value) == ("method", "lora") and (said := line(name, "method-lora")) is not None:
        key, _, word = said.partition("=")
        return ((key, word),)
    written = tuple(
        (key.removeprefix("--") if key.startswith("--zero_optimization") else key, said)
        for key, said in _written(name, field, json.dumps(value))
    )
    if written or not isinstance(value, str | list | tuple):
        return written
    own = own_words(name, field, value)
    if any(word for _, word in own):
        return own
    parts = [value] if isinstance(value, str) else [part for part in value if isinstance(part, str)]
    if field == "method" and parts == ["qlora"]:
        parts = ["qlora", "lora"]  # the base in 4 bits, and adapters on it
    return tuple(_OTHERWISE[field, part] for part in parts if (field, part) in _OTHERWISE)


@lru_cache(maxsize=2048)
def _written(framework: str, field: str, value: str) -> tuple[tuple[str, Any], ...]:
    command = _HYDRA if framework == "verl" else _SHELL
    text, filename = (command, "run.sh") if framework in _FLAGS else (_YAML, "train.yaml")
    try:
        done = patch(text, filename=filename, framework=framework, changes={field: json.loads(value)})
    except OomdocError:
        return ()
    if done.error or field in done.unplaced:
        return ()
    empty = Text(text, filename, framework).settings
    entries = (e for doc in Text(done.text, filename, framework).docs for e in doc.entries)
    return tuple(
        (f"--{e.key}" if e.style in ("flag", "flag=", "bare") else e.key, _value(done.text, e))
        for e in entries
        if e.key[:1] != "@" and e.value is not None and (e.key not in empty or empty[e.key] != e.value)
    )


def _value(text: str, entry: Entry) -> Any:
    """A value as it is written; of a list in a command, its words."""
    start, end = entry.value_span
    if entry.style == "bare" or isinstance(entry.value, bool):
        return entry.value
    written = text[start : entry.items[-1].value_span[1] if entry.items else end].strip("'\"")
    return int(written) if written.isdecimal() and len(written) < 10 else written


def own_words(framework: str | None, field: str, value: Any) -> tuple[tuple[str, Any], ...]:
    """What the framework's table would write for a word of the job, where no file of its form can be written here."""
    if framework in _BASES.values():
        return ()
    for table in (t for t in TABLES if t.name == framework):
        for group in (g for g in table.groups if field in g.fields):
            written = group.write(View((), table=table), field, value) or {}
            if written and not any(isinstance(word, dict) for word in written.values()):
                return tuple((key, word) for key, word in written.items() if word is not DROP)
    return ()


_SEVERAL: Final = frozenset(
    [
        *("autocast", "param_dtype", "method", "quant", "extra_models", "gpu", "capacity_gib", "world", "gpus"),
        *("sharding", "offload", "rollout.colocated", "serving.cuda_graphs"),
    ]
)
"""Said by several keys together, by none, or the other way round: the job's own word is clearer."""
_ABOUT: Final = {"grad_ckpt": "checkpoint"}


@lru_cache(maxsize=4096)
def names_of(framework: str | None, field: str) -> tuple[str, ...]:
    """The keys by which a framework, else one that it is built on, says a job field."""
    tables = {table.name: table for table in TABLES}
    for table in (tables[member.name] for member in lineage(framework) if member.name in tables):
        for key in table.all_keys():
            if key.field == field:
                return key.names
        for group in table.all_groups():
            if field in group.fields and group.write is not never:
                # A group's keys say several things; only those that are about this one name it.
                return tuple(n for n in group.names if _ABOUT.get(field, "") in n)
    return ()


@lru_cache(maxsize=256)
def has_keys(framework: str | None) -> bool:
    """Whether a framework has keys of its own, or its base's: a library that is only called has none."""
    return any(table.name == canonical(framework) and any(True for _ in table.all_keys()) for table in TABLES)


def key_of(framework: str | None, field: str, documents: Sequence[Document] = ()) -> str:
    """The framework's key for a job field, as a document spells it; the field's own name where there is none."""
    if field in _SEVERAL:
        return field
    plain: dict[str, str] = {}
    for name in names_of(framework, field):
        bare = name.rpartition(":")[2]
        plain.setdefault(bare.replace("-", "_"), bare)
    for document in documents:
        for setting in document.settings:
            spelled = setting.key.lstrip("-").replace("-", "_")
            if spelled in plain or any(spelled.endswith(f".{name}") for name in plain if "." in name):
                return with_dashes(setting.key, document)
    first = next(iter(plain.values()), field)
    if documents or not plain:
        return _as_option(first, documents[0], usual=framework in DASHED) if documents and plain else first
    if framework not in DASHED or "." in first:
        return first
    record = find(framework)
    return f"--{first.replace('_', '-') if record is not None and record.dashes else first}"


def with_dashes(key: str, document: Document) -> str:
    """The key with the dashes that stand before it in a command."""
    return next((f"{dashes}{key}" for dashes in ("--", "-") if f"{dashes}{key}" in _typed(document)), key)


def _as_option(key: str, document: Document, *, usual: bool = False) -> str:
    """A key that a document does not have yet, in the form of those that it has.

    :param usual: whether keys of the framework are options of a command wherever there is one.
    """
    typed = _typed(document)
    dashed = (
        "." not in key
        and not key.isupper()
        and (any(word.startswith("--") for word in typed) or (usual and bool(typed)))
    )
    return f"--{key}" if dashed else key


def _typed(document: Document) -> frozenset[str]:
    """The words of a command; of other forms none."""
    if document.form != "shell":
        return frozenset()
    return frozenset(document.text.translate(_APART).split())


_APART: Final = str.maketrans(dict.fromkeys("=\"'[]()", " "))


@lru_cache(maxsize=4096)
def value_of(framework: str | None, field: str, value: Any) -> Any:
    """A job's word as the framework writes it (``flash2``: ``fa2``, ``flash_attention_2``), or as it is."""
    wanted = canonical(framework)
    for table in (t for t in TABLES if t.name == wanted and isinstance(value, str)):
        for key in (k for k in table.all_keys() if k.field == field):
            written = key.codec.write(value, None)
            return written if isinstance(written, str) else value
    return value


def spelt_in(document: Document, field: str) -> bool:
    """Whether a document has a key already that says this field."""
    known = {name.rpartition(":")[2].replace("-", "_") for name in names_of(document.framework, field)}
    return any(setting.key.lstrip("-").replace("-", "_") in known for setting in document.settings)
