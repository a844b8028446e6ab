"""The estimate: phases by terms, the peak, an interval."""

from __future__ import annotations

from collections.abc import Mapping

from oomkb.memory.activations import step_of
from oomkb.memory.device import Device
from oomkb.memory.estimate import Estimate, Interval, Phase
from oomkb.memory.job import Job
from oomkb.memory.setting import Setting, settle
from oomkb.memory.sharding import fsdp_extra
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB

__all__ = ["estimate"]


def estimate(job: Job, shape: ModelShape, device: Device | None = None) -> Estimate:
    """What one GPU holds when ``job`` runs a model of ``shape``: pure arithmetic.

    :raises JobError: for a job that cannot be run; ``where`` names the field.
    """
    s = settle(job, shape)
    phases = _training(s, shape)
    peak = max(phases, key=lambda name: phases[name].total_bytes)
    allocated = phases[peak].total_bytes
    reserved = allocated * 1.06 + 0.1 * GIB
    process = reserved + 0.6 * GIB
    capacity = job.capacity_gib * GIB if job.capacity_gib else float(device.capacity_bytes) if device else None
    return Estimate(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        process_bytes=process,
        intervals={
            "allocated": Interval(0.92 * allocated, 1.1 * allocated),
            "reserved": Interval(0.9 * reserved, 1.25 * reserved),
            "process": Interval(0.88 * process, 1.25 * process),
        },
        phases=phases,
        peak_phase=peak,
        params=shape.params,
        trainable=_trainable(s, shape),
        capacity_bytes=capacity,
        fits_probability=None if capacity is None else max(0.01, min(0.99, 0.5 + 2.5 * (capacity - process) / process)),
        assumed=s.assumed,
        warnings=shape.warnings,
    )


def _trainable(s: Setting, shape: ModelShape) -> int:
    if not s.training:
        return 0
    return shape.lora_params(s.targets, s.rank, dora=s.dora) if s.adapters else shape.params


def _training(s: Setting, shape: ModelShape) -> dict[str, Phase]:
    split = s.tp * s.pp
    bits = {"nf4": 0.5625, "nf4-double": 0.516, "int8": 1.0, "gptq-int4": 0.53, "awq-int4": 0.53, "fp8": 1.0}.get(s.quant)
    weights = shape.params * s.param_bytes
    if bits is not None:
        weights = shape.linear_params * bits + (shape.params - shape.linear_params) * s.param_bytes
    trainable = _trainable(s, shape)
    each = s.adapter_bytes if s.adapters else s.param_bytes
    share_w = s.shards if s.sharding in ("zero3", "fsdp", "fsdp2", "hsdp") else 1
    share_g = s.shards if s.sharding in ("zero2", "zero3", "fsdp", "fsdp2", "hsdp") else 1
    static = {"weights": weights / split / share_w}
    if s.adapters:
        static["adapters"] = trainable * each / split / share_w
    states = {} if "optimizer" in s.offload else {"optimizer states": trainable * each * _moments(s.optimizer) / split / s.shards}
    grads = {"gradients": trainable * each / split / share_g}
    base = {**static, **states}
    step = step_of(s, shape)
    tokens = s.batch * s.seq / s.cp
    square = tokens * s.seq / s.cp
    phases = {"load": Phase(dict(static))}
    extra = fsdp_extra(s, shape, reduce_bytes=4.0) if s.sharding in ("fsdp", "fsdp2", "hsdp", "shard-grad-op") else None
    for name in ("forward", "loss", "backward"):
        if name in step.phases:
            phases[name] = Phase(_merged(base, step.peak(name, tokens, square, extra)[1]))
    phases["optimizer-step"] = Phase({**base, **grads, "optimizer temporaries": trainable * each / split / s.shards})
    return phases


def _merged(a: dict[str, float], b: Mapping[str, float]) -> dict[str, float]:
    out = dict(a)
    for name, size in b.items():
        out[name] = out.get(name, 0.0) + size
    return out


def _moments(optimizer: str) -> float:
    return {"sgd": 0.0, "adafactor": 0.01, "lion": 1.0, "adamw_8bit": 1.0, "paged_adamw_8bit": 1.0}.get(optimizer, 2.0)
