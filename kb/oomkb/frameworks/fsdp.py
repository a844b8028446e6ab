"""PyTorch FSDP, used through accelerate or the Trainer."""

from __future__ import annotations

from oomkb.frameworks.model import Default, Framework

_TORCH = "accelerate utils/dataclasses.py 1.14.0"

FRAMEWORK = Framework(
    name="fsdp",
    title="PyTorch FSDP",
    kind="launcher",
    package="torch",
    aliases=("fsdp1", "fsdp2", "fully sharded data parallel"),
    base="accelerate",
    defaults=(
        Default("sharding", "fsdp", "FSDP shards parameters, gradients and optimizer states", _TORCH),
        Default("reshard_after_forward", True, "FULL_SHARD reshards after the forward pass", _TORCH),
    ),
)
