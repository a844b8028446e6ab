"""Settings that a turn spells out: ``key=value``, ``--flag value``, a key and its value, in any framework's spelling.

They are understood whatever stands around them, read by the tables that read config files, and refused where no run can
have the value: nothing else in the turn may be taken for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from oomdoc.chat.context import Context
from oomdoc.evidence import Source
from oomdoc.stated import stated_fields
from oomkb.errors import JobError
from oomkb.memory.job import Job

__all__ = ["Explicit", "read_explicit"]

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_SPELLED: Final = re.compile(
    r"(?<![\w./-])(?P<flag>--?)?(?P<key>[A-Za-z][\w-]{0,48}(?:\.[A-Za-z][\w-]{0,40}){0,5})"
    r"(?:\s{0,2}(?P<equals>[=:：]|->|→)\s{0,2}|\s{1,2}(?:to\s|is\s|at\s|of\s)?|(?=[\u4e00-\u9fff]{1,3}\s?[\d.])[\u4e00-\u9fff]{1,3}\s?)"
    r"(?P<value>[+-]?\d[\d,.]{0,12}(?:e-?\d{1,2})?\s?(?:k|K|%|GiB|GB|G)?(?![A-Za-z0-9_])|[A-Za-z][\w.+-]{0,40})"
)
_WORDS: Final = frozenset(
    [
        *("a", "an", "the", "it", "that", "this", "i", "we", "to", "is", "at", "of", "on", "off", "in", "and", "or"),
        *("with", "what", "if", "let", "set", "make", "use", "try", "go", "put", "please", "for", "my", "me", "be"),
        *("true", "false", "yes", "no", "not", "just", "only", "same", "instead", "more", "less", "now", "then"),
    ]
)
"""Words of a sentence that no setting is called."""
_ALIASES: Final[Mapping[str, str]] = {
    "n": "generations",
    "rollout_n": "generations",
    "bs": "micro_batch",
    "bsz": "micro_batch",
    "mbs": "micro_batch",
    "mb": "micro_batch",
    "batch_size": "micro_batch",
    "micro_train": "micro_batch",
    "micro_train_batch": "micro_batch",
    "r": "lora.r",
    "rank": "lora.r",
    "lora_rank": "lora.r",
    "lora_r": "lora.r",
    "ga": "grad_accum",
    "gas": "grad_accum",
    "ctx": "seq_len",
    "seqlen": "seq_len",
    "seq": "seq_len",
    "max_length": "seq_len",
    "max_seq_length": "seq_len",
    "num_ctx": "serving.max_model_len",
    "tp_size": "tp",
    "pp_size": "pp",
    "cp_size": "cp",
    "ep_size": "ep",
    "zero": "zero_stage",
    "zero_stage": "zero_stage",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "gpu_mem_util": "gpu_memory_utilization",
    "mem_fraction_static": "gpu_memory_utilization",
    "vllm_gpu_memory_utilization": "gpu_memory_utilization",
    "max_model_len": "serving.max_model_len",
    "max_num_seqs": "serving.max_num_seqs",
    "max_num_batched_tokens": "serving.max_num_batched_tokens",
}
_IMPLIED: Final = frozenset({"framework", "objective", "params_b", "world", "method"})
"""What a key says beside its own field; a turn about one key changes that alone."""
_SWITCHES: Final = {"on": True, "off": False, "true": True, "false": False, "yes": True, "no": False}
_GROUPED: Final = frozenset({"quant", "sharding", "offload", "method", "grad_ckpt", "autocast", "extra_models"})
"""Fields that keys say in words of their own (``quantization_bit: 4``)."""
_BARE: Final = frozenset({"n", "r", "mb", "bs", "zero", "seq", "rank"})
"""Names that are words as well: understood with ``=`` or before a number."""
_SPACES: Final = re.compile(
    r"(?i)(?<![\w-])(micro)[ -](train|batch|rollout)(?:[ -](batch))?(?:[ -](size))?(?=\s?(?:[=:]|\d|to\b))"
)


@dataclass(frozen=True, slots=True)
class Explicit:
    """The fields that a turn spells out, where they stand, and why one of them is refused."""

    fields: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    spans: tuple[tuple[int, int], ...] = ()
    refused: JobError | None = None


def read_explicit(turn: str, context: Context) -> Explicit:
    """What a turn spells out; the first impossible value is kept as a refusal."""
    text = _SPACES.sub(lambda m: "_".join(p for p in m.groups() if p).ljust(len(m[0])), turn)
    found: dict[str, Any] = {}
    spans: list[tuple[int, int]] = []
    for match in _settings(text):
        try:
            fields = _fields(match, context)
        except JobError as error:
            return Explicit(found, (*spans, match.span()), error)
        if fields:
            found.update(fields)
            spans.append(match.span())
    return Explicit(found, tuple(spans))


def _settings(text: str) -> Iterator[re.Match[str]]:
    start = 0
    while (match := _SPELLED.search(text, start)) is not None:
        key, value = match["key"].lower(), match["value"]
        word = not match["equals"] and not match["flag"]
        sentence = key in _WORDS or (word and not value[0].isdigit() and value[0] not in "+-" and "_" not in key)
        if sentence:
            start = match.start() + max(1, len(match["key"]))
            continue
        yield match
        start = match.end()


def _fields(match: re.Match[str], context: Context) -> dict[str, Any]:
    """The job fields of one setting; none for a key that is nobody's."""
    key, value = match["key"], match["value"].strip()
    name = key.replace("-", "_").lower()
    signed = bool(match["equals"] or match["flag"])
    if name in _BARE and not signed and not value[0].isdigit():
        return {}
    named = _ALIASES.get(name) or (name if _is_field(name) else _field_of(name, context.job.framework))
    if named is None and "." in name:
        last = name.rpartition(".")[2]
        named = _ALIASES.get(last) or _field_of(last, context.job.framework)
    if named is None or named in _GROUPED:
        return _by_tables(key, value, context.job) if signed or "_" in key else {}
    if not signed and "_" not in name and name not in _ALIASES:
        return {}
    return _checked(key, named, value, context)


