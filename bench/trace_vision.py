"""Exact peaks of tensor bytes of a step of a vision-language model, on the CPU with a few real layers.

usage: python bench/trace_vision.py JOBS.jsonl     one {"id", "job"} a line in, one row a line out

Image models look at their inputs' values (grids, positions of image tokens), so they cannot run on tensors without
values as ``trace.py`` does: this runs a real step of a small copy (give few layers of tower and decoder) and counts
live storages in the same way. Images have ``max_pixels`` pixels, as close to a square as the patches allow.
"""

from __future__ import annotations

import gc
import json
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from oomdoc.tracing.building import DTYPES, adapt
from oomdoc.tracing.meter import Meter
from oomkb.memory.vision import VisionShape
from oomkb.units import GIB


def config_of(model: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    fields = {k: v for k, v in model.items() if k not in ("model_type", "name")}
    return AutoConfig.for_model(model["model_type"], **fields)


def image_inputs(config: Any, job: dict[str, Any], dtype: Any) -> tuple[dict[str, Any], int]:
    """Pixels (and grids) of all images, and how many tokens one image is."""
    count = job.get("images", 1) * job["micro_batch"]
    vision = config.vision_config
    patch = vision.patch_size if isinstance(vision.patch_size, int) else vision.patch_size[0]
    if hasattr(vision, "spatial_merge_size") and "qwen" in config.model_type:
        cell = patch * vision.spatial_merge_size
        side = max(1, round(math.sqrt(job["max_pixels"]) / cell)) * vision.spatial_merge_size
        wide = 3 * vision.temporal_patch_size * patch * patch
        grid = torch.tensor([[1, side, side]] * count)
        return {"pixel_values": torch.zeros(count * side * side, wide, dtype=dtype), "image_grid_thw": grid}, (
            side * side // vision.spatial_merge_size**2
        )
    size = vision.image_size if isinstance(vision.image_size, int) else vision.image_size[0]
    shape = VisionShape.from_config(config.to_dict(), config.get_text_config().hidden_size)
    tokens = getattr(config, "image_seq_length", None) or (shape.tokens(size * size) if shape else 0)
    return {"pixel_values": torch.zeros(count, 3, size, size, dtype=dtype)}, tokens


def build(job: dict[str, Any]) -> Any:
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(0)
    config = config_of(job["model"])
    dtype = DTYPES[job.get("param_dtype")]
    make: Any = AutoModelForImageTextToText.from_config
    model = make(config, attn_implementation=job.get("attention") or "sdpa", dtype=dtype)
    model.config.use_cache = False
    if job.get("grad_ckpt"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if job.get("freeze_vision"):
        for name, parameter in model.named_parameters():
            if "visual" in name or "vision" in name:
                parameter.requires_grad_(False)
    if job.get("lora"):
        if job.get("grad_ckpt"):
            model.enable_input_require_grads()
        model = adapt(model, job)
        for name, parameter in model.named_parameters():
            if parameter.is_meta:
                owner = model.get_submodule(name.rpartition(".")[0])
                made = torch.zeros(parameter.shape, dtype=parameter.dtype)
                setattr(owner, name.rpartition(".")[2], torch.nn.Parameter(made))
    return model.train()


def trace(job: dict[str, Any]) -> dict[str, Any]:
    model = build(job)
    config = model.config
    dtype = DTYPES[job.get("param_dtype")]
    images, tokens = image_inputs(config, job, dtype)
    image = next(getattr(config, n) for n in ("image_token_id", "image_token_index") if hasattr(config, n))
    rows, count = job["micro_batch"], job.get("images", 1)
    ids = torch.ones(rows, job["seq_len"] + count * tokens, dtype=torch.long)
    for i in range(count):  # a token of text between two images
        first = 4 + i * (tokens + 1)
        ids[:, first : first + tokens] = image
    extra = {"mm_token_type_ids": (ids == image).int()} if "qwen" in config.model_type else {}
    if config.model_type == "gemma3":
        extra["token_type_ids"] = (ids == image).long()
    auto = job.get("autocast") or "none"
    row: dict[str, float] = {}
    with Meter() as meter:
        for tensor in (*model.parameters(), *model.buffers(), *images.values()):
            meter.add(tensor)
        static = meter.live
        meter.reset()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=auto != "none"):
            loss = model(input_ids=ids, labels=ids.clone(), use_cache=False, **images, **extra).loss
        row["after_forward"], row["peak_forward"] = meter.live, meter.peak
        meter.reset()
        loss.backward()
        row["peak_backward"], row["after_backward"] = meter.peak, meter.live
    sizes = {"allocated_gib": max(row["peak_forward"], row["peak_backward"]), "static_gib": static, **row}
    measured: dict[str, Any] = {k: round(v / GIB, 4) for k, v in sizes.items()}
    measured["image_tokens"] = tokens
    measured["params"] = sum(p.numel() for p in model.parameters())
    measured["trainable"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return measured


def main() -> int:
    warnings.simplefilter("ignore")
    for line in Path(sys.argv[1]).read_text().splitlines():
        row = json.loads(line)
        try:
            measured = trace(row["job"])
        except Exception as error:  # one model that this release does not run is no reason to stop
            print(json.dumps({"id": row["id"], "error": f"{type(error).__name__}: {error}"[:300]}), flush=True)
            continue
        print(json.dumps({**row, "measured": measured}), flush=True)
        gc.collect()
    return 0


if __name__ == "__main__":
    sys.exit(main())
