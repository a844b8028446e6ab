"""The job fields that a short turn states."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from oomdoc.chat.context import Context
from oomdoc.chat.ellipsis import PARTS, fill, length_of, relative, switched
from oomdoc.chat.explicit import blanked, read_explicit
from oomdoc.chat.machine_and_model import read_framework, read_hardware, read_model
from oomdoc.chat.phrases import (
    ALONE,
    FIELD_NAMES,
    OFF_VALUES,
    QUANTITIES,
    SHARE,
    Said,
    fields_named,
    is_off,
    is_put_off,
    is_replaced,
    said_in,
)
from oomdoc.chat.purpose import turned
from oomdoc.chat.resolving import resolve
from oomdoc.chat.wording import patterns
from oomdoc.intake.asked import asked_in
from oomdoc.intake.numbers import read_number
from oomdoc.intake.polarity import clause
from oomdoc.intake.polarity import negated as denied_before
from oomdoc.intake.quantities import quantities_in
from oomdoc.intake.quantities.fields import SURE, chance, sizes_of_others
from oomdoc.intake.run_figures import host_in
from oomdoc.intake.worded import ROWS
from oomdoc.stated import stated_fields
from oomkb.catalog import models
from oomkb.catalog.gpus import find_all
from oomkb.errors import JobError
from oomkb.frameworks import ENGINES
from oomkb.kept import compiled
from oomkb.memory.job import Job
from oomkb.memory.setting import ONLINE
from oomkb.memory.states import GGUF_BYTES

_RE: Final = patterns("reading")
_MINUS: Final = re.compile(r"(?:\A|\s)[-−]\Z")
_NEVER_ZERO: Final = frozenset({"micro_batch", "seq_len", "grad_accum", "generations", "gpu_memory_utilization"})
"""Fields that are named with a zero only by a slip; ranks, nodes and cards are counted from zero."""
_SHORTEST_LISTED: Final = 256


class Changes(NamedTuple):
    """What a turn sets, and why one of its values is refused."""

    fields: dict[str, Any]
    refused: JobError | None = None


def read_changes(turn: str, context: Context) -> Changes:
    """What a turn sets, as consistent job fields."""
    job = context.job
    spelled = read_explicit(turn, context)
    if spelled.refused is not None:
        return Changes({}, spelled.refused)
    found: dict[str, Any] = dict(spelled.fields)
    spelled_turn = turn
    turn = _KEYED.sub(r"offload \1", blanked(turn, spelled.spans))
    taken = relative(turn, context, found)
    try:
        _phrases(turn, context, found, taken)
    except JobError as error:
        return Changes({}, error)
    if "micro_batch" in found and "grad_accum" not in found and _RE["same_whole"].search(spelled_turn):
        whole = (context.present("micro_batch") or 1) * (context.present("grad_accum") or 1)
        found["grad_accum"] = max(1, round(whole / found["micro_batch"]))
    _told(turn, context, found)
    read_hardware(turn, job, found)
    if other := turned(spelled_turn, found, context):
        context = replace(context, job=job.with_fields(other))
        job = context.job
    elif job.objective == "inference":
        for name in ("method", "grad_ckpt"):
            found.pop(name, None)  # adapters of a server are no way to train, nor is its checkpoint one
        if "optimizer" in (found.get("offload") or ()):
            del found["offload"]  # "offload 30 of the layers"
    read_framework(turn, job, found)
    if job.objective is None and "objective" not in found:
        served = found.get("framework") in ENGINES or asked_in(spelled_turn).concurrency is not None
        found |= {"objective": "sft"} if "method" in found else {"objective": "inference"} if served else {}
    read_model(turn, context, found)
    if found:
        found = switched(turn, context) | _left_over(turn, context, found, taken) | found
    asked = asked_in(turn)
    usual = asked.request_length if found.get("objective", job.objective) == "inference" else None
    if usual is not None and found.get("seq_len") == usual:
        del found["seq_len"]  # of a usual request, not the longest
    if _is_of_pixels(found.get("seq_len")):
        found.setdefault("max_pixels", found.pop("seq_len"))
    if job.objective in ONLINE and "serving.max_num_batched_tokens" in found:
        found.setdefault("micro_tokens", found.pop("serving.max_num_batched_tokens"))  # of the trainer's batches
    found = resolve(
        found or ({} if other else fill(turn, context)),
        context,
        pure=ROWS["pure"].search(turn) is not None,
        whole=_RE["everything"].search(turn) is not None,
    )
    longest = found.get("serving.max_model_len") or job.get("serving.max_model_len")
    if usual is not None and asked.wanted != "requests":
        found |= {"seq_len": usual} if longest else {"seq_len": usual, "serving.max_model_len": usual}
    elif usual is not None and usual > (longest or 0):
        found |= {"serving.max_model_len": usual}  # as many of these as the cache holds
    if other and job.objective != "inference":
        found = {name: value for name, value in found.items() if not name.startswith("serving.")}
    return Changes(other | found)


def _is_of_pixels(length: Any) -> bool:
    """Whether a number is one of pixels: so many patches of 28 x 28, as Qwen's vision models count them."""
    return isinstance(length, int) and length >= _MIN_PIXELS and length % _PATCH == 0


