"""A GPU with more memory: the next larger ones that people can rent or buy, smallest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._job import world_size
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.device import Device
from oomkb.memory.job import Job

__all__ = ["LADDER", "REMEDY", "larger"]

LADDER: Final = ("RTX 4090", "RTX 5090", "A100-40GB", "L40S", "A100-80GB", "H100-80GB", "H200", "B200")
"""Common cards by memory; names the GPU catalogue resolves."""


def larger(device: Device | None) -> Iterator[tuple[str, Device]]:
    """Catalogue entries with more memory than ``device``, smallest first, one per size."""
    from oomkb.catalog import gpus

    least = device.capacity_bytes if device is not None else 0
    seen: list[int] = []
    for name in LADDER:
        found = gpus.find(name)
        if found is None or found.capacity_bytes < 1.15 * least:
            continue
        if all(abs(found.capacity_bytes - size) > 0.05 * size for size in seen):
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
