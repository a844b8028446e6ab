"""Pipelines that make images or video: their parts one after the other on the GPU, smaller weights, smaller tiles.

diffusers 0.30-0.36 ("Reduce memory usage"; ``PipelineQuantizationConfig`` since 0.34): a pipeline's text encoders,
transformer and decoder are needed one at a time. ComfyUI ``comfy/cli_args.py`` and its node ``VAE Decode (Tiled)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_LINES: Final = {
    "diffusers": {
        "offload": "pipe.enable_model_cpu_offload()  # in place of pipe.to('cuda')",
        "quantize": "DiffusionPipeline.from_pretrained(..., quantization_config=PipelineQuantizationConfig("
        "quant_backend='bitsandbytes_4bit', quant_kwargs={'load_in_4bit': True}, "
        "components_to_quantize=['transformer']))",
        "tiles": "pipe.vae.enable_tiling()",
        "size": "pipe(..., height=768, width=768)",
    },
    "comfyui": {
        "offload": "python main.py --lowvram",
        "quantize": "python main.py --fp8_e4m3fn-unet",
        "tiles": "VAE Decode (Tiled)",
        "size": "Empty Latent Image: width 768, height 768",
    },
}
_OF_WEIGHTS: Final = frozenset({"weights-load", "model-states", "extra-models", "hardware-limit"})
_OF_WORK: Final = frozenset({"activations", "attention-scores", "vision-tokens", "long-sample"})


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    lines = _LINES.get(str(context.facts.get("pipeline")))
    if lines is None or job.objective not in (None, "inference"):
        return
    first = next(iter(context.causes), "")
    if first in _OF_WEIGHTS:
        steps = ("offload", "quantize")
    elif first in _OF_WORK:
        steps = ("tiles", "offload", "size")
    else:
        return
    for rank, step in enumerate(steps):
        yield Variant(
            instruction=say(f"fixes.diffusion-pipeline.{step}", line=lines[step]),
            effort=0.3 + 0.2 * rank,
            safety="changed-numerics" if step == "quantize" else None,
        )


REMEDY = Remedy(
    name="diffusion-pipeline",
    safety="same-numbers",
    kinds=frozenset({"any"}),
    variants=_variants,
    causes=_OF_WEIGHTS | _OF_WORK,
    advice=True,
)
