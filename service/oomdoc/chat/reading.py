"""The job fields that a short turn states."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from oomdoc.chat.context import Context
from oomdoc.chat.ellipsis import fill, relative, switched
from oomdoc.chat.explicit import read_explicit
from oomdoc.chat.phrases import (
    FIELD_NAMES,
    OFF_VALUES,
    PAGED,
    PHRASES,
    QUANTITIES,
    Phrase,
    fields_named,
    is_off,
    is_replaced,
)
from oomdoc.chat.wording import patterns
from oomdoc.diagnosis.planned import LOCAL, blocks
from oomdoc.intake.named_runs import ROWS
from oomdoc.intake.numbers import read_number
from oomdoc.stated import following, stated_fields
from oomkb.catalog import models
from oomkb.catalog.gpus import find_all
from oomkb.errors import JobError
from oomkb.frameworks import canonical
from oomkb.memory.job import Job

_MAX_PER_NODE: Final = 8
_MODEL_PARALLEL: Final = ("tp", "pp", "cp")


def resolve(found: dict[str, Any], context: Context, *, pure: bool = False, whole: bool = False) -> dict[str, Any]:
    """The fields to set.

    :param pure: whether the words say that the parameters themselves are held in 16 bits.
    :param whole: whether what they say of precision is said of everything, a server's cache too.
    """
    job = context.job
    utilization = found.pop("gpu_memory_utilization", None)
    if utilization is not None:
        found[context.utilization] = utilization
    if not context.has_rollout and "rollout.tensor_parallel" in found:
        found["tp"] = found.pop("rollout.tensor_parallel")
    elif "tp" in found and job.tp is None and job.get("rollout.tensor_parallel") is not None:
        found["rollout.tensor_parallel"] = found.pop("tp")  # the one that the job has
    serves = found.get("objective", job.objective) == "inference"
    if "seq_len" in found and serves:
        found["serving.max_model_len"] = found["seq_len"]
    if "serving.max_model_len" in found and job.seq_len is not None and serves:
        found["seq_len"] = found["serving.max_model_len"]
    engine = found.get("framework", job.framework)
    if engine in LOCAL and found.get("quant") in ("nf4", "int8"):
        found["quant"] = blocks(found["quant"])
    if (
        serves
        and found.get("serving.kv_dtype") == "int8"
        and found.get("framework", job.framework) in ("vllm", "sglang")
    ):
        found["serving.kv_dtype"] = "fp8"  # the eight bits that their cache has
    if serves:
        found = {
            n: v for n, v in found.items() if n not in ("prompt_len", "completion_len")
        }  # of a request, no setting
    _resolve_requests(found, context)
    if found.get("optimizer") == PAGED:
        eight = str(context.present("optimizer")).endswith("8bit")
        found["optimizer"] = "paged_adamw_8bit" if eight else "paged_adamw"
    if "gpu" in found and "capacity_gib" not in found and job.capacity_gib is not None:
        found["capacity_gib"] = None  # it was the other card's
    _resolve_method(found, job)
    found |= following(found, job)
    _resolve_precision(found, job, pure=pure, whole=whole)
    if found.keys() & {"gpus", "nodes", *_MODEL_PARALLEL}:
        _resolve_gpus(found, job)
    return found


def _resolve_requests(found: dict[str, Any], context: Context) -> None:
    """No more requests at once than a server takes: the one follows the other."""
    wanted, taken = found.get("serving.concurrency"), found.get("serving.max_num_seqs")
    if wanted is not None and taken is None and wanted > (context.present("serving.max_num_seqs") or wanted):
        found["serving.max_num_seqs"] = wanted
    if taken is not None and wanted is None and taken < (context.job.get("serving.concurrency") or 0):
        found["serving.concurrency"] = taken


def _resolve_method(found: dict[str, Any], job: Job) -> None:
    if found.get("method") == "qlora" and found.get("quant") == "none":
        found.pop("quant")
    if found.get("method") in ("lora", "full") and job.method == "qlora" and "quant" not in found:
        found["quant"] = "none"
    if "lora.r" in found and "method" not in found and job.method not in ("lora", "qlora"):
        found["method"] = "lora"


def _resolve_precision(found: dict[str, Any], job: Job, *, pure: bool, whole: bool) -> None:
    """A 16-bit type takes the place of the 16-bit type that the job has, as stored or as autocast. In full training it
    means mixed precision, unless the words say "pure"; in adapters' training the frozen base is held so.
    """
    method = found.get("method", job.method)
    trains = found.get("objective", job.objective) != "inference" and method == "full"
    if trains and job.method in ("lora", "qlora") and "param_dtype" not in found and job.framework is None:
        found.setdefault(
            "param_dtype", job.param_dtype
        )  # the base's; what is trained now is kept as a trainer keeps it
    said = found.get("param_dtype")
    if trains and said is None and found.get("autocast") in ("bf16", "fp16") and job.autocast == "none":
        found.setdefault("param_dtype", None)  # mixed again, after 16-bit parameters
    if said in ("bf16", "fp16") and job.objective == "inference" and job.quant not in (None, "none"):
        found.setdefault("quant", "none")  # "back to bf16"
        if whole and job.get("serving.kv_dtype") is not None:
            found.setdefault("serving.kv_dtype", said)
    if said == "fp32" and job.autocast in ("bf16", "fp16"):
        found.setdefault("autocast", "none")
    if said not in ("bf16", "fp16") or "autocast" in found:
        return
    if trains and pure:
        found["autocast"] = "none"
    elif trains and (job.param_dtype != said or job.method != "full"):
        found |= {"autocast": said, "param_dtype": None}
    elif job.autocast in ("bf16", "fp16"):
        found["autocast"] = said
        if job.param_dtype == "fp32":
            found.pop("param_dtype")


def _resolve_gpus(found: dict[str, Any], job: Job) -> None:
    """``4 nodes, 32 cards`` means eight in each; more ranks than GPUs raise the GPUs, fewer GPUs lower the degrees."""
    degrees = {n: int(found.get(n) or job.get(n) or 1) for n in _MODEL_PARALLEL}
    ranks = degrees["tp"] * degrees["pp"] * degrees["cp"]
    if "gpus" in found or "nodes" in found:
        nodes, gpus = _machines(found, job)
        named = found.keys() & set(_MODEL_PARALLEL)
        if ranks > nodes * gpus and not named:
            _lower(found, degrees, nodes * gpus)
            ranks = 1
        elif job.objective == "inference" and not named and ranks == degrees["tp"] == (job.world or job.gpus or 1):
            found["tp"] = degrees["tp"] = ranks = nodes * gpus  # a server takes all the cards that it gets
    elif ranks > (job.world or (job.gpus or 1) * (job.nodes or 1)):
        nodes, gpus = job.nodes or 1, job.gpus or 1
    elif (
        job.objective == "inference"
        and found.keys() & {"tp"}
        and (job.tp or 1) == (job.gpus or 1) > 1 == (job.nodes or 1)
    ):
        nodes, gpus = 1, ranks  # an engine that was spread over all its cards takes as many as it is spread over now
    else:
        return
    if ranks > nodes * gpus:
        gpus = min(ranks, max(_MAX_PER_NODE, gpus)) if nodes == 1 else gpus
        nodes = max(nodes, -(-ranks // gpus))
    found["gpus"] = gpus
    if nodes > 1 or job.nodes:
        found["nodes"] = nodes
    found["world"] = nodes * gpus
    if job.dp is not None:
        found["dp"] = None


def _machines(found: dict[str, Any], job: Job) -> tuple[int, int]:
    nodes = found.get("nodes") or job.nodes or 1
    gpus = found.get("gpus") or job.gpus or 1
    if found.get("nodes", 1) > 1 and gpus > _MAX_PER_NODE and gpus % nodes == 0 and "gpus" in found:
        return nodes, gpus // nodes
    if "nodes" not in found:
        if gpus > 16 and gpus % 8 == 0:
            return gpus // 8, 8
        if job.nodes and job.nodes > 1:
            if found.get("gpus", 0) == job.nodes * (job.gpus or 8):
                return nodes, job.gpus or 8
            if found.get("gpus") == 1:
                return 1, 1
    return nodes, gpus


def _lower(found: dict[str, Any], degrees: dict[str, int], world: int) -> None:
    """Parallel degrees that fit the GPUs left, the tensor-parallel one kept longest."""
    for name in ("cp", "pp", "tp"):
        product = degrees["tp"] * degrees["pp"] * degrees["cp"]
        if product <= world or degrees[name] == 1:
            continue
        others = product // degrees[name]
        degrees[name] = max(1, world // others)
        found[name] = degrees[name]


_RE: Final = patterns("reading")
_MINUS: Final = re.compile(r"(?:\A|\s)[-−]\Z")
_NEVER_ZERO: Final = frozenset({"micro_batch", "seq_len", "grad_accum", "generations", "gpu_memory_utilization"})
"""Fields that are named with a zero only by a slip; ranks, nodes and cards are counted from zero."""
_SHORTEST_LISTED: Final = 256
_PLURAL: Final = re.compile(r"(?<=\d)s\Z")
_LEADING_COUNT: Final = re.compile(r"\A(?:\d{1,4}|[一二两三四五六七八九十]{1,3})\s?[xX×*张块片卡个]?\s?(?=[A-Za-z0-9])")
_BUILT_ON: Final = {"mindspeed": "megatron", "mindspeed-llm": "megatron"}


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
    turn = _without(turn, spelled.spans)
    taken = relative(turn, context, found)
    try:
        _phrases(turn, context, found, taken)
    except JobError as error:
        return Changes({}, error)
    _hardware(turn, job, found)
    _framework(turn, job, found)
    _model(turn, job, found)
    _listed(turn, found)
    found = switched(turn, context) | found if found else found
    return Changes(
        resolve(
            found or fill(turn, context),
            context,
            pure=ROWS["pure"].search(turn) is not None,
            whole=_RE["everything"].search(turn) is not None,
        )
    )


def without_kept(turn: str) -> str:
    """The turn without what it says of fields that stay: "don't touch the batch, just length 1024"."""
    return _without(turn, [m.span() for m in _RE["kept"].finditer(turn) if fields_named(m[0])])


def kept_fields(turn: str) -> tuple[str, ...]:
    """The fields of which a turn says that they stay."""
    return tuple(name for match in _RE["kept"].finditer(turn) for name in fields_named(match[0]))


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
        number = read_number((groups["n"] or groups.get("n2") or "").replace("%", "").strip())
    except (ValueError, OverflowError):
        return None
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
    if job.framework is not None:
        return
    for match in _RE["framework"].finditer(turn):
        name = _BUILT_ON.get(match[0].lower()) or canonical(match[0])
        if name is not None and not is_off(turn, *match.span()):
            found["framework"] = name
            return


def _model(turn: str, job: Job, found: dict[str, Any]) -> None:
    """Another model by name, or another size of the same one: "换成 Qwen2.5-14B", "what if it was 14B"."""
    for mention in models.find_all(turn):
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
        if name != job.model and models.find(name) is not None:
            return {"model": name, "params_b": None}
    return {"model": None, "params_b": params_b}
