"""What an engine printed of its cache: no plan may promise more than it measured.

An engine that refuses to start says how much cache it found and what one request needs. At another share of the card
it finds as much more or less; a shorter request, or keys and values of another width, need as much less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oomdoc.evidence import Evidence
from oomkb.memory.job import Job

__all__ = ["EngineCache", "engine_cache"]

_SAME: Final = ("tp", "pp", "quant", "gpu", "param_dtype", "serving.max_num_batched_tokens", "serving.cuda_graphs")
"""With one of these changed the engine would have measured something else."""
_BYTES: Final = {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1}
_WIDE: Final = 2
_USUAL_SHARE: Final = 0.9
_CLOSE: Final = 1.001


@dataclass(frozen=True, slots=True)
class EngineCache:
    """Bytes of cache that were found, and those that one request of ``length`` tokens needs."""

    available_bytes: float
    needed_bytes: float
    length: int
    job: Job
    """The run that printed it."""
    capacity_bytes: float

    def refuses(self, job: Job) -> bool:
        """Whether the engine's own figures rule a changed run out."""
        if any(job.get(name) != self.job.get(name) for name in _SAME):
            return False
        share, before = (j.get("serving.gpu_memory_utilization") or _USUAL_SHARE for j in (job, self.job))
        length = job.get("serving.max_model_len") or self.length
        width, wide = (_BYTES.get(str(j.get("serving.kv_dtype")), _WIDE) for j in (job, self.job))
        needed = self.needed_bytes * length / self.length * width / wide
        return needed > _CLOSE * (self.available_bytes + (share - before) * self.capacity_bytes)


def engine_cache(evidence: Evidence, job: Job, capacity_bytes: float | None) -> EngineCache | None:
    """What the engine printed when it refused; ``None`` where it did not."""
    for signal in evidence.signals:
        available, needed, length = (signal.data.get(n) for n in ("available_bytes", "needed_bytes", "length"))
        if "kv-cache" in signal.name and capacity_bytes and available is not None and needed and length:
            return EngineCache(float(available), float(needed), int(length), job, capacity_bytes)
    return None
