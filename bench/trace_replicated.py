"""Steps of replicated models: DDP's buckets, and FSDP1's hybrid of sharding within a machine and replicas across.

usage: python bench/trace_replicated.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

Torch's own wrappers over a process group that talks to nobody; FSDP under fake tensors, DDP (whose reducer looks
into its tensors) with small real ones. ``sharding: ddp`` or ``hsdp``; ``gpus`` of ``world`` ranks share what a
hybrid shards.
"""

import sys
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from oomdoc.tracing import building, running
from oomdoc.tracing.meter import Meter, scalars
from trace_steps import counted, stepped, traced


def _hybrid(model: Any, job: dict[str, Any], mesh: Any) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    wanted = job.get("fsdp") or {}
    kept = building.DTYPES[wanted.get("param_dtype", "bf16")]
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={type(running._layers(model)[0])}),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        device_mesh=mesh,
        mixed_precision=MixedPrecision(param_dtype=kept, reduce_dtype=kept),
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )


def _reduced(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The bucket as it is: an all-reduce works in place."""
    future: Any = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def trace(job: dict[str, Any]) -> dict[str, float]:
    """Peaks of the third step by phase, in GiB: DDP lays its buckets out anew after the first."""
    from torch.distributed.device_mesh import init_device_mesh

    world = job["world"]
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    each = job.get("gpus") or world
    mesh = init_device_mesh("cpu", (world // each, each), mesh_dim_names=("replicas", "shards"))
    model = building.prepare(job)
    real = job["sharding"] == "ddp"
    with nullcontext() if real else FakeTensorMode(allow_non_fake_inputs=True), scalars():
        building.materialise(model, "cpu")
        with Meter() as meter:
            row = counted(meter, [model])
            if real:
                model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=25, init_sync=False)
                model.register_comm_hook(None, _reduced)
            else:
                model = _hybrid(model, job, mesh)
            row["static_gib"] = meter.live
            return stepped(meter, row, model, job, partial(running.sft_loss, model, job, "cpu"), steps=3)


if __name__ == "__main__":
    sys.exit(traced(trace))
