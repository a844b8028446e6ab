"""Pipelines that make images or video: their parts one after the other on the GPU, smaller weights, smaller tiles.

A pipeline's text encoders, transformer and decoder are needed one at a time. The lines are those of the library's
record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.catalog import gpus
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_OF_WEIGHTS: Final = frozenset({"weights-load", "model-states", "extra-models", "hardware-limit"})
_OF_WORK: Final = frozenset({"activations", "attention-scores", "vision-tokens", "long-sample"})
_STEPS_OF_WEIGHTS: Final = {
    "pipeline-offload": "fixes.diffusion-pipeline.offload",
    "pipeline-quantize": "fixes.diffusion-pipeline.quantize",
}
"""Line of the library's record -> what is said of it."""
_STEPS_OF_WORK: Final = {
    "pipeline-tiles": "fixes.diffusion-pipeline.tiles",
    "pipeline-offload": "fixes.diffusion-pipeline.offload",
    "pipeline-size": "fixes.diffusion-pipeline.size",
}


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    library = context.facts.get("pipeline")
    if library is None or job.objective not in (None, "inference"):
        return
    first = next(iter(context.causes), "")
    steps = _STEPS_OF_WEIGHTS if first in _OF_WEIGHTS else _STEPS_OF_WORK if first in _OF_WORK else {}
    device = context.device or (gpus.find(job.gpu) if job.gpu else None)
    shared = device is not None and device.unified  # the host's memory is the GPU's
    for rank, (step, key) in enumerate(steps.items()):
        if (line := line_of(library, step)) is not None and not (shared and step == "pipeline-offload"):
            yield Variant(
                instruction=say(key, line=line),
                effort=0.3 + 0.2 * rank,
                safety="changed-numerics" if step == "pipeline-quantize" else None,
            )


REMEDY = Remedy(
    name="diffusion-pipeline",
    safety="same-numbers",
    kinds=frozenset({"any"}),
    variants=_variants,
    causes=_OF_WEIGHTS | _OF_WORK,
    advice=True,
)
