"""How many processes, GPUs and machines a command starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.table import Reading, norm
from oomdoc.intake.configs.values import whole

__all__ = ["LAUNCH_KEYS", "launch_facts", "visible_gpus"]

_PER_NODE: Final = frozenset({"nproc_per_node", "num_gpus", "n_gpus_per_node", "gpus_per_node", "num_gpus_per_node"})
_NODES: Final = frozenset({"nnodes", "num_nodes", "num_machines"})
_WORLD: Final = frozenset({"num_processes"})
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
_DEVICE_LIST: Final = re.compile(r"[0-9]{1,3}(?:,[ ]?[0-9]{1,3}){0,63},?\Z")


def visible_gpus(value: str) -> int | None:
    """How many devices ``"0,1,2,3"`` lists."""
    text = value.strip().strip("\"'")
    return len([p for p in text.split(",") if p.strip()]) if _DEVICE_LIST.match(text) else None


def launch_facts(entries: list[Entry], env: list[Entry]) -> Iterator[Reading]:
    """Fields ``gpus``, ``nodes``, ``world`` from launchers' flags and environment variables."""
    found: dict[str, Reading] = {}
    for entry in entries:
        key = norm(entry.key)
        if entry.off or entry.style not in ("flag", "flag=", "override"):
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
    if "gpus" not in found and "world" not in found:
        for entry in env:
            if entry.key in _VISIBLE and (count := visible_gpus(str(entry.value))):
                found["gpus"] = ("gpus", count, entry)
    yield from found.values()
    if "gpus" in found and "nodes" not in found:
        for entry in env:
            count = visible_gpus(str(entry.value)) if entry.key in _VISIBLE else None
            if count is not None and count > found["gpus"][1]:
                yield "gpu_count", count, entry
                return


def _included(value: str) -> int | None:
    count = 0
    for part in value.split("@")[:64]:
        slots = part.partition(":")[2]
        count += visible_gpus(slots) or 0
    return count or None
