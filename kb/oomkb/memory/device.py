"""A GPU or other accelerator, as the memory model and the planner need it."""

from __future__ import annotations

from dataclasses import field
from typing import Final, Literal

from oomkb.dataclass import dataclass
from oomkb.memory.job import Job
from oomkb.units import GIB

Vendor = Literal["nvidia", "amd", "huawei", "intel", "apple", "google", "other"]
_SHARED_MEMORY_KIB = {
    **{(6, 0): 48, (6, 1): 48, (7, 0): 96, (7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99},
    **{(9, 0): 227, (10, 0): 227, (10, 3): 227, (12, 0): 99, (12, 1): 99},
}
_UNIFIED = ("gb10", "spark", "jetson", "orin", "strix", "ryzen ai")


_BEYOND: Final = 1.05
"""Of a machine's memory: what a limit is above that is no size of it as people name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator.

    ``capacity_bytes`` is what the driver really reports as total (``torch.cuda.mem_get_info()[1]``,
    15.77 GiB for a V100-16GB), not the figure on the box. Rates are dense, in TFLOP/s.
    """

    name: str
    vendor: Vendor
    generation: str
    """``volta``, ``turing``, ``ampere``, ``ada``, ``hopper``, ``blackwell``, ``cdna3``, ``ascend910`` ..."""
    capacity_bytes: int
    bandwidth_bytes_per_s: float | None = None
    compute_capability: tuple[int, int] | None = None
    tflops: dict[str, float] = field(default_factory=dict)
    """dtype (``fp32``, ``tf32``, ``fp16``, ``bf16``, ``fp8``, ``int8``) -> dense TFLOP/s."""
    link: str | None = None
    """``nvlink``, ``pcie4``, ``hccs`` ...: how cards of this kind usually reach each other."""
    link_bytes_per_s: float | None = None
    host_link_bytes_per_s: float | None = None
    lacks: frozenset[str] = frozenset()
    """What the hardware rules out: ``bf16``, ``flash2``, ``flash3``, ``fp8``, ``int8-tensor`` ..."""
    source: str = ""
    nominal_bytes: int | None = None
    """The size on the box, in bytes (80 GB counted as 80 * 2**30)."""
    observed_bytes: tuple[int, ...] = ()
    """Other totals that drivers report for the same card (versions and ECC settings differ)."""
    capacity_derived: bool = False
    """Whether ``capacity_bytes`` follows from the size on the box by a rule, for want of a report."""
    capacity_interval_bytes: tuple[int, int] | None = None
    """Lowest and highest total that drivers report for it, as far as known."""

    @property
    def shared_memory_per_block_kib(self) -> int | None:
        """On-chip shared memory that one thread block may take, KiB (CUDA C++ Programming Guide 13, "Technical
        Specifications per Compute Capability"); ``None`` where it is not known.
        """
        return _SHARED_MEMORY_KIB.get(self.compute_capability or (0, 0))

    def lets_swap(self, limit_bytes: float) -> bool:
        """Whether a printed limit is more than the machine has: MPS allows 1.7 of what Metal recommends."""
        return self.unified and self.nominal_bytes is not None and limit_bytes > _BEYOND * self.nominal_bytes

    @property
    def unified(self) -> bool:
        """Whether the processor uses the same memory: nothing can be moved out of its way there."""
        return self.vendor == "apple" or any(word in self.name.lower() for word in _UNIFIED)

    def can(self, feature: str) -> bool:
        """Whether the hardware can do ``feature`` (``bf16``, ``flash2``, ``flash3``, ``fp8``)."""
        return feature not in self.lacks


def capacity_bytes_of(job: Job, device: Device | None) -> float | None:
    """What one card holds. The device carries a stated capacity already (see pricing): people round up, drivers not."""
    if device is not None:
        return float(device.capacity_bytes)
    return job.capacity_gib * GIB if job.capacity_gib else None
