"""Host memory of one machine, phase by phase: loading, training with its workers, saving.

Measured with real code on the CPU (``bench/measure_host.py``; transformers 5.23, torch 2.13, safetensors 0.8;
``tests/kb/memory/data/host.jsonl``): weights of the stored dtype stay mapped to their file, whose pages all ranks of a
machine share and the kernel may drop; a cast makes a copy in memory of its own, one per rank that loads; saving from
host memory copies nothing; a worker holds some 16 MiB of its own, and copies what it touches of Python's objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oomkb.memory.offload import flattened_bytes
from oomkb.memory.ranks import FSDP, GATHERED, stated_count
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB, MIB

LIBRARIES_BYTES: Final = 273.0 * MIB
"""What a process holds once torch and transformers are imported; a CUDA context comes on top, and was not measured."""
WORKER_BYTES: Final = 16.0 * MIB
_STORED: Final = 2
"""Bytes of a weight in most checkpoints."""
_SHARD: Final = 50.0 * GIB
_SHARD_4: Final = 5.0 * GIB
"""``max_shard_size`` of ``save_pretrained``, from transformers 5 on and before: a shard is copied to the host whole."""


def load_terms(weights: float, *, stored: float, cast: bool, loading: int = 1) -> dict[str, float]:
    """Host memory while a checkpoint is loaded, in bytes.

    :param weights: in the wanted dtype. :param stored: in the file's. :param loading: ranks that load at once.
    """
    return {"weights": weights * loading if cast else 0.0, "mapped files": stored}


def host_phases(s: Setting, shape: ModelShape, offloaded: float) -> Mapping[str, Mapping[str, float]]:
    """Terms in bytes for one machine; ``offloaded``: states and buffers that lie on the host while training."""
    if not s.training:
        return {}
    ranks = max(1, min(s.world, s.gpus_per_node))
    libraries = {"libraries": LIBRARIES_BYTES * ranks}
    wanted, stored = float(shape.params * s.param_bytes), float(shape.params * _STORED)
    loading = 1 if s.sharding in FSDP else ranks  # accelerate's ``cpu_ram_efficient_loading``: rank 0 alone reads
    cast = s.param_bytes != _STORED and s.quant == "none" and s.sharding != "zero3"
    workers = stated_count(s.job, "dataloader_num_workers") or 0
    count = workers if workers < 1 << 12 else 0
    trainable = wanted if not s.adapters else 0.0
    shard = _SHARD if not s.transformers or s.transformers >= (5,) else _SHARD_4
    saved = trainable if s.sharding in GATHERED else min(trainable, shard)
    running = {**libraries, "offloaded states": offloaded, "workers": WORKER_BYTES * count * ranks}
    return {
        "load": {
            **libraries,
            **load_terms(wanted, stored=stored, cast=cast, loading=loading),
            "flattened weights": flattened_bytes(s, 0.0 if s.adapters else shape.params / s.tp / s.pp),
        },
        "training": running,
        "save": {**running, "state dict": saved},
    }
