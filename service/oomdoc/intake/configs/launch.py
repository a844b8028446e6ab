"""How many processes, GPUs and machines a command starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.table import Reading, norm
from oomdoc.intake.configs.values import number, whole

__all__ = ["ENVIRONMENT", "LAUNCH_KEYS", "launch_facts", "visible_gpus"]

_PER_NODE: Final = frozenset({"nproc_per_node", "num_gpus", "n_gpus_per_node", "gpus_per_node", "num_gpus_per_node"})
_NODES: Final = frozenset({"nnodes", "num_nodes", "num_node", "num_machines"})
_WORLD: Final = frozenset({"num_processes"})
_SLURM: Final[Mapping[str, str]] = {"gpus_per_node": "gpus", "gres": "gpus", "nodes": "nodes"}
"""Of ``#SBATCH`` and ``srun``."""
_KUBERNETES: Final = "resources.limits.nvidia.com/gpu"
LAUNCH_KEYS: Final = (
    _PER_NODE | _NODES | _WORLD | {"include", "gpus", "node_rank", "master_addr", "master_port", "main_process_port"}
)
_ENV_PER_NODE: Final = (
    "NPROC_PER_NODE",
    "GPUS_PER_NODE",
    "NUM_GPUS",
    "N_GPUS",
    "NUM_GPUS_PER_NODE",
    "N_GPUS_PER_NODE",
    "NUM_DEVICES",
    "NGPUS",
)
_ENV_NODES: Final = ("NNODES", "NUM_NODES")
_VISIBLE: Final = (
    "CUDA_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
)
ENVIRONMENT: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "MAX_PIXELS": ("max_pixels", whole),
    "MAX_TOTAL_TOKENS": ("serving.max_model_len", whole),
    "MAX_BATCH_PREFILL_TOKENS": ("serving.max_num_batched_tokens", whole),
    "MAX_CONCURRENT_REQUESTS": ("serving.max_num_seqs", whole),
    "CUDA_MEMORY_FRACTION": ("serving.gpu_memory_utilization", number),
    "NUM_SHARD": ("tp", whole),
}
"""Settings that are environment variables: the job field, and how the value is read.

ms-swift 3 (command-line parameters); text-generation-inference 2 and 3 (``env`` in ``launcher/src/main.rs``).
"""
_DEVICE_LIST: Final = re.compile(r"[0-9]{1,3}(?:,[ ]?[0-9]{1,3}){0,63},?\Z")


def visible_gpus(value: str) -> int | None:
    """How many devices ``"0,1,2,3"`` lists."""
    text = value.strip().strip("\"'")
    return len([p for p in text.split(",") if p.strip()]) if _DEVICE_LIST.match(text) else None


def launch_facts(entries: list[Entry], env: list[Entry]) -> Iterator[Reading]:
    """Fields ``gpus``, ``nodes``, ``world`` from launchers' flags and environment variables."""
    found: dict[str, Reading] = {}
    slurm: dict[str, Reading] = {}
    for entry in entries:
        key = norm(entry.key)
        if entry.style == "pair" and entry.key.endswith(_KUBERNETES) and (asked := whole(entry.value)):
            found.setdefault("gpus", ("gpus", asked, entry))
        if entry.off or entry.style not in ("flag", "flag=", "override"):
            continue
        if entry.scope in ("sbatch", "srun") and key in _SLURM and (asked := whole(entry.value)):
            slurm.setdefault(_SLURM[key], (_SLURM[key], asked, entry))
            continue
        last = key.rsplit(".", 1)[-1]
        count = whole(entry.value)
        if isinstance(entry.value, str) and ":" in entry.value and last == "nnodes":
            count = whole(entry.value.split(":")[-1])
        if last in _PER_NODE and count and count > 0:
            found.setdefault("gpus", ("gpus", count, entry))
        elif last in _NODES and count and count > 0:
            found.setdefault("nodes", ("nodes", count, entry))
        elif last in _WORLD and entry.scope == "accelerate" and count and count > 0:
            found.setdefault("world", ("world", count, entry))
        elif last == "include" and entry.scope == "deepspeed":
            listed = _included(str(entry.value))
            if listed:
                found.setdefault("gpus", ("gpus", listed, entry))
    for entry in env:
        count = whole(entry.value)
        if entry.key in _ENV_PER_NODE and count and count > 0:
            found.setdefault("gpus", ("gpus", count, entry))
        elif entry.key in _ENV_NODES and count and count > 0:
            found.setdefault("nodes", ("nodes", count, entry))
    for field, asked_for in slurm.items():
        if field != "gpus" or "world" not in found:
            found.setdefault(field, asked_for)
    if "gpus" not in found and "world" not in found:
        for entry in env:
            if entry.key in _VISIBLE and (count := visible_gpus(str(entry.value))):
                found["gpus"] = ("gpus", count, entry)
    yield from found.values()
    yield from _settings(env)
    if "gpus" in found and "nodes" not in found:
        for entry in env:
            count = visible_gpus(str(entry.value)) if entry.key in _VISIBLE else None
            if count is not None and count > found["gpus"][1]:
                yield "gpu_count", count, entry
                return


def _settings(env: list[Entry]) -> Iterator[Reading]:
    """What some programs take from the environment: TGI every one of its flags, ms-swift the sizes of images."""
    for entry in env:
        field, read = ENVIRONMENT.get(entry.key, ("", None))
        value = read(entry.value) if read is not None else None
        if isinstance(value, int | float) and value > 0:
            yield field, value, entry


def _included(value: str) -> int | None:
    count = 0
    for part in value.split("@")[:64]:
        slots = part.partition(":")[2]
        count += visible_gpus(slots) or 0
    return count or None
