"""Steps of DeepSpeed's own ZeRO engines on the CPU, over a process group that talks to nobody: small real tensors.

usage: python bench/trace_deepspeed.py JOB.json    one {"id", "job"}, prints one row (a process runs one engine)

``pip install deepspeed`` (0.19.8; no compiler needed: its shared-memory operator is left out). ``buckets`` of the job
are handed on in elements. Every storage that operations make is counted; NCCL's and pinned buffers are none of these.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from oomdoc.tracing import building, running
from oomdoc.tracing.meter import Meter
from oomkb.units import GIB

_STAGE3 = ("prefetch_bucket_size", "max_live_parameters", "max_reuse_distance", "param_persistence_threshold")


def _config(job: dict[str, Any]) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": int(job["sharding"][-1]), "overlap_comm": False}
    for name, size in (job.get("buckets") or {}).items():
        zero[f"stage3_{name}" if name in _STAGE3 else name] = size
    return {
        "train_micro_batch_size_per_gpu": job["micro_batch"],
        "gradient_accumulation_steps": job.get("grad_accum") or 1,
        job["param_dtype"]: {"enabled": True},
        "zero_optimization": zero,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-5, "torch_adam": True}},
    }


def _loss(engine: Any, job: dict[str, Any]) -> Any:
    """A padded batch, as most are: one whose rows are all whole needs no mask and no copies of grouped keys."""
    ids = running.token_ids(job["micro_batch"], job["seq_len"], "cpu")
    mask = torch.ones_like(ids)
    mask[:, 0] = 0
    return engine(input_ids=ids, attention_mask=mask, labels=ids.clone(), use_cache=False).loss


def trace(job: dict[str, Any]) -> dict[str, Any]:
    """Peaks of the second step by phase, in GiB."""
    world = job["world"]
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world), "DS_ACCELERATOR": "cpu"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29501"}
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    import deepspeed

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    model = building.materialise(building.prepare(job), "cpu")
    with torch.no_grad():  # a step whose gradients are no numbers is left out
        for parameter in model.parameters():
            parameter.normal_(0, 0.02)
    with Meter() as meter:
        for tensor in (*model.parameters(), *model.buffers()):
            meter.add(tensor)
        engine = deepspeed.initialize(model=model, config=_config(job), dist_init_required=False)[0]
        # What the group that talks to nobody gathers are no numbers: no step may be left out for that.
        for name in ("has_overflow", "_loss_scale_update_and_overflow_cleanup"):
            setattr(engine.optimizer, name, lambda *_, **__: False)
        # Stages 1 and 2 flatten copies on the host: where that is the device, both stand.
        twice = 0 if job["sharding"] == "zero3" else 2 * sum(p.numel() for p in model.parameters() if p.requires_grad)
        row: dict[str, Any] = {"static_gib": meter.live}
        for _ in range(2):
            for micro in range(job.get("grad_accum") or 1):
                meter.reset()
                loss = _loss(engine, job)
                row["peak_forward"] = meter.peak if micro == 0 else max(row["peak_forward"], meter.peak)
                meter.reset()
                engine.backward(loss)
                del loss
                row["peak_backward"] = meter.peak if micro == 0 else max(row["peak_backward"], meter.peak)
                meter.reset()
                engine.step()
                row["peak_step"] = meter.peak
    if engine.skipped_steps:
        raise RuntimeError("steps were left out")
    row["allocated_gib"] = max(row["peak_forward"], row["peak_backward"], row["peak_step"])
    return {name: round((size - twice) / GIB, 5) for name, size in row.items()}


def main() -> int:
    torch.manual_seed(0)
    row = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps({**row, "measured": trace(row["job"])}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
