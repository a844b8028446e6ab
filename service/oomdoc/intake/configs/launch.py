"""How many processes, GPUs and machines a command starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.table import Reading, norm
from oomdoc.intake.configs.values import number, whole
from oomdoc.intake.configs.wordlist import meanings
from oomkb.frameworks import LAUNCHERS

__all__ = ["ENVIRONMENT", "LAUNCH_KEYS", "launch_facts", "visible_gpus"]

_FAMILIES: Final = meanings("machine")
_COUNTS: Final = {name: int(count) for name, count in meanings("cards").items()}
_TYPE: Final = re.compile(r"(?:ml\.)?(?P<family>[gp][0-9][a-z]{0,2})\.(?P<size>(?:[0-9]{1,2})?xlarge|metal)\Z")
_ASKED: Final = re.compile(r"(?P<gpu>[A-Za-z][\w-]{1,30})(?::(?P<count>[0-9]{1,2}))?\Z")


def instance(value: Any) -> tuple[str, int] | None:
    """GPU and count of an instance type."""
    found = _TYPE.match(value.strip()) if isinstance(value, str) and len(value) < 40 else None
    if found is None or found["family"] not in _FAMILIES:
        return None
    return _FAMILIES[found["family"]], _COUNTS.get(f"{found['family']}.{found['size']}", 1)


def accelerators(value: Any) -> tuple[str, int] | None:
    """GPU and count of ``A100-80GB:8``; ``None`` for several to choose from."""
    found = _ASKED.match(value.strip()) if isinstance(value, str) and len(value) < 60 else None
    return (found["gpu"], int(found["count"] or 1)) if found is not None else None


_PER_NODE: Final = frozenset({"nproc_per_node", "num_gpus", "n_gpus_per_node", "gpus_per_node", "num_gpus_per_node"})
_NODES: Final = frozenset({"nnodes", "num_nodes", "num_node", "num_machines"})
_WORLD: Final = frozenset({"num_processes"})
_SLURM: Final[Mapping[str, str]] = {"gpus_per_node": "gpus", "gres": "gpus", "nodes": "nodes"}
"""Of ``#SBATCH`` and ``srun``."""
_KUBERNETES: Final = "resources.limits.nvidia.com/gpu"
_COMPOSE: Final = "reservations.devices[].count"
_CARD: Final = ("cloud.google.com/gke-accelerator", "nvidia.com/gpu.product")
"""Labels of a node: GKE's, and those of NVIDIA's feature discovery."""
_GROUP: Final = ("leaderWorkerTemplate.size", "trainer.numNodes")
"""Machines of one run: a LeaderWorkerSet's, a Kubeflow TrainJob's."""
_ACCELERATORS: Final = "resources.accelerators"
_INSTANCE: Final = frozenset({"instance_type", "instancetype"})
LAUNCH_KEYS: Final = (
    _PER_NODE | _NODES | _WORLD | {"include", "gpus", "node_rank", "master_addr", "master_port", "main_process_port"}
)
_COUNTING: Final = meanings("environment")
ENVIRONMENT: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "MAX_PIXELS": ("max_pixels", whole),
    "MAX_TOTAL_TOKENS": ("serving.max_model_len", whole),
    "MAX_BATCH_PREFILL_TOKENS": ("serving.max_num_batched_tokens", whole),
    "MAX_CONCURRENT_REQUESTS": ("serving.max_num_seqs", whole),
    "CUDA_MEMORY_FRACTION": ("serving.gpu_memory_utilization", number),
    "NUM_SHARD": ("tp", whole),
    "OLLAMA_NUM_PARALLEL": ("serving.concurrency", whole),
    "OLLAMA_CONTEXT_LENGTH": ("serving.max_model_len", whole),
    "OLLAMA_KV_CACHE_TYPE": ("serving.kv_dtype", lambda value: {"f16": "auto"}.get(str(value), str(value))),
}
"""Settings that are environment variables: the job field, and how the value is read.

ms-swift 3 (command-line parameters); text-generation-inference 2 and 3 (``env`` in ``launcher/src/main.rs``);
Ollama (``envconfig/config.go``: each of the parallel requests has a cache of the whole context).
"""
_DEVICE_LIST: Final = re.compile(r"[0-9]{1,3}(?:,[ ]?[0-9]{1,3}){0,63},?\Z")


