"""A larger /dev/shm: data-loader workers and NCCL hand tensors over through it, and containers start with 64 MiB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._lines import hf_line
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_KUBERNETES: Final = (
    "volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}]\n"
    "volumeMounts: [{name: shm, mountPath: /dev/shm}]"
)


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "shared-memory" not in context.causes[:2]:
        return
    yield Variant(
        instruction=say("fixes.shm-size.how", line="docker run --shm-size=16g ... / compose.yaml: shm_size: 16gb"),
        effort=0.3,
    )
    yield Variant(instruction=say("fixes.shm-size.kubernetes", line=_KUBERNETES), effort=0.6)
    if not context.serving:
        line = hf_line(context.framework, {"dataloader_num_workers": 0})
        yield Variant(instruction=say("fixes.shm-size.workers", line=line), effort=0.4)


REMEDY = Remedy(
    name="shm-size",
    safety="same-numbers",
    kinds=frozenset({"any"}),
    variants=_variants,
    causes=frozenset({"shared-memory"}),
    advice=True,
)
