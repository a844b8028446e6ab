"""FSDP2 steps: a fake process group that talks to nobody, ``fully_shard`` on every decoder layer and the root."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from oomdoc.tracing.building import DTYPES


def start(world: int, device: str) -> Any:
    """A process group of ``world`` ranks that talks to nobody, and its device mesh."""
    from torch.distributed.device_mesh import init_device_mesh

    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    return init_device_mesh(device, (world,))


def shard(model: Any, job: dict[str, Any], mesh: Any) -> Any:
    """Shard every decoder layer, then the root; by FSDP2's own rule the root stays gathered until backward."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    wanted = job.get("fsdp") or {}
    policy = MixedPrecisionPolicy(
        param_dtype=DTYPES[wanted.get("param_dtype", "bf16")], reduce_dtype=DTYPES[wanted.get("reduce_dtype", "fp32")]
    )
    keep = job.get("reshard_after_forward") is not False
    for layer in _layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=keep)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def shard_flat(model: Any, job: dict[str, Any]) -> Any:
    """FSDP1 around every decoder layer and the whole, with flat parameters, as accelerate wraps a transformer."""
    from functools import partial

    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    wanted = job.get("fsdp") or {}
    kept = DTYPES[wanted.get("param_dtype", "bf16")]
    strategy = ShardingStrategy.FULL_SHARD
    if job["sharding"] == "shard-grad-op" or job.get("reshard_after_forward") is False:
        strategy = ShardingStrategy.SHARD_GRAD_OP
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={type(_layers(model)[0])}),
        sharding_strategy=strategy,
        mixed_precision=MixedPrecision(param_dtype=kept, reduce_dtype=DTYPES[wanted.get("reduce_dtype", "bf16")]),
        use_orig_params=bool(wanted.get("use_orig_params", True)),
        limit_all_gathers=True,
        device_id=torch.device("cpu"),
    )


def _layers(model: Any) -> Any:
    """The decoder layers, whatever the family calls the list that holds them."""
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    inner = getattr(model, model.base_model_prefix, model)
    found = [child for child in inner.children() if isinstance(child, torch.nn.ModuleList)]
    return max(found, key=len) if found else []
