"""The exact peaks of tensor bytes of a real training step, without a GPU and without weights.

A real ``transformers`` model (with ``peft`` adapters where the job has them) takes real steps under PyTorch's
FakeTensorMode: nothing is computed, every tensor has its true size, dtype and lifetime. Two steps are run; the peak is
over the second, with the optimizer's states in place. Sizes are GiB.

The kernels are the CPU's: they save what CUDA's save, but for dropout (a mask of the input's dtype, not of one byte)
and layer norms under autocast (in the input's dtype, not in fp32).
"""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode

from oomdoc.tracing.building import build_model, materialise, prepare
from oomdoc.tracing.meter import Meter, scalars
from oomdoc.tracing.optimizing import make_optimizer
from oomdoc.tracing.stepping import evaluation, one_step
from oomkb.units import GIB


def trace(job: dict[str, Any], *, device: str = "cpu", events: bool = False) -> dict[str, Any]:
    """Trace a plain job document (its ``model`` is a Hugging Face config); sizes in GiB by name.

    :param events: also every allocation and release of the second step, as ``(what, bytes, live bytes)``.
    :raises JobError: for an optimizer that cannot be played without a GPU.
    """
    # Read by transformers when it is first imported, below: nothing is downloaded and nothing is chatted.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        model, reference = prepare(job), None
        if job.get("objective") == "dpo" and not job.get("lora"):
            reference = build_model(job).eval().requires_grad_(False)
        if job.get("sharding") in ("fsdp2", "fsdp", "shard-grad-op"):
            from oomdoc.tracing import sharding

            mesh = sharding.start(job["world"], device)
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        for network in filter(None, (model, reference)):
            materialise(network, device)
        if job.get("sharding") == "fsdp2":
            model = sharding.shard(model, job, mesh)
        elif job.get("sharding") in ("fsdp", "shard-grad-op"):
            model = sharding.shard_flat(model, job)
        meter = stack.enter_context(Meter(events=events))
        for network in filter(None, (model, reference)):
            for tensor in (*network.parameters(), *network.buffers()):
                meter.add(tensor)
        static = meter.live
        stack.enter_context(scalars())
        optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad], job)
        row: dict[str, Any] = {}
        for _ in range(2):
            if meter.events is not None:
                meter.events.clear()
            row = one_step(model, job, device, optimizer, meter, reference)
        if job.get("eval_micro_batch"):
            row["peak_eval"] = evaluation(model, job, device, meter)
        peak = max(row["peak_forward"], row["peak_backward"], row["peak_step"])
        sizes = {"allocated_gib": peak, "static_gib": static, **row}
        measured: dict[str, Any] = {k: round(v / GIB, 4) for k, v in sizes.items()}
        measured["params"] = sum(p.numel() for p in model.parameters())
        measured["trainable"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if events:
        measured["events"] = meter.events
    return measured
