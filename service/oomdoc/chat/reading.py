"""The job fields that a short turn states."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from oomdoc.chat.context import Context
from oomdoc.chat.ellipsis import PARTS, fill, length_of, relative, switched
from oomdoc.chat.explicit import read_explicit
from oomdoc.chat.phrases import (
    FIELD_NAMES,
    OFF_VALUES,
    PHRASES,
    QUANTITIES,
    Phrase,
    fields_named,
    is_corrected,
    is_off,
    is_replaced,
)
from oomdoc.chat.purpose import turned
from oomdoc.chat.resolving import resolve
from oomdoc.chat.wording import patterns
from oomdoc.intake.asked import asked_in
from oomdoc.intake.numbers import read_number
from oomdoc.intake.run_figures import host_in
from oomdoc.intake.worded import ROWS
from oomdoc.stated import stated_fields
from oomkb.catalog import models
from oomkb.catalog.gpus import find_all
from oomkb.errors import JobError
from oomkb.frameworks import canonical
from oomkb.memory.job import Job

_RE: Final = patterns("reading")
_MINUS: Final = re.compile(r"(?:\A|\s)[-−]\Z")
_NEVER_ZERO: Final = frozenset({"micro_batch", "seq_len", "grad_accum", "generations", "gpu_memory_utilization"})
"""Fields that are named with a zero only by a slip; ranks, nodes and cards are counted from zero."""
_SHORTEST_LISTED: Final = 256
_PLURAL: Final = re.compile(r"(?<=\d)s\Z")
_LEADING_COUNT: Final = re.compile(r"\A(?:\d{1,4}|[一二两三四五六七八九十]{1,3})\s?[xX×*张块片卡个]?\s?(?=[A-Za-z0-9])")


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
    turn = _KEYED.sub(r"offload \1", _without(turn, spelled.spans))
    taken = relative(turn, context, found)
    try:
        _phrases(turn, context, found, taken)
    except JobError as error:
        return Changes({}, error)
    _told(turn, context, found)
    _hardware(turn, job, found)
    if other := turned(spelled_turn, found, context):
        context = replace(context, job=job.with_fields(other))
        job = context.job
    elif job.objective == "inference":
        found.pop("method", None)  # adapters of a server are no way to train
    _framework(turn, job, found)
    _model(turn, job, found)
    _listed(turn, found)
    if found:
        found = switched(turn, context) | _left_over(turn, context, found, taken) | found
    elif (target := _RE["target"].search(turn)) is not None and read_number(target["n"]) >= _SHORTEST_LISTED:
        found[length_of(job)] = int(read_number(target["n"]))
    found = resolve(
        found or ({} if other else fill(turn, context)),
        context,
        pure=ROWS["pure"].search(turn) is not None,
        whole=_RE["everything"].search(turn) is not None,
    )
    if other and job.objective != "inference":
        found = {name: value for name, value in found.items() if not name.startswith("serving.")}
    return Changes(other | found)


def _told(turn: str, context: Context, found: dict[str, Any]) -> None:
    """What is said without a field's name: host memory, an engine's share of the card, the length of a request."""
    if (square := _RE["square"].search(turn)) is not None and not found.keys() & {"gpus", "nodes"}:
        found |= {"nodes": int(square["n"]), "gpus": int(square["m"])}
    host = host_in(turn)
    if host is not None:
        found.setdefault("host_gib", host)
    serves = found.get("objective", context.job.objective) == "inference"
    share = _RE["share"].search(turn) if serves or context.has_rollout else None
    if share is not None and "gpu_memory_utilization" not in found and not _RE["other_share"].search(turn):
        found.setdefault(context.utilization, float(share["n"]))
    asked = asked_in(turn)
    found |= {n: v for n, v in asked.settings.items() if n in _AS_ASKED and n not in found and v not in _ELSEWHERE}
    length = None
    if serves and asked.wanted == "requests":
        each = _RE["thousands"].search(turn)
        length = asked.request_length or asked.length or (int(read_number(each["n"])) if each is not None else None)
    if length is not None and not found.keys() & {"seq_len", "serving.max_model_len"}:
        found["seq_len"] = length


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
    if not (read.keys() | found.keys()) & {"seq_len", "serving.max_model_len", "completion_len"}:
        for match in _RE["length"].finditer(turn):
            number = read_number(match["n"])
            if number >= _SHORTEST_LISTED and not any(a < match.end() and match.start() < b for a, b in places):
                read[length_of(context.job)] = int(number)
    return read


_NAMES: Final = ("gpu", "gpus")
"""What a number that is left over is not taken for."""


def without_kept(turn: str) -> str:
    """The turn without what it says of fields that stay: "don't touch the batch, just length 1024"."""
    return _without(turn, [m.span() for m in _RE["kept"].finditer(turn) if fields_named(m[0])])


def kept_fields(turn: str) -> tuple[str, ...]:
    """The fields of which a turn says that they stay."""
    return tuple(name for match in _RE["kept"].finditer(turn) for name in fields_named(match[0]))


def held_fields(turn: str) -> tuple[str, ...]:
    """The fields of which a turn says that they stay for good: "the length must stay 8k", "no quantization"."""
    named = [name for match in _RE["held"].finditer(turn) for name in fields_named(match[0])]
    named += [name for match in _RE["forbidden"].finditer(turn) for name in fields_named(match["what"] or match["zh"])]
    named += kept_fields(turn) if _RE["untouched"].search(turn) else ()
    return tuple(dict.fromkeys(one for name in named for one in _HELD_TOGETHER.get(name, (name,))))


def holds_it(turn: str) -> bool:
    """Whether a turn says of what it does not name that it stays: "it has to stay at 8192"."""
    return bool(_RE["held"].search(turn)) and not fields_named(turn)


_HELD_TOGETHER: Final = {
    **dict.fromkeys(("gpu", "gpus", "nodes"), ("gpus", "gpu", "nodes", "world")),
    "seq_len": ("seq_len", "serving.max_model_len"),
    "quant": ("quant", "serving.kv_dtype"),
    "param_dtype": ("param_dtype", "quant"),
}
"""What cannot change without each other."""


def _listed(turn: str, found: dict[str, Any]) -> None:
    """Items of a list that stand alone: "7B, full, A100, 4096, batch 2" is about a length of 4,096."""
    for match in _RE["item"].finditer(turn):
        item = match["item"].strip().lower()
        if item == "full":
            found.setdefault("method", "full")
        elif not found.keys() & {"seq_len", "serving.max_model_len"} and read_number(item) >= _SHORTEST_LISTED:
            found["seq_len"] = int(read_number(item))


def _without(turn: str, spans: Sequence[tuple[int, int]]) -> str:
    """The turn without what was spelled out, so that nothing is read twice."""
    for start, end in spans:
        turn = f"{turn[:start]}{' ' * (end - start)}{turn[end:]}"
    return turn


def _phrases(turn: str, context: Context, found: dict[str, Any], taken: list[tuple[int, int]]) -> None:
    """:raises JobError: for a number that the field cannot have (``3.7 gpus``)."""
    said: dict[str, list[tuple[int, int, Any, Phrase]]] = {}
    negated: dict[str, Any] = {}

    def free(pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        for match in pattern.finditer(turn):
            if not any(start < match.end() and match.start() < end for start, end in taken):
                yield match

    for phrase in PHRASES:
        if phrase.field in found or (phrase.serving and context.job.objective != "inference"):
            continue
        for match in free(phrase.pattern):
            value = _value(phrase, match, context.job)
            if value is None:
                continue
            taken.append(match.span())
            if is_replaced(turn, match.start()):
                continue
            if phrase.value is not None and phrase.field in OFF_VALUES and is_off(turn, *match.span()):
                off = OFF_VALUES[phrase.field]
                if phrase.field == "offload":
                    off = _offloads_left(turn[match.start() : match.end()], phrase, context)
                negated.setdefault(phrase.field, off if off != phrase.value else None)
                # "enforce eager" said to be off is the graphs on.
                if isinstance(phrase.value, bool) and phrase.value == off:
                    negated[phrase.field] = not off
                continue
            said.setdefault(phrase.field, []).append((*match.span(), value, phrase))
    for name, values in said.items():
        found[name], phrase = _chosen(turn, values)
        found.update({n: v for n, v in phrase.also if n not in found and n not in said})
    found.update({n: v for n, v in negated.items() if n not in found and v is not None})
    for name, pattern in FIELD_NAMES:
        if name in OFF_VALUES and name not in found and any(is_off(turn, *m.span()) for m in free(pattern)):
            found[name] = OFF_VALUES[name]


def _offloads_left(said: str, phrase: Phrase, context: Context) -> tuple[str, ...]:
    """The offloads that stay where one is taken away by name; all go where none is named."""
    if not _RE["offloaded"].search(said):
        return ()
    return tuple(part for part in context.job.offload or () if part not in phrase.value)


def _chosen(turn: str, values: list[tuple[int, int, Any, Phrase]]) -> tuple[Any, Phrase]:
    """Of several values for one field: "from A to B" means B; else the first in the phrases' order."""
    if len(values) > 1:
        ordered = sorted(values, key=lambda v: v[0])
        for left, right in itertools.pairwise(ordered):
            if _RE["arrow"].match(turn[left[1] : right[0]]):
                return right[2], right[3]
        kept = [v for v in values if not _RE["from"].search(turn[max(0, v[0] - 6) : v[0]])]
        values = kept or values
    return values[0][2], values[0][3]


