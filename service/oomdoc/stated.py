"""Job fields that somebody states beside a text (``--set``, ``"set"``, ``options=``), checked for every interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from oomkb.errors import InputError, JobError
from oomkb.frameworks import ENGINE, has
from oomkb.limits import check_tree, shown
from oomkb.memory.job import Job, Loop, Lora, Rollout, Serving
from oomkb.memory.job_reading import read_dotted
from oomkb.notes import note

_PARTS: Final[Mapping[str, type]] = {"lora": Lora, "rollout": Rollout, "serving": Serving, "loop": Loop}
_MAPS: Final = ("buckets", "env")
_DEPTH: Final = 12
_NODES: Final = 20_000
_STAGES: Final = 3
_NORMAL_FLOAT: Final = ("nf4", "nf4-double")


def _as(name: str) -> Callable[[str, Any], Any]:
    """Read under the given name as the job field ``name`` is read."""

    def read(given: str, value: Any) -> Any:
        try:
            return read_dotted(name, value)
        except JobError as error:
            raise JobError(error.message, where=given, hint=error.hint, note=error.note) from error

    return read


def _stage(name: str, value: Any) -> int:
    stage = value if isinstance(value, int) and not isinstance(value, bool) else -1
    if isinstance(value, str) and value.strip().isdecimal() and len(value) <= 2:
        stage = int(value)
    if not 0 <= stage <= _STAGES:
        raise JobError(f"{shown(value)} is no stage of ZeRO", where=name, hint="0, 1, 2 or 3")
    return stage


# What reports are labelled with beside the fields of a job, each read as the field that it resembles.
_FURTHER: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    **dict.fromkeys(
        [
            "tried_gib",
            "allocated_gib",
            "reserved_gib",
            "reserved_unallocated_gib",
            "free_gib",
            "process_gib",
            "other_process_gib",
        ],
        _as("capacity_gib"),
    ),
    "gpu_count": _as("gpus"),
    "zero_stage": _stage,
    "fsdp": _as("packing"),
    "dtype": _as("param_dtype"),
    "phase": _as("framework"),
    "gpu_memory_utilization": _as("serving.gpu_memory_utilization"),
    "max_model_len": _as("serving.max_model_len"),
}
_JOB: Final = tuple(f.name for f in fields(Job) if f.name not in ("extra", "assumed"))
DOTTED_FIELDS: Final = tuple(f"{part}.{f.name}" for part, kind in _PARTS.items() for f in fields(kind))
"""The fields of a job's parts: ``lora.r``, ``serving.max_model_len`` ..."""
_NAMES: Final = (*_JOB, *DOTTED_FIELDS, *_FURTHER)


def stated_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The checked values by (dotted) name; parts that are mappings come out field by field, ``None`` not at all.

    :raises JobError: for an unknown name (with the nearest one) or a value that no run can have; ``where`` is the name.
    """
    if not isinstance(options, Mapping):
        raise JobError(f"{shown(options)} is not a mapping of fields", where="set", hint='for example {"gpus": 8}')
    try:
        check_tree(options, where="set", depth=_DEPTH, nodes=_NODES, finite=False)
    except InputError as error:
        raise JobError(error.message, where=error.where.removeprefix("set."), hint=error.hint) from error
    found: dict[str, Any] = {}
    for name, value in options.items():
        if value is not None:
            found.update(_read(str(name).strip(), value))
    return found


def following(changes: Mapping[str, Any], base: Job) -> dict[str, Any]:
    """Fields that go along with a change: the length of prompt and completion, the name of adapters on 4 bits, and
    that a server spreads over the cards that it is given.
    """
    found: dict[str, Any] = {}
    halves = {name: base.get(name) for name in ("prompt_len", "completion_len")}
    own = {n: v for n, v in changes.items() if n in halves and v}
    if own and "seq_len" not in changes and all(halves.values()) and base.seq_len == sum(halves.values()):
        found["seq_len"] = sum((halves | own).values())
    method, quant = changes.get("method", base.method), changes.get("quant", base.quant)
    if "quant" in changes and method == "lora" and quant in _NORMAL_FLOAT:
        found["method"] = "qlora"
    elif "quant" in changes and "method" not in changes and method == "qlora" and quant == "none":
        found["method"] = "lora"
    gpus, degrees = changes.get("gpus"), ("tp", "pp", "dp", "ep")
    serves = changes.get("objective", base.objective) == "inference" and base.nodes in (None, 1)
    engine = changes.get("framework", base.framework) or ENGINE
    splits = serves and has(engine, "serving.tp", serving=True)
    if splits and isinstance(gpus, int) and gpus > 1 and not any(changes.get(n) or base.get(n) for n in degrees):
        found["tp"] = gpus
    return found


def _read(name: str, value: Any) -> dict[str, Any]:
    head, _, tail = name.partition(".")
    if head in (*_PARTS, *_MAPS) and not tail:
        whole = read_dotted(name, value)  # refuses unknown parts by their place
        if isinstance(whole, Mapping):
            return {f"{name}.{k}": v for k, v in whole.items()}
        return {f"{name}.{f.name}": v for f in fields(whole) if (v := _plain(getattr(whole, f.name))) is not None}
    if head in _MAPS:
        return {f"{head}.{k}": v for k, v in read_dotted(head, {tail: value}).items()}
    if name in _FURTHER:
        return {name: _FURTHER[name](name, value)}
    if name not in _NAMES:
        close = get_close_matches(name[:80], _NAMES, n=3, cutoff=0.6)
        raise JobError(
            "a job has no such field",
            where=name[:80],
            hint=f"perhaps {' or '.join(close)}" if close else "see the job document's table",
            note=note("job.no-such-field"),
        )
    return {name: _plain(read_dotted(name, value))}


def _plain(value: Any) -> Any:
    """Lists and dictionaries, as JSON gives them."""
    if isinstance(value, MappingProxyType):
        return dict(value)
    if isinstance(value, tuple):
        return [v if isinstance(v, str) else {f.name: _plain(getattr(v, f.name)) for f in fields(v)} for v in value]
    return value