def visible_gpus(value: str) -> int | None:
    """How many devices ``"0,1,2,3"`` lists."""
    text = value.strip().strip("\"'")
    return len([p for p in text.split(",") if p.strip()]) if _DEVICE_LIST.match(text) else None


def launch_facts(entries: list[Entry], env: list[Entry]) -> Iterator[Reading]:
    """Fields ``gpus``, ``nodes``, ``world``, ``gpu`` from flags, the machines asked for and the environment."""
    found: dict[str, Reading] = {}
    for entry in entries:
        for field, count in _launched(entry):
            found.setdefault(field, (field, count, entry))
    for entry in env:
        stated = whole(entry.value)
        name = _COUNTING.get(entry.key, "")
        if entry.resolved and name in ("gpus", "nodes") and stated and stated > 0:
            found.setdefault(name, (name, stated, entry))
    for reading in _asked(entries):
        if reading[0] != "gpus" or "world" not in found:
            found.setdefault(reading[0], reading)
    visible = ((visible_gpus(str(entry.value)), entry) for entry in env if _COUNTING.get(entry.key) == "visible")
    devices = [(count, entry) for count, entry in visible if count and entry.resolved]
    if devices and "gpus" not in found and "world" not in found:
        found["gpus"] = ("gpus", *devices[0])
    yield from found.values()
    yield from _settings(env)
    if "gpus" in found and "nodes" not in found:
        yield from (("gpu_count", count, entry) for count, entry in devices[:1] if count > found["gpus"][1])


def _asked(entries: list[Entry]) -> Iterator[Reading]:
    cloud = any(entry.key.endswith(_ACCELERATORS) for entry in entries)
    for entry in entries:
        yield from _machines(entry)
        if cloud and entry.key == "num_nodes" and entry.style == "pair" and (count := whole(entry.value)):
            yield "nodes", count, entry


def _machines(entry: Entry) -> Iterator[Reading]:
    """What is asked of a cluster or a cloud."""
    key = entry.key
    if entry.style == "pair" and key.endswith((_KUBERNETES, _COMPOSE)) and (count := whole(entry.value)):
        yield "gpus", count, entry
    if entry.style == "pair" and key.endswith(_GROUP) and (count := whole(entry.value)):
        yield "nodes", count, entry
    if entry.scope in ("sbatch", "srun") and not entry.off and norm(key) in _SLURM and (count := whole(entry.value)):
        yield _SLURM[norm(key)], count, entry
    machine = None
    if (entry.style == "pair" and key.endswith(_ACCELERATORS)) or (entry.style == "kwarg" and key == "gpu"):
        machine = accelerators(entry.value)
    elif entry.style in ("pair", "kwarg", "assign") and norm(key).rsplit(".", 1)[-1] in _INSTANCE:
        machine = instance(entry.value)
    if entry.style == "pair" and key.endswith(_CARD) and isinstance(entry.value, str):
        yield "gpu", entry.value, entry
    if machine is not None:
        yield "gpu", machine[0], entry
        yield "gpus", machine[1], entry
    if entry.style == "kwarg" and norm(key) == "instance_count" and (count := whole(entry.value)):
        yield "nodes", count, entry


def _launched(entry: Entry) -> Iterator[tuple[str, int]]:
    """What a launcher's flag says."""
    if entry.off or entry.style not in ("flag", "flag=", "override") or entry.scope == "sbatch":
        return
    last = norm(entry.key).rsplit(".", 1)[-1]
    if entry.scope == "srun" and norm(entry.key) in _SLURM:
        return
    count = whole(entry.value)
    if isinstance(entry.value, str) and ":" in entry.value and last == "nnodes":
        count = whole(entry.value.split(":")[-1])
    field = "gpus" if last in _PER_NODE else "nodes" if last in _NODES else ""
    if last in _WORLD and entry.scope in LAUNCHERS:
        field = "world"
    if last == "include" and entry.scope in LAUNCHERS:
        field, count = "gpus", _included(str(entry.value))
    if field and count and count > 0:
        yield field, count


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