def _checked(key: str, field: str, value: str, context: Context) -> dict[str, Any]:
    """The field with its value, refused under the name that the person used."""
    if field == "gpu_memory_utilization":
        field = context.utilization
    serves = context.job.objective == "inference"
    given = _scalar(value, share=field.endswith("utilization"))
    if field == "zero_stage":
        read = stated_fields({"zero_stage": given})
        stage = read["zero_stage"]
        return {"sharding": "ddp" if stage == 0 else f"zero{stage}"}
    try:
        fields = stated_fields({field: given})
    except JobError as error:
        if not isinstance(given, int | float):
            return _by_tables(key, value, context.job)
        raise JobError(error.message, where=key, hint=error.hint, note=error.note) from error
    if field == "seq_len" and serves:
        fields["serving.max_model_len"] = fields["seq_len"]
    return fields


def _scalar(value: str, *, share: bool) -> Any:
    low = value.lower()
    if low in _SWITCHES:
        return _SWITCHES[low]
    text = low.replace(",", "").replace(" ", "").removesuffix("gib").removesuffix("gb").removesuffix("g")
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        if text.endswith("k"):
            number = float(text[:-1])
            return int(number * (1000 if number != int(number) or number % 5 == 0 else 1024))
        number = float(text)
    except ValueError:
        return value
    if share and number == int(number) and 5 <= number <= 100:
        return number / 100
    return int(number) if number == int(number) and "e" not in text and "." not in text else number


def _by_tables(key: str, value: str, job: Job) -> dict[str, Any]:
    """What the framework's own table makes of the line."""
    from oomdoc.intake.configs import read_documents, to_job
    from oomdoc.intake.configs.registry import all_names

    if key not in all_names() and key.replace("-", "_") not in all_names():
        return {}
    reading = read_documents(Source("turn", f"{key}: {value}"), framework=job.framework)
    document = to_job({f.name: f for f in reading.facts}, job.framework, job.versions).document()
    found: dict[str, Any] = {}
    for name, read in document.items():
        if name in _IMPLIED:
            continue
        if isinstance(read, Mapping):
            found.update({f"{name}.{n}": v for n, v in read.items()})
        else:
            found[name] = read
    return found


@cache
def _own_fields() -> frozenset[str]:
    return frozenset(Job.__dataclass_fields__) - {"extra", "assumed", "model", "versions", "env", "buckets"}


def _is_field(name: str) -> bool:
    head, _, tail = name.partition(".")
    return (name in _own_fields() and not tail) or (head in ("lora", "rollout", "serving") and bool(tail))


@cache
def _fields_by_key(framework: str) -> Mapping[str, str]:
    """Last part of a key -> the one field that it says, the framework's own table first."""
    from oomdoc.intake.configs import TABLES

    found: dict[str, str] = {}
    for table in sorted(TABLES, key=lambda t: t.name != framework):
        for key in table.all_keys():
            for name in key.names:
                plain = name.rpartition(":")[2].replace("-", "_").lower()
                if len(plain) > 1:
                    found.setdefault(plain, key.field)
                    found.setdefault(plain.rpartition(".")[2], key.field) if len(plain.rpartition(".")[2]) > 3 else None
    return found


def _field_of(name: str, framework: str | None) -> str | None:
    field = _fields_by_key(framework or "").get(name)
    return field if field and field.partition(".")[0] in {*_own_fields(), "lora", "rollout", "serving"} else None
