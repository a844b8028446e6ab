"""How sure a figure is: 90 % intervals by how much is known about the run.

Conformal, with groups: the quantiles of log(measured / estimated) over published figures of runs that are known as well
as this one is. A figure of a source that the model learned from counts as it was priced at first sight, before anything
was learned (``bench/measured/first_look.jsonl``), in the group the run belonged to then: what a framework nobody had
met was off by is what the next unmet one may be off by. Every source counts as the root of its figures, and the tails
are cut by the number of sources (``bench/interval_coverage.py`` makes the quantiles, and says how often intervals made
without a source hold its figures, and how wide they are).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from oomkb.errors import Note, note
from oomkb.memory.estimate import Estimate, Interval, Later, Phase
from oomkb.memory.job import Job
from oomkb.memory.overhead import length_dependent
from oomkb.memory.setting import Setting

GROUPS: Final[Mapping[str, tuple[float, float]]] = {
    "exact": (-0.04, 0.05),
    "recognised": (-0.242, 0.211),
    "quantized": (-0.325, 0.445),
    "sharded": (-0.476, 0.523),
    "changing lengths": (-0.533, 0.822),
    "not met": (-0.733, 0.717),
    "serving": (-0.04, 0.04),
}
"""(low, high) of log(measured / estimated): 5 % and 95 %. ``exact``: traces of the reference kernels.
``serving``: tests/kb/memory/data/serving_starts.jsonl. Runs that offload are with the others: eleven figures of four
sources do not make a group; stated and unstated releases of a framework spread alike."""
MET: Final = (
    *("titan", "torchtune", "litgpt", "lit-gpt", "fms", "swift", "fsdp_qlora", "transformers", "peft", "trl"),
    *("unsloth", "llama-factory", "llamafactory", "axolotl", "prime-rl", "automodel", "megatron", "deepspeed"),
)
"""Words of frameworks whose steps were compared with published figures or traced with their own code."""
SCRIPT: Final[Note] = note("estimate.script-unknown")
OPEN: Final = 2.0
"""How much wider where a setting that decides is not stated: 22 of 24 such figures are held then, 19 without."""
SHORTEST: Final = 0.125
"""Share of a limit (or of a length or batch that nobody stated) below which no batch of a run stays: what the figure is
then is the lower end, whatever the residuals say."""
_DECISIVE: Final = ("micro_batch", "seq_len", "grad_ckpt", "sharding")
NEEDED_SIGMA: Final = 0.06
"""What decides whether a run fits is not what it caches. The spread of log(measured / estimated) of the tensors' bytes
over the 38 published runs that state them: 0.047 for the 13 that nothing is doubted about, 0.081 for all (computed
over published peaks, 2026-11)."""


def is_script(job: Job) -> bool:
    """Whether the loop is somebody's own: a framework is stated, and it is none that was met."""
    return bool(job.framework) and "framework" not in job.assumed and not job.runs_on(*MET)


def group_of(meter: str, s: Setting, *, met: bool = True) -> str:
    """The group of a run's meter; the first that holds decides."""
    if s.dynamic and meter != "allocated":
        return "changing lengths"
    if not met:
        return "not met"
    if s.quant != "none":
        return "quantized"
    if s.shards > 1 or s.tp * s.pp > 1:  # over ranks of whatever kind
        return "sharded"
    return "recognised"


def is_complete(s: Setting) -> bool:
    """Whether every setting is stated that decides the figure."""
    return not any(name in s.assumed and (name != "sharding" or s.world > 1) for name in _DECISIVE)


def width_of(s: Setting, *, known: bool) -> float:
    """How much wider the interval is than for a job of which everything is stated; of a published run that a doubt was
    raised about it holds as many figures without more room.
    """
    return (1.0 if is_complete(s) else OPEN) * (1.0 if known else 1.5)


def needed_sigma(s: Setting, *, known: bool, doubted: bool) -> float:
    """Relative uncertainty of what a process cannot do without."""
    return NEEDED_SIGMA * (1.0 if is_complete(s) else 1.6) * (1.0 if known else 1.5) * (1.5 if doubted else 1.0)


def shortest(s: Setting, meter: str, phases: Mapping[str, Phase]) -> float:
    """Share of a figure that is left where every batch is as short as what is stated allows.

    Changing lengths have a group of their own but for the tensors, whose peak follows the longest batch.
    """
    doubts = sum(name in s.assumed for name in ("seq_len", "micro_batch")) + (s.dynamic and meter == "allocated")
    if not doubts:
        return 1.0
    lost = 1 - SHORTEST / doubts
    whole = max(phase.total_bytes for phase in phases.values())
    return max(phase.total_bytes - lost * length_dependent(phase) for phase in phases.values()) / whole


def interval(
    group: str, value: float, *, width: float = 1.0, most: float | None = None, least: float = 1.0
) -> Interval:
    """The 90 % interval of one meter.

    :param most: what the card holds, which no figure that fits it can exceed.
    :param least: share of the figure that may be all there is (:func:`shortest`), as sure as a trace.
    """
    low, high = GROUPS[group]
    top = value * math.exp(high * width)
    short = least * math.exp(GROUPS["exact"][0]) if least < 1 else 1.0
    return Interval(value * min(short, math.exp(low * width)), top if most is None or value > most else min(top, most))


def joined(estimate: Estimate, other: Callable[[], Estimate]) -> Estimate:
    """The estimate with intervals that hold those of the same run otherwise, as far as the card holds it.

    :param other: works that run out, once somebody looks at the intervals.
    """

    def spans() -> dict[str, Interval]:
        found, most, others = {}, estimate.capacity_bytes or math.inf, other().intervals
        for meter, span in estimate.intervals.items():
            low, high = others[meter].low_bytes, min(others[meter].high_bytes, most)
            found[meter] = replace(span, low_bytes=min(span.low_bytes, low), high_bytes=max(span.high_bytes, high))
        return found

    return replace(estimate, intervals=Later(spans))