def _value(phrase: Phrase, match: re.Match[str], job: Job) -> Any:
    if phrase.value is not None:
        return phrase.value
    try:
        groups = match.groupdict()
        if _MINUS.search(match.string, 0, match.start("n")):
            stated_fields({phrase.field: -1})
        number = read_number(next((size for size in groups.values() if size), "").replace("%", "").strip())
    except (ValueError, OverflowError):
        return None
    if phrase.field == "serving.concurrency" and (groups["n"] or "").lower().endswith("k"):
        return None  # "how many 32k requests": how long each of them is
    limits = next((q for q in QUANTITIES if q.field == phrase.field), None)
    if number == 0 and phrase.field in _NEVER_ZERO and job.model is not None:
        stated_fields({phrase.field: 0})
    if number <= 0 or (limits and not limits.lowest / 8 <= number <= limits.highest * 8):
        return None
    if phrase.convert is int and number != int(number):
        stated_fields({phrase.field: number})
    return phrase.convert(number)


def _hardware(turn: str, job: Job, found: dict[str, Any]) -> None:
    """A GPU by name, and the number in front of it: "two 3090s", "2×4090", "换成 H20"."""
    mentions = [m for m in find_all(turn) if not is_replaced(turn, m.start)]
    mentions = [m for m in mentions if not is_corrected(turn, m.start)] or mentions
    for mention in mentions[-1:] if _arrowed(turn, mentions) else mentions[:1]:
        name = _PLURAL.sub("", _LEADING_COUNT.sub("", mention.text.strip()) if mention.count else mention.text.strip())
        name = _RE["size_first"].sub(r"\g<name> \g<size>", name)
        if not re.match(rf"(?i){re.escape(name)}[\s-]", job.gpu or ""):  # "four A100s": of the size that the job has
            found["gpu"] = name
        before = _RE["count_before"].search(turn[max(0, mention.start - 16) : mention.start])
        after = _RE["count_after"].match(turn[mention.start + len(mention.text) :])
        if "gpus" in found:
            continue
        if mention.count:
            found["gpus"] = mention.count
        elif before:
            found["gpus"] = int(read_number(before["n"]))
        elif after:
            found["gpus"] = int(after["n"] or after["m"])