_MIN_PIXELS, _PATCH = 128 * 784, 784


def _told(turn: str, context: Context, found: dict[str, Any]) -> None:
    """What is said without a field's name: host memory, an engine's share of the card, the length of a request."""
    if (square := _RE["square"].search(turn)) is not None and not found.keys() & {"gpus", "nodes"}:
        found |= {"nodes": int(square["n"]), "gpus": int(square["m"])}
    numbers = quantities_in(turn)
    others = sizes_of_others(turn)
    if others and not any(chance(q, "params") >= SURE for q in numbers):  # else what a model takes that is spoken of
        found.setdefault("others_gib", others[0])
    whole = _RE["in_all"].search(turn)
    if whole is not None and "gpus" not in found and any(chance(q, "gpu_count") >= SURE for q in numbers):
        found["gpus"] = int(whole["n"] or whole["n_zh"])
    if (pixels := _RE["of_pixels"].search(turn)) is not None:
        found.setdefault("max_pixels", int(pixels["n"]))
    if (part := _RE["of_them"].search(turn)) is not None and int(part["m"] or part["m_zh"]) == context.present("gpus"):
        found.setdefault("gpus", int(part["n"] or part["n_zh"]))
    host, asked_for = host_in(turn), next(iter(context.recent), None)
    size = _RE["size"].search(turn) if asked_for is not None and asked_for.field == "host_gib" else None
    if host is not None or size is not None:
        found.setdefault("host_gib", host if size is None else float(size["n"]))
    serves = found.get("objective", context.job.objective) == "inference"
    if serves and (split := _RE["instances"].search(turn)) is not None and (count := int(read_number(split["n"]))) > 1:
        everything = (context.job, *context.tried)
        cards = max((one.gpus or 1) * (one.nodes or 1) for one in everything)
        users = found.get("serving.concurrency") or max(one.get("serving.concurrency") or 1 for one in everything)
        found.setdefault("gpus", found.get("tp") or max(1, cards // count))
        found.setdefault("tp", found["gpus"])
        found |= {"serving.concurrency": -(-users // count)} if users > 1 else {}
    share = _RE["share"].search(turn) if serves or context.has_rollout else None
    if share is not None and "gpu_memory_utilization" not in found and not _RE["other_share"].search(turn):
        found.setdefault(context.utilization, float(share["n"]))
    asked = asked_in(turn)
    if serves and asked.concurrency and asked.wanted != "requests":
        found.setdefault("serving.concurrency", asked.concurrency)
    if asked.completion and context.job.objective in ONLINE:
        found.setdefault("completion_len", asked.completion)
    found |= {n: v for n, v in asked.settings.items() if n in _AS_ASKED and n not in found and v not in _ELSEWHERE}


_AS_ASKED: Final = frozenset({"optimizer", "attention", "fused_ce", "lora.targets"})
"""Settings in words that are read as in a question."""
_ELSEWHERE: Final = ("adamw", "eager")
"""Values whose words mean other settings too: what is offloaded, how a server runs."""
_KEYED: Final = re.compile(r"(?i)\boffload_(optimizer|param)(?:eters?)?(?:[._]device)?\b")
"""DeepSpeed's sections, said as words."""


def _left_over(turn: str, context: Context, found: dict[str, Any], taken: list[tuple[int, int]]) -> dict[str, Any]:
    """What numbers stand for beside what was read: a clause that is nothing but one, and a length by its value."""
    read: dict[str, Any] = {}
    places = [*taken, *((m.start, m.start + len(m.text)) for m in find_all(turn))]
    places += [(m.start, m.start + len(m.text)) for m in models.find_all(turn)]
    start = 0
    for stop in (*PARTS.finditer(turn), None):
        end = stop.start() if stop is not None else len(turn)
        if not any(a < end and start < b for a, b in places):
            read |= {n: v for n, v in fill(turn[start:end], context).items() if n not in found and n not in _NAMES}
        start = stop.end() if stop is not None else end
    length = _TOKENS_ALONE.search(turn)
    if length is not None and {*found, *read}.isdisjoint(_LENGTHS):
        serves = found.get("objective", context.job.objective) == "inference"
        read["serving.max_model_len" if serves else length_of(context.job)] = int(read_number(length["n"]))
    return read


_TOKENS_ALONE: Final = compiled(
    r"(?i)(?:\A|(?<!\d),|,(?=\s)|[，;；。、]|\band\b)\s*(?:(?:with|at|on|用)\s)?(?P<n>\d{1,3}(?:,\d{3}){1,2}|\d{3,7}|\d{1,4}k)"
    r"\s?(?:-?tok(?:en)?s?|个\s?tok(?:en)?s?)(?:\s(?:each|now|then|long)|长)?(?=\s*(?:\Z|[,，;；。.!！]|\band\b))"
)
"""A number of tokens that stands by itself: "r=8, bs=1, 2048 tokens"."""
_LENGTHS: Final = ("seq_len", "completion_len", "serving.max_model_len", "serving.concurrency")
"""Fields beside which a number of tokens is no length of the run: it has one, or it is a request's."""
_NAMES: Final = ("gpu", "gpus")
"""What a number that is left over is not taken for."""


def without_kept(turn: str) -> str:
    """The turn without what it says of fields that stay: "don't touch the batch, just length 1024"."""
    return blanked(turn, [m.span() for m in _RE["kept"].finditer(turn) if fields_named(m[0])])


def kept_fields(turn: str) -> tuple[str, ...]:
    """The fields of which a turn says that they stay."""
    return tuple(name for match in _RE["kept"].finditer(turn) for name in fields_named(match[0]))


def held_fields(turn: str) -> tuple[str, ...]:
    """The fields of which a turn says that they stay for good: "the length must stay 8k", "no quantization"."""
    named = [name for match in _RE["held"].finditer(turn) for name in fields_named(match[0])]
    named += [name for match in _RE["forbidden"].finditer(turn) for name in fields_named(match["what"] or match["zh"])]
    named += kept_fields(turn) if _RE["untouched"].search(turn) else ()
    if "offload" in fields_named(turn):
        named = [name for name in named if name != "optimizer"]  # what of it is offloaded stays so, not which it is
    return tuple(dict.fromkeys(one for name in named for one in _HELD_TOGETHER.get(name, (name,))))


def holds_it(turn: str) -> bool:
    """Whether a turn says of what it does not name that it stays: "it has to stay at 8192"."""
    return bool(_RE["held"].search(turn)) and not fields_named(turn)


_HELD_TOGETHER: Final = {
    **dict.fromkeys(("gpu", "gpus", "nodes"), ("gpus", "gpu", "nodes", "world")),
    "seq_len": ("seq_len", "serving.max_model_len"),
    SHARE: (f"rollout.{SHARE}", f"serving.{SHARE}"),
    "quant": ("quant", "serving.kv_dtype"),
    "param_dtype": ("param_dtype", "quant"),
}
"""What cannot change without each other."""


def _phrases(turn: str, context: Context, found: dict[str, Any], taken: list[tuple[int, int]]) -> None:
    """:raises JobError: for a number that the field cannot have (``batch 0``)."""
    said: dict[str, list[Said]] = {}
    negated: dict[str, Any] = {}
    serves = context.job.objective == "inference"
    mentions = list(said_in(turn, taken, serving=serves))
    formats = [(one.start, one.end) for one in mentions if one.field in _FORMATS]
    for mention in mentions:
        of_cache = mention.field in _FORMATS and serves and _of_cache(mention, turn, formats, context)
        one = mention._replace(field="serving.kv_dtype") if of_cache else mention
        bits = (one.field, one.value) == ("quant", "int8")
        if bits and not serves and _of_optimizer(clause(turn, one.start, one.end)):
            one = one._replace(field="optimizer", value="adamw_8bit")
        off = one.field in OFF_VALUES and not _is_number(one.value) and is_off(turn, one.start, one.end)
        if one.field in found or (is_replaced(turn, one.start) and not off) or not _can_be(one, turn, context.job):
            continue
        if (one.field.startswith("rollout.") and serves) or is_put_off(turn, one.end):
            continue
        if off:
            left = OFF_VALUES[one.field]
            if one.field == "offload":
                left = _offloads_left(turn[one.start : one.end], one, context)
            negated.setdefault(one.field, left if left != one.value else None)
            # "enforce eager" said to be off is the graphs on.
            if isinstance(one.value, bool) and one.value == left:
                negated[one.field] = not left
            continue
        said.setdefault(one.field, []).append(one)
    for name, values in said.items():
        wanted = [one for one in values if not (_is_number(one.value) and denied_before(turn, one.start))]
        chosen = _chosen(turn, wanted or values)
        found[name] = chosen.value
        if name == "offload":
            present = () if _RE["alone"].search(turn) else negated.get(name, context.job.offload) or ()
            found[name] = tuple(sorted({*present, *(part for one in values for part in one.value)}))
        found.update({n: v for n, v in chosen.also if n not in found and n not in said})
    found.update({n: v for n, v in negated.items() if n not in found and v is not None})
    for name, pattern in FIELD_NAMES:
        named = [m for m in pattern.finditer(turn) if not any(s < m.end() and m.start() < e for s, e in taken)]
        if name in OFF_VALUES and name not in found and any(is_off(turn, *m.span()) for m in named):
            found[name] = OFF_VALUES[name]


_FORMATS: Final = frozenset({"quant", "param_dtype"})


def _of_cache(one: Said, turn: str, formats: Sequence[tuple[int, int]], context: Context) -> bool:
    """Whether a format is the cache's: the only one of a clause that names the cache and not the weights, or one that a
    cache is held in after the cache's was dealt with, where nothing names the weights.
    """
    if one.value not in ALONE["serving.kv_dtype"]:
        return False
    part = clause(turn, one.start, one.end)
    if _RE["cache"].search(part) and not _RE["weights"].search(part):
        return sum(clause(turn, *span) == part for span in formats) == 1
    if models.find_all(part):
        return False  # the format of the model that is named with it
    cache = context.proposed.get("serving.kv_dtype") or context.job.get("serving.kv_dtype")
    dealt = cache is not None or any(recent.field == "serving.kv_dtype" for recent in context.recent)
    dealt |= one.field == "param_dtype" and context.job.quant in GGUF_BYTES  # of a file of few bits nobody wants 16
    return (
        dealt
        and not _RE["weights"].search(turn)
        and (one.value.startswith("q") or one.field == "param_dtype" or one.value == cache != context.job.quant)
    )


def _of_optimizer(part: str) -> bool:
    """Whether a clause is about the optimizer and not about the weights."""
    return "optimizer" in fields_named(part) and _RE["weights"].search(part) is None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _offloads_left(said: str, one: Said, context: Context) -> tuple[str, ...]:
    """The offloads that stay where one is taken away by name; all go where none is named."""
    if not _RE["offloaded"].search(said):
        return ()
    return tuple(part for part in context.job.offload or () if part not in one.value)


def _chosen(turn: str, values: list[Said]) -> Said:
    """Of several values for one field: "from A to B" means B; else the first."""
    if len(values) > 1:
        ordered = sorted(values, key=lambda v: v.start)
        for left, right in itertools.pairwise(ordered):
            if _RE["arrow"].match(turn[left.end : right.start]):
                return right
        kept = [v for v in values if not _RE["from"].search(turn[max(0, v.start - 6) : v.start])]
        values = kept or values
    return values[0]


def _can_be(one: Said, turn: str, job: Job) -> bool:
    """Whether a number is one of its field.

    :raises JobError: where it is none that a run can have.
    """
    if not _is_number(one.value):
        return True
    if _MINUS.search(turn, 0, one.start):
        stated_fields({one.field: -1})
    if one.value == 0 and one.field in _NEVER_ZERO and job.model is not None:
        stated_fields({one.field: 0})
    if one.field == "serving.concurrency" and turn[one.end - 1 : one.end].lower() == "k":
        return False  # "how many 32k requests": how long each of them is
    limits = next((q for q in QUANTITIES if q.field == one.field), None)
    if limits is not None and limits.convert is int and one.value != int(one.value):
        stated_fields({one.field: one.value})
    return one.value > 0 and (limits is None or limits.lowest / 8 <= one.value <= limits.highest * 8)
