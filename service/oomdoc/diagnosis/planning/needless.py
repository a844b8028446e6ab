"""Remedies that a person has no use for: in the input already, tried in vain, not wanted, or with no place in a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Variant
from oomdoc.diagnosis.run_of_evidence import SPLIT
from oomdoc.evidence import Evidence, Message
from oomdoc.intake.asked import asked_of
from oomdoc.intake.assigned import assigned_in
from oomkb.frameworks import PLAIN, builds_on, find
from oomkb.memory.job import Job

_OF_MANY_PROCESSES: Final = frozenset(
    ["zero", "fsdp", "hsdp", "distributed-optimizer", "offload-param", "offload-optimizer", "context-parallel"]
)
"""Remedies that need one process per card: none for a model whose layers one process spreads."""
_REFUSED: Final[Mapping[str, frozenset[str]]] = {
    "offload": frozenset(["offload-activations", "offload-optimizer", "offload-param", "optimizer-paged"]),
    "quant": frozenset(["qlora", "serving-quant"]),
    "lora": frozenset(["lora", "qlora"]),
    "length": frozenset(["seq-len", "serving-length"]),
}
"""Remedies that a person rules out with a word."""


def ruled_out(evidence: Evidence, job: Job) -> frozenset[str]:
    """Remedies that the run has no use for, or that a person who asks does not want."""
    out: set[str] = set()
    split = job.assumed.get("pp")
    if (split is not None and split.why == SPLIT) or next(evidence.find("notebook-named"), None) is not None:
        out |= _OF_MANY_PROCESSES
    said = {s.name for s in evidence.statements}
    out.update(*(remedies for statement, remedies in _TRIED.items() if statement in said))
    asked = asked_of(evidence)
    out.update(*(_REFUSED[name] for name in asked.refused if name == "length" or not evidence.failures))
    if not evidence.failures and asked.request_length and asked.concurrency:
        out.add("serving-length")  # a context below what each user needs serves none of them
    return frozenset(out)


_TRIED: Final[Mapping[str, frozenset[str]]] = {
    "smaller-batch-does-not-help": frozenset(["micro-batch", "fewer-prompts"]),
    "shorter-length-does-not-help": frozenset(["seq-len", "serving-length", "worst-batch-first"]),
    "quantization-does-not-help": frozenset(["qlora", "serving-quant"]),
    "more-gpus-do-not-help": frozenset(["more-gpus"]),
    "offload-does-not-help": frozenset(["offload-optimizer", "offload-param", "offload-activations"]),
}
"""What people say that they tried in vain, with the remedies that are just that."""


def not_set(advice: Iterable[tuple[str, str, Variant]], evidence: Evidence) -> list[tuple[str, str, Variant]]:
    """The advice without what the input has already, and without another library's settings for a known program."""
    kept = (
        (cause, name, v) for cause, name, v in advice if v.instruction is None or not _is_set(v.instruction, evidence)
    )
    known = find(evidence.framework)
    foreign = known is not None and not builds_on(known.name, PLAIN)
    return [one for one in kept if not (foreign and _of_library(one[2]))]


def _of_library(variant: Variant) -> bool:
    line = variant.instruction.values.get("line") if variant.instruction is not None else None
    return isinstance(line, Message)


def _is_set(instruction: Message, evidence: Evidence) -> bool:
    """Whether all settings of an instruction's line stand in the input."""
    line = instruction.values.get("line")
    while isinstance(line, Message):
        line = line.values.get("line")
    wanted = assigned_in([line]) if isinstance(line, str) else frozenset()
    constants = {value.rpartition(".")[2] for _, value in evidence.assigned}
    return any(map(_is_telling, wanted)) and all(
        pair in evidence.assigned or (_is_constant(pair[1]) and pair[1] in constants) for pair in wanted
    )


def _is_telling(pair: tuple[str, str]) -> bool:
    """Whether a pair is more than the call of a short name: ``item()`` and ``save()`` are called everywhere."""
    return pair[1] != "()" or len(pair[0]) >= _MIN_TELLING


_MIN_TELLING: Final = 8


def _is_constant(value: str) -> bool:
    """Whether a value is a name that stands for one thing alone."""
    return value.count("_") >= _MIN_PARTS_OF_CONSTANT


_MIN_PARTS_OF_CONSTANT: Final = 2
