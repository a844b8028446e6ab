"""A program that no record describes: the settings that it keeps in one place, and what it asks of libraries.

Of libraries' calls those count whose arguments mean the same in whatever program: optimizers and wrappers of PyTorch,
Lightning's trainer, vLLM's engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from oomdoc.intake.configs.codecs import OPTIMIZER
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.table import Reading
from oomdoc.intake.configs.wordlist import meanings

_ENGINES: Final = frozenset({"LLM", "EngineArgs", "AsyncEngineArgs"})
_TRAINERS: Final = frozenset({"Fabric", "Trainer"})
_OF_TRAINERS: Final = frozenset({"precision", "devices", "num_nodes", "accumulate_grad_batches", "strategy"})
_OPTIMIZERS: Final = frozenset(
    {"Adam", "AdamW", "SGD", "Adafactor", "Lion", "AdamW8bit", "Adam8bit", "PagedAdamW8bit", "PagedAdamW", "Lion8bit"}
)
_WRAPPERS: Final = meanings("wrapper")
_WHOLE_MODEL: Final = re.compile(r"\w{1,60}\.parameters\Z")
GENERATED: Final = frozenset({"completion_len", "prompt_len", "generations"})
"""Fields of a run that learns from what it generates."""
_LEARNS: Final = re.compile(r"reward|advantage|rollout|grpo|ppo|reinforce", re.I)


def lower_case(entries: Iterable[Entry]) -> list[Entry]:
    """Settings under keys as files have them: ``MICRO_BATCH_SIZE``, ``EvalConfig.seq_len`` in small letters."""
    out = []
    for entry in entries:
        section, dot, last = entry.key.rpartition(".")
        out.append(replace(entry, key=section.lower() + dot + (last.lower() if last.isupper() else last)))
    return out


def learns_from_samples(own: Sequence[Entry], programs: str) -> bool:
    """Whether a program learns from what it generates; others generate a little to look at."""
    return _LEARNS.search(programs) is not None or any(_LEARNS.search(e.key) for e in own)


def settings_of(own: Sequence[Entry], entries: Sequence[Entry], programs: str) -> list[Entry]:
    """What a program says: its own settings, and arguments of a trainer's and an engine's calls by their names."""
    places = {e.value_span for e in own}
    lightning = "lightning" in programs
    out = lower_case(own)
    for entry in entries:
        call = entry.scope.rpartition(".")[2]
        if entry.style != "kwarg" or (entry.shared and entry.value_span not in places):
            continue
        if call in _ENGINES:
            out.append(replace(entry, key=f"rollout.{entry.key}"))
        elif lightning and call in _TRAINERS and entry.key in _OF_TRAINERS:
            out.append(entry)
    return out


def library_readings(entries: Sequence[Entry]) -> Iterator[Reading]:
    """(field, value, entry) of the one optimizer and the one wrapper that a program makes of its whole model."""
    calls = [(e.scope.rpartition(".")[2], e) for e in entries if e.style == "call"]
    made = [(name, e) for name, e in calls if name in _OPTIMIZERS]
    if len(made) == 1 and (kind := OPTIMIZER.read(made[0][0])) is not None and _of_whole_model(entries, made[0][1]):
        yield "optimizer", kind, made[0][1]
        yield from _implementation(_arguments(entries, made[0][1]))
    wrapped = [(_WRAPPERS[name], e) for name, e in calls if name in _WRAPPERS]
    if len({way for way, _ in wrapped}) == 1:
        given = [argument for _, call in wrapped for argument in _arguments(entries, call)]
        if all(argument.key != "sharding_strategy" for argument in given):
            yield "sharding", *wrapped[0]
        unwanted = next((a for a in given if a.key == "activation_checkpointing_policy" and a.value is None), None)
        if unwanted is not None:
            yield "grad_ckpt", False, unwanted


def library_place(readings: Iterable[Reading], name: str, value: Any) -> tuple[Entry, Any] | None:
    """The argument of a library's call that says a field, and what to write there."""
    entry = next((e for field, _, e in readings if field == name and e.style == "kwarg"), None)
    written = {"fused": {"fused": True}, "foreach": {"foreach": True, "single": False}}
    new = written.get(entry.key, {}).get(value) if entry is not None and name == "optimizer_impl" else None
    return (entry, new) if entry is not None and new is not None else None


def _arguments(entries: Sequence[Entry], call: Entry) -> list[Entry]:
    low, high = call.value_span
    return [e for e in entries if e.style == "kwarg" and e.scope == call.scope and low <= e.key_span[0] < high]


def _of_whole_model(entries: Sequence[Entry], call: Entry) -> bool:
    """Whether an optimizer is given all parameters of a model; several of them share it otherwise."""
    low, high = call.value_span
    first = next((e for e in entries if e.key == "@0" and e.scope == call.scope and low <= e.key_span[0] < high), None)
    return first is not None and _WHOLE_MODEL.match(str(first.value)) is not None


def _implementation(arguments: Sequence[Entry]) -> Iterator[Reading]:
    """How the optimizer's step is made, where it is said (``torch/optim/adamw.py``: fused, else foreach)."""
    said = {a.key: a for a in arguments if a.key in ("fused", "foreach") and a.value in (True, False) and a.resolved}
    if any(a.key in ("fused", "foreach") and a.key not in said for a in arguments):
        return
    if "fused" in said and said["fused"].value:
        yield "optimizer_impl", "fused", said["fused"]
    elif "foreach" in said:
        yield "optimizer_impl", "foreach" if said["foreach"].value else "single", said["foreach"]