def _arrowed(turn: str, mentions: list[Any]) -> bool:
    pairs = itertools.pairwise(mentions)
    return any(_RE["arrow"].match(turn[a.start + len(a.text) : b.start]) for a, b in pairs)


def _framework(turn: str, job: Job, found: dict[str, Any]) -> None:
    """The framework by name, as long as none is known: "用 swift 训", "with axolotl"."""
    name = named_framework(turn) if job.framework is None else None
    if name is not None:
        found |= {"framework": name, **({"planned": True} if job.model is not None else {})}


def named_framework(turn: str) -> str | None:
    """The framework that a turn names."""
    for match in _RE["framework"].finditer(turn):
        name = canonical(match[0])
        if name is not None and not is_off(turn, *match.span()):
            return name
    return None


def _model(turn: str, job: Job, found: dict[str, Any]) -> None:
    """Another model by name, or another size of the same one: "换成 Qwen2.5-14B", "what if it was 14B"."""
    mentions = models.find_all(turn)
    for mention in [m for m in mentions if not is_corrected(turn, m.start)] or mentions:
        if mention.params_b and not mention.named and _RE["active"].search(turn):
            continue  # "only 3B active": how much of a mixture works, no size of the model
        if mention.entry is not None and mention.named:
            found["model"] = mention.text.strip()
        elif mention.params_b and not mention.named:
            found.update(_resized(job, mention.params_b))
        else:
            continue
        return


def _resized(job: Job, params_b: float) -> dict[str, Any]:
    """The same family at another size, where the catalogue has it; else the size alone."""
    if isinstance(job.model, str):
        name = _RE["size_in_name"].sub(f"{params_b:g}B", job.model, count=1)
        if name == job.model:
            return {}
        if models.find(name) is not None:
            return {"model": name, "params_b": None}
    return {"model": None, "params_b": params_b}
