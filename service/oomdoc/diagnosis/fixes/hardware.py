"""What the card rules out, whichever remedy asks for it, and which cards have more memory.

bitsandbytes 0.50 has kernels for its optimizers and its 4- and 8-bit layers on NVIDIA's cards and on AMD's CDNA and
RDNA from the third (installation guide of 0.50.2). Liger's and cut cross-entropy's
kernels are written in Triton 3, which needs compute capability 7.0 or ROCm; torchtune's chunked loss is plain PyTorch.
DeepSpeed and FSDP need a collective library, which Apple's GPUs have none of; on TPUs XLA shards by its own means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from oomdoc.diagnosis.fixes._remedy import Context, Variant, remedy, world_size
from oomdoc.evidence import say
from oomkb.catalog import gpus
from oomkb.frameworks import has
from oomkb.memory.device import Device
from oomkb.memory.job import Job

_BITSANDBYTES: Final = frozenset(
    [
        *("adamw_8bit", "paged_adamw", "paged_adamw_8bit", "lion_8bit", "paged_lion_8bit", "galore_adamw_8bit"),
        *("nf4", "nf4-double", "int8"),
    ]
)
_AMD_GENERATIONS: Final = frozenset({"cdna2", "cdna3", "cdna4", "rdna3", "rdna4"})
"""AMD's generations for which bitsandbytes 0.50 is built."""
_TRITON: Final = (7, 0)
_ALONE: Final = frozenset({"none", "ddp", "device-map", None})

_LADDER: Final = {
    "nvidia": ("RTX 4090", "RTX 5090", "A100-40GB", "L40S", "A100-80GB", "H100-80GB", "H200", "B200"),
    "amd": ("MI210", "MI300X", "MI325X"),
    "huawei": ("Ascend 910B3 64GB",),
}
"""Common cards by memory, of each maker: what runs on one does not run on another's as it is. Of Macs and TPUs none."""


def suits(device: Device | None, framework: str | None, fields: Mapping[str, Any]) -> bool:
    """Whether the card can do what the fields ask for; a card that is not known is taken to be a current one."""
    return device is None or all(_one(device, framework, name, value) for name, value in fields.items())


def _one(device: Device, framework: str | None, name: str, value: Any) -> bool:
    units = name in ("attention", "param_dtype", "autocast", "quant", "serving.kv_dtype")
    if units and value in ("flash2", "flash3", "bf16", "fp8"):
        return device.can(str(value))
    if name in ("optimizer", "quant") and value in _BITSANDBYTES:
        return has_cuda(device) if str(value).startswith("paged") else has_bitsandbytes(device)
    if name == "fused_ce" and value:
        return has(framework, "fused_ce.plain") or _has_triton(device)
    if (name == "offload" and value) or (name in ("grad_ckpt", "extra_models") and "offload" in str(value)):
        return not device.unified  # it would go where it already is
    if name in ("tp", "pp") and value and value > 1:
        return not device.unified  # one GPU, whatever the number of cores
    if name == "sharding" and value not in _ALONE:
        return device.vendor not in ("apple", "google")
    return True


def has_cuda(device: Device | None) -> bool:
    """Whether CUDA's libraries run on it; a card of which only the capacity is known is taken to be NVIDIA's."""
    return device is None or device.vendor == "nvidia" or (device.vendor, device.generation) == ("other", "unknown")


def has_bitsandbytes(device: Device | None) -> bool:
    """Whether bitsandbytes has kernels for it."""
    return has_cuda(device) or (device is not None and device.generation in _AMD_GENERATIONS)


def _has_triton(device: Device) -> bool:
    if has_cuda(device):
        return device.compute_capability is None or device.compute_capability >= _TRITON
    return device.vendor == "amd"


def ladder(device: Device | None) -> tuple[tuple[str, Device], ...]:
    """Common cards of the same maker, smallest first, with their catalogue entries."""
    vendor = device.vendor if device is not None and device.vendor != "other" else "nvidia"
    names = _LADDER.get(vendor, ())
    return tuple((name, found) for name in names if (found := gpus.find(name)) is not None)


_OTHER_CARD: Final = 8.5
"""Effort of a card of another kind: more than twice as many of those that a person has (``more-gpus``)."""


@remedy("same-numbers", "training", "serving", hardware=True)
def other_gpu(job: Job, context: Context) -> Iterator[Variant]:
    """A GPU with more memory: the next larger ones that people can rent or buy, smallest first, one per size."""
    if context.device is None:
        return
    count = max(world_size(job) + (context.spare_gpus if (job.nodes or 1) == 1 else 0), job.tp or 1)
    effort, size = _OTHER_CARD, 0.0
    for name, found in ladder(context.device):
        if found.capacity_bytes >= 1.15 * context.device.capacity_bytes and found.capacity_bytes > 1.05 * size:
            size = found.capacity_bytes
            note = say("fixes.other-gpu.how", gpu=name, count=count)
            yield Variant(fields={"gpu": name, "capacity_gib": None}, effort=effort, notes=(note,))
            effort += 1.5
