"""A GPU with more memory: the next larger ones that people can rent or buy, smallest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._job import world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.device import Device
from oomkb.memory.job import Job

__all__ = ["REMEDY", "ladder", "larger"]

_LADDER: Final = {
    "nvidia": ("RTX 4090", "RTX 5090", "A100-40GB", "L40S", "A100-80GB", "H100-80GB", "H200", "B200"),
    "amd": ("MI210", "MI300X", "MI325X"),
    "huawei": ("Ascend 910B3 64GB",),
}
"""Common cards by memory, of each maker: what runs on one does not run on another's as it is."""


def ladder(device: Device | None) -> tuple[tuple[str, Device], ...]:
    """Common cards of the same maker, smallest first, with their catalogue entries."""
    from oomkb.catalog import gpus

    names = _LADDER.get(device.vendor if device is not None else "", _LADDER["nvidia"])
    return tuple((name, found) for name in names if (found := gpus.find(name)) is not None)


def larger(device: Device | None) -> Iterator[tuple[str, Device]]:
    """Those with more memory than ``device``, one per size."""
    least = device.capacity_bytes if device is not None else 0
    seen: list[int] = []
    for name, found in ladder(device):
        new = all(abs(found.capacity_bytes - size) > 0.05 * size for size in seen)
        if new and found.capacity_bytes >= 1.15 * least:
            seen.append(found.capacity_bytes)
            yield name, found


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if context.device is None:
        return
    count = max(world_size(job) + (context.spare_gpus if (job.nodes or 1) == 1 else 0), job.tp or 1)
    for rank, (name, _) in enumerate(larger(context.device)):
        note = say("fixes.other-gpu.how", gpu=name, count=count)
        yield Variant(fields={"gpu": name, "capacity_gib": None}, effort=7.0 + 1.5 * rank, notes=(note,))


REMEDY = Remedy(
    name="other-gpu",
    safety="same-numbers",
    kinds=frozenset({"training", "serving"}),
    variants=_variants,
    hardware=True,
)
