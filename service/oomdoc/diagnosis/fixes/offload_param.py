"""Parameters in host memory too, fetched layer by layer: only with ZeRO-3 or FSDP, and the slowest of the fixes.

Frozen or trained, every parameter crosses the host link in forward and again in backward. Rajbhandari et al. 2021,
"ZeRO-Infinity".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


_EFFORT: Final = 2.5
"""Host memory for all states, a CPU optimizer, and a step that waits for the host link: after smaller batches, fused
losses and sharding, which change one key."""


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    offload = job.offload or ()
    if "param" in offload or job.optimizer not in (None, "adamw", "sgd"):
        return
    zero = job.sharding == "zero3" and context.has("zero.offload")
    fsdp = job.sharding in ("fsdp", "fsdp2") and context.has("fsdp.offload")
    if zero or fsdp:
        yield Variant(fields={"offload": _with(offload, "optimizer", "param")}, effort=_EFFORT)


def _with(offload: tuple[str, ...], *more: str) -> list[str]:
    return [*offload, *(m for m in more if m not in offload)]


REMEDY = Remedy(
    name="offload-param",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    reduces=("optimizer states", "master", "weights", "gradients"),
)
