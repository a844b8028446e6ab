"""What fills a machine's memory, as far as arithmetic can say: copies of the weights, offloaded states, a merge.

transformers ``modeling_utils.py``: before version 5 weights are read in fp32 where no dtype is named; every process
that calls ``from_pretrained`` builds its own copy, unless ZeRO-3's configuration or FSDP's efficient loading stands
before it. DeepSpeed 0.10-0.17 ``utils/zero_to_fp32.py`` holds the partitions and the model put together, both in fp32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import DEEPSPEED, is_script, is_serving
from oomdoc.diagnosis.forms import HOST_USABLE
from oomdoc.evidence import Evidence
from oomkb.dataclass import dataclass
from oomkb.frameworks import PLAIN, in_range
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.memory.ranks import FSDP
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB

MERGES: Final = frozenset({"fails-while-merging", "checkpoint-save/merges"})
_BYTES: Final = {"bf16": 2, "fp16": 2, "fp32": 4}
_PROCESS_BYTES: Final = 6 * GIB
"""Host memory of one rank of an engine beside what it reads: libraries, the context, pinned buffers (4 GiB of swap
space in vLLM's first engine)."""


@dataclass(frozen=True, slots=True)
class HostNeed:
    """Host memory of one machine, in bytes: ``count`` copies of one size, or what is offloaded."""

    kind: str
    """``load``, ``merge``, ``offload``, ``save`` or ``engine``."""
    count: int
    copy_bytes: float
    dtype: str = ""

    @property
    def total_bytes(self) -> float:
        """All copies."""
        return self.count * self.copy_bytes


def host_need(
    evidence: Evidence, job: Job, estimate: Estimate, shape: ModelShape | None, phase: str
) -> HostNeed | None:
    """What the failing phase takes; where the machine's memory is known, the first that is more than it, if any is.

    ``None`` where nothing is known that fills it.
    """
    failure = evidence.root
    counted = failure is not None and failure.kind == "host" and failure.requested_bytes and failure.free_bytes
    # What an engine prints of its own need rules over what is computed.
    if shape is None or not job.has_model or counted:
        return None
    given = (job.host_gib or 0.0) * GIB
    found = list(_needs(evidence, job, estimate, shape, phase))
    beyond = (need for need in found if need.total_bytes > HOST_USABLE * given)
    return next(beyond if given else iter(found), found[0] if found else None)


def _needs(evidence: Evidence, job: Job, estimate: Estimate, shape: ModelShape, phase: str) -> Iterator[HostNeed]:
    """What is possible, the most usual first."""
    if is_serving(job) and not is_script(job):
        if (loaded := estimate.phases.get("load")) is not None:
            yield HostNeed("engine", max(1, job.gpus or 1), loaded.total_bytes + _PROCESS_BYTES)
        return
    parts = next(evidence.find("zero-to-fp32"), None)
    told = [*(s.name for s in evidence.statements), *(s.name for s in evidence.signs)]
    if parts is not None or not MERGES.isdisjoint(told):
        whole = parts is not None or job.sharding in DEEPSPEED
        yield HostNeed("merge", 2 if whole else 1, shape.params * (4.0 if whole else 2.0), "fp32" if whole else "bf16")
        return
    phase = "save" if phase == "unknown" and "fails-while-saving" in told else phase
    room = HOST_USABLE * (job.host_gib or math.inf) * GIB
    # Where what is offloaded would fit, pinned blocks are what does not.
    size = estimate.host_most_bytes if estimate.host_bytes <= room < estimate.host_most_bytes else estimate.host_bytes
    offloads = bool(job.offload and size) and (size > room or phase not in ("load", "save"))
    # More than the machine has is that whenever it is made; what goes to a disk comes after it is loaded.
    later = phase == "load" and bool(job.nvme_offload)
    if offloads and not later:
        yield HostNeed("offload", 1, size)
    if phase == "save" and (saved := estimate.host_phases.get("save")) is not None:
        yield HostNeed("save", 1, saved.total_bytes)
    if phase not in ("load", "unknown"):
        return
    trains = phase == "unknown" and not is_script(job) and job.objective is not None
    if job.quant in (None, "none"):
        # Of a run that may have loaded its weights, only what is more than the machine has.
        yield from (n for n in _copies(job, shape) if not trains or n.total_bytes > room)
    if offloads and later:
        yield HostNeed("offload", 1, size)


def _is_recent(job: Job) -> bool:
    """Whether the library is known to take the checkpoint's dtype."""
    version = job.versions.get(PLAIN)
    return version is not None and in_range(">=5", version)


def _copies(job: Job, shape: ModelShape) -> Iterator[HostNeed]:
    """The whole model in every process that loads it, in the dtype that is stated or either, the framework's first.

    What DeepSpeed's engine holds says nothing of what is loaded before it.
    """
    dtype = None if "param_dtype" in job.assumed or job.sharding in DEEPSPEED else job.param_dtype
    ranks = 1 if job.objective == "inference" else max(1, job.gpus or job.world or 1)
    # A script that names no dtype loads fp32 before version 5.
    fp32 = is_script(job) and "param_dtype" in job.assumed and not _is_recent(job)
    half_first = job.sharding in DEEPSPEED or (job.param_dtype == "bf16" and not fp32)
    for name in (dtype,) if dtype in _BYTES else ("bf16", "fp32") if half_first else ("fp32", "bf16"):
        for count in dict.fromkeys((1, ranks) if job.sharding in FSDP else (ranks,)):
            yield HostNeed("load", count, float(shape.params * _BYTES[name]), name)
