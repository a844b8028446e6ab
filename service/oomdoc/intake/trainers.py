"""A trainer that generates with a serving engine: ``verl GRPO … vllm colocated`` is a job of verl, not of vLLM.

The engine's own keys and frames are all over such a text, so that it is read as serving at first. Where a trainer of
that kind is named beside an online method, and nothing says that a model is served, the trainer is the framework, and
what was read of the engine describes its rollout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from oomdoc.evidence import Fact, Span
from oomdoc.intake.lines import Kind, Line
from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import negated
from oomdoc.intake.sieve import Vocabulary, candidates, found_in
from oomkb.dataclass import dataclass
from oomkb.frameworks import canonical

_RE: Final = patterns(__file__)
_CONFIDENCE: Final = 0.86
_MAX_LINES: Final = 4_000
"""Lines in which a trainer is looked for: what a job is, is said early."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """The trainer that is named (canonical), what it trains for where that is said, and where it stands."""

    name: str
    objective: str | None
    span: Span
    colocated: Span | None = None


def named_trainer(
    lines: Sequence[Line], kinds: Sequence[Kind], words: Vocabulary, marked: str | None = None
) -> Trainer | None:
    """The trainer that a text names beside an online method; ``None`` where it speaks of serving.

    :param marked: the framework by whose keys or frames the text is known, where none is named.
    """
    said = [line for line, kind in zip(lines, kinds, strict=True) if kind not in ("log", "blank")][:_MAX_LINES]
    online = next((hit for line in candidates(_RE["online"], said, words) if (hit := _online(line))), None)
    if online is None or any(found_in(_RE["served"], said, words)):
        return None
    shared = next((line.span() for line, _ in found_in(_RE["colocated"], said, words)), None)
    for line, found in found_in(_RE["named"], said, words):
        if _RE["listed"].match(line.raw) or negated(line.raw, found.start()):
            continue
        word = found[0].lower()
        name = "trl" if word.endswith("trainer") else canonical({"easyr1": "verl"}.get(word, word))
        if name is not None:
            return Trainer(name, online[0], line.span(found.start() + 1), shared)
    return Trainer(marked, online[0], online[1], shared) if marked is not None else None


def _online(line: Line) -> tuple[str | None, Span] | None:
    for found in _RE["online"].finditer(line.raw):
        if found["keys"]:
            return None, line.span(found.start() + 1)  # of PPO's trainers, which run its relatives too
        if not negated(line.raw, found.start()):
            word = (found["grpo"] or found["trainer"] or "").lower()
            return "grpo" if found["grpo"] or word == "grpo" else "ppo", line.span(found.start() + 1)
    return None


def of_rollout(facts: Iterable[Fact], trainer: Trainer, engine: str) -> list[Fact]:
    """The facts with what was read of the engine as the rollout's, and the objective as the trainer's."""
    out = [Fact("rollout.engine", engine, trainer.span, "prose", _CONFIDENCE)]
    if trainer.objective is not None:
        out.append(Fact("objective", trainer.objective, trainer.span, "prose", _CONFIDENCE))
    if trainer.colocated is not None:
        out.append(Fact("rollout.colocated", True, trainer.colocated, "prose", 0.8))
    for fact in facts:
        if fact.origin != "option":
            if fact.name == "serving.gpu_memory_utilization":
                out.append(replace(fact, name="rollout.gpu_memory_utilization"))
            if fact.name == "tp" and "parallel" in fact.span.text.lower():
                out.append(replace(fact, name="rollout.tensor_parallel"))
            if fact.name.startswith("serving.") or (fact.name == "objective" and fact.value == "inference"):
                continue
        out.append(fact)
    return out
