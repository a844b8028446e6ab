"""Everything that was handed in, as one :class:`~oomdoc.evidence.Evidence`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from oomdoc.evidence import Evidence, Fact, Failure, Source, Span
from oomdoc.intake import environment
from oomdoc.intake.context import other_runs
from oomdoc.intake.kinds import Kind, kinds_of
from oomdoc.intake.lines import Line, read_lines
from oomdoc.intake.logs.engine import failures_of, scan
from oomdoc.intake.merge import merge
from oomdoc.intake.phase import frames_of, phase_fact
from oomdoc.intake.prose.hardware import read_hardware
from oomdoc.intake.prose.keys import read_keys, read_positional
from oomdoc.intake.prose.memory import read_memory
from oomdoc.intake.prose.models import read_models
from oomdoc.intake.prose.objective import read_objective
from oomdoc.intake.prose.training import read_traces, read_training
from oomdoc.intake.tracebacks import read_frames
from oomkb.units import to_gib

__all__ = ["read", "read_text"]

_SIZES: Final = {
    "tried_gib": "requested_bytes",
    "capacity_gib": "capacity_bytes",
    "allocated_gib": "allocated_bytes",
    "reserved_gib": "reserved_bytes",
    "reserved_unallocated_gib": "reserved_unallocated_bytes",
    "free_gib": "free_bytes",
    "process_gib": "process_bytes",
    "other_process_gib": "other_process_bytes",
}


def read_text(text: str, name: str = "input") -> Evidence:
    """Evidence of one pasted text."""
    return read([Source(name, text)])


def read(sources: Sequence[Source], options: Mapping[str, Any] | None = None) -> Evidence:
    """Evidence of all sources together; ``options`` are job fields that were stated outright.

    :raises InputError: when a source is not text.
    """
    lines = [line for source in sources for line in read_lines(source)]
    kinds = kinds_of(lines)
    found = list(scan(lines))
    failures = failures_of(found)
    facts: list[Fact] = [Fact(k, v, Span("--set", 1, 1, f"{k}={v}"), "option") for k, v in (options or {}).items()]
    facts += [fact for _, _, reading in found for fact in reading.facts]
    facts += _failure_facts([failure for _, failure in failures])
    facts += _text_facts(lines, kinds)
    placed = read_frames(lines)
    failures = [(i, replace(f, frames=frames_of(i, lines, placed))) for i, f in failures]
    kept, conflicts = merge(facts)
    root = next((pair for pair in failures if not pair[1].cascade), None)
    objective = kept["objective"].value if "objective" in kept else None
    signals = tuple(s for _, _, reading in found for s in reading.signals)
    kept["phase"] = phase_fact(lines, kinds, placed, root, signals, objective)
    versions = {name: version for name, (version, _) in environment.read_versions(lines).items()}
    return Evidence(
        facts=kept,
        conflicts=conflicts,
        versions=versions,
        failures=tuple(failure for _, failure in failures),
        signals=signals,
    )


def _failure_facts(failures: Iterable[Failure]) -> Iterable[Fact]:
    """The numbers of the root failure."""
    root = next((f for f in failures if not f.cascade), None)
    if root is None:
        return
    for name, field in _SIZES.items():
        if (value := getattr(root, field)) is not None:
            yield Fact(name, round(to_gib(value), 5), root.signal.span, "log", 1.0)


def _text_facts(lines: Sequence[Line], kinds: Sequence[Kind]) -> Iterable[Fact]:
    """What the prose, the commands and the configs say."""
    others = other_runs(lines, kinds)
    parts: dict[str, list[Line]] = {"prose": [], "settings": [], "log": [], "other": []}
    for line, kind, other in zip(lines, kinds, others, strict=True):
        if kind in ("command", "config", "code"):
            parts["other" if other else "settings"].append(line)
        elif kind != "blank":
            parts[kind].append(line)
    prose, settings, everything = parts["prose"], parts["settings"], list(lines)
    yield from read_hardware(prose + [line for line in settings if len(line.text) < 200], anywhere=everything)
    yield from read_models(prose, prose=True)
    yield from read_models(settings, prose=False)
    yield from read_training(prose)
    yield from read_traces(parts["log"] + settings)
    yield from read_memory(prose)
    yield from read_objective(everything)
    yield from read_keys(settings, confidence=0.95)
    yield from read_positional(settings + prose, confidence=0.85)
    yield from read_keys(prose, confidence=0.85)
    yield from read_keys(parts["log"], confidence=0.7)
    yield from read_keys(parts["other"], confidence=0.65)
