"""How many processes, GPUs and machines a command starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from oomdoc.intake.configs import codecs
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.table import Reading, norm
from oomdoc.intake.configs.values import number, whole
from oomdoc.intake.configs.wordlist import meanings
from oomdoc.intake.numbers import to_bytes
from oomkb.frameworks import LAUNCHERS
from oomkb.kept import lazy
from oomkb.units import GIB

_ASKED: Final = lazy(r"(?P<gpu>[A-Za-z][\w-]{1,30})(?::[0-9]{1,4}GB)?(?::(?P<count>[0-9]{1,2}))?\Z")


def accelerators(value: Any) -> tuple[str, int] | None:
    """GPU and count of ``A100-80GB:8``, ``A100:80GB:8`` or ``nvidia-l4:1``; ``None`` for several to choose from."""
    found = _ASKED.match(value.strip()) if isinstance(value, str) and len(value) < 60 else None
    return (_card(found["gpu"]), int(found["count"] or 1)) if found is not None else None


def _card(label: str) -> str:
    """A card by its own name, in a label that names its maker first (``nvidia-tesla-t4``, ``nvidia-gpu-h100``)."""
    name = _MAKER.sub("", label)
    return name.upper() if name != label else label


_MAKER: Final = lazy(r"(?:nvidia|amd)-(?:gpu-|tesla-)?", re.I)


_OPTIONS: Final = meanings("launch")
_SLURM: Final = meanings("launch_slurm")
_MPI: Final = meanings("launch_mpi")
_KUBERNETES: Final = ("resources.limits.nvidia.com/gpu", "resourcesPerNode.limits.nvidia.com/gpu")
_COMPOSE: Final = "reservations.devices[].count"
_PODS: Final = lazy(r"(.{0,200}(?:ReplicaSpecs\.\w{1,40}|workerGroupSpecs\[[0-9]*\]))\.replicas\Z")
"""How many pods of one role a training operator's job, or a Ray cluster, has."""
_CARD: Final = ("cloud.google.com/gke-accelerator", "nvidia.com/gpu.product")
"""Labels of a node: GKE's, and those of NVIDIA's feature discovery."""
_GROUP: Final = ("leaderWorkerTemplate.size", "trainer.numNodes")
"""Machines of one run: a LeaderWorkerSet's, a Kubeflow TrainJob's."""
_PROCESSES: Final = ("trainer.numProcPerNode",)
_ACCELERATORS: Final = ("resources.accelerators", "resources.gpu", "spec.resourceProfile")
"""SkyPilot's, dstack's and KubeAI's."""
_REQUESTS: Final = frozenset({"sbatch", "srun"})
"""What asks Slurm (or PBS) for machines."""
_ARGUMENTS: Final = meanings("launch_arguments")
LAUNCH_KEYS: Final = frozenset(_OPTIONS) | {
    "include",
    "gpus",
    "node_rank",
    "master_addr",
    "master_port",
    "main_process_port",
}
_COUNTING: Final = meanings("environment")


def _model_of_hub(value: Any) -> str | None:
    """``owner/name``; a path or a bare word under such a name may be anything's."""
    return codecs.MODEL.read(value) if isinstance(value, str) and _OF_HUB.fullmatch(value) else None


_OF_HUB: Final = lazy(r"[\w.\-]{1,96}/[\w.\-]{1,96}")
_AS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "model": _model_of_hub,
    "serving.gpu_memory_utilization": number,
    "serving.kv_dtype": lambda value: {"f16": "auto"}.get(str(value), str(value)),
}
ENVIRONMENT: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    name: (field, _AS.get(field, whole)) for name, field in meanings("variables").items()
}
"""Settings that are environment variables: the job field, and how the value is read."""
_DEVICE_LIST: Final = lazy(r"[0-9]{1,3}(?:,[ ]?[0-9]{1,3}){0,63},?\Z")


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
    for reading in _by_mpi(entries, started="gpus" in found):
        found.setdefault(reading[0], reading)
    for entry in env:
        stated = whole(entry.value)
        name = _COUNTING.get(entry.key, "")
        if entry.resolved and name in ("gpus", "nodes") and stated and stated > 0:
            found.setdefault(name, (name, stated, entry))
    for reading in _asked(entries):
        if reading[0] not in ("gpus", "world") or found.keys().isdisjoint(("gpus", "world")):
            found.setdefault(reading[0], reading)
    visible = ((visible_gpus(str(entry.value)), entry) for entry in env if _COUNTING.get(entry.key) == "visible")
    devices = [(count, entry) for count, entry in visible if count and entry.resolved]
    if devices and "gpus" not in found and "world" not in found:
        found["gpus"] = ("gpus", *devices[0])
    yield from found.values()
    yield from _settings(entries, env)
    if "gpus" in found and "nodes" not in found:
        yield from (("gpu_count", count, entry) for count, entry in devices[:1] if count > found["gpus"][1])


def batch_of_each(entries: list[Entry], env: list[Entry], programs: str, said: Collection[str]) -> Iterator[Reading]:
    """The batch of a launched program, where there are more ranks than samples in it: then it is each rank's own.

    :param said: fields that the command states; of ranks that hold a part of the model, several share a batch.
    """
    launched = LAUNCHERS & set(programs.split()) or "torchrun" in programs
    if not launched or not _SPLIT.isdisjoint(said):
        return
    found = {name: count for name, count, _ in launch_facts(entries, env)}
    gpus, nodes = found.get("gpus"), found.get("nodes", 1)
    ranks = found.get("world", gpus * nodes if isinstance(gpus, int) and isinstance(nodes, int) else None)
    batches = [e for e in entries if norm(e.key) in _BATCHES and e.style in ("flag", "flag=") and not e.off]
    for entry in batches if len(batches) == 1 and batches[0].resolved else ():
        size = whole(entry.value)
        if size and isinstance(ranks, int) and 0 < size < ranks:
            yield "micro_batch", size, entry


_BATCHES: Final = frozenset({"batch_size", "train_batch_size"})
_SPLIT: Final = frozenset({"tp", "pp", "cp", "sp", "ep", "grad_accum"})


def launch_option(entry: Entry) -> str:
    """The field that a launcher's option says, whatever its value."""
    return _OPTIONS.get(norm(entry.key).rsplit(".", 1)[-1], "") if entry.style in ("flag", "flag=") else ""


def every_statement(entries: list[Entry], env: list[Entry]) -> Iterator[Reading]:
    """As :func:`launch_facts`, with what another statement makes void."""
    for entry in entries:
        yield from ((field, count, entry) for field, count in _launched(entry))
    yield from _asked(entries)
    yield from _by_mpi(entries, started=False)
    for entry in env:
        name, count = _COUNTING.get(entry.key, ""), whole(entry.value)
        if name == "visible" and (devices := visible_gpus(str(entry.value))):
            yield "gpus", devices, entry
        elif name in ("gpus", "nodes") and count:
            yield name, count, entry
    yield from _settings(entries, env)


def counted_as(entry: Entry, text: str, was: Any, value: Any) -> str | None:
    """A value in the manner of what stands there: ``8``, ``gpu:a100:8``, a list of devices.

    ``None`` where the old value was worked out from something else.
    """
    if ENVIRONMENT.get(entry.key, ("",))[0] == "serving.kv_dtype":
        return _CACHES.get(value)
    if _COUNTING.get(entry.key) == "visible":
        listed = [part.strip() for part in text.split(",") if part.strip()]
        if listed == [str(device) for device in range(len(listed))]:
            listed += map(str, range(len(listed), value))
        return ",".join(listed[:value]) if value <= len(listed) else None  # which others are free, nobody knows
    found = _COUNTED_THING.fullmatch(text)
    if found is None or number(found[2]) != was:
        return str(value) if entry.style == "env" else None
    return f"{found[1] or ''}{value}"


_CACHES: Final = {"auto": "f16", "q8_0": "q8_0", "q4_0": "q4_0"}
"""Ollama's words (``envconfig/config.go``, OLLAMA_KV_CACHE_TYPE)."""
_COUNTED_THING: Final = lazy(r"(.{0,80}:)?([0-9.]{1,8})")


def _asked(entries: list[Entry]) -> Iterator[Reading]:
    cloud = any(entry.key.endswith(_ACCELERATORS) for entry in entries)
    for entry in entries:
        yield from _machines(entry)
        if cloud and entry.key == "num_nodes" and entry.style == "pair" and (count := whole(entry.value)):
            yield "nodes", count, entry
    yield from _of_slurm(entries)
    yield from _of_pods(entries)
    yield from _of_sections(entries)


_CLUSTER: Final = lazy(r"(?:\A|[._])(?:slurm|sbatch|cluster|resources|compute|hardware|distributed|launcher)\Z")
"""Sections of a configuration that say where it runs, whatever runs it."""
_IN_SECTION: Final = {name: field for name, field in _OPTIONS.items() if field != "world"} | {"nodes": "nodes"}


def _of_sections(entries: list[Entry]) -> Iterator[Reading]:
    """Machines and cards in a section for them, where no other section says otherwise."""
    said: dict[str, list[Reading]] = {}
    for entry in entries:
        section, _, last = norm(entry.key).rpartition(".")
        field, count = _IN_SECTION.get(last, ""), whole(entry.value)
        if entry.style == "pair" and field and count and count > 0 and _CLUSTER.search(section.lower()):
            said.setdefault(field, []).append((field, count, entry))
    yield from (found[0] for found in said.values() if len({count for _, count, _ in found}) == 1)


def _options(entries: list[Entry], scopes: frozenset[str], names: Mapping[str, str]) -> dict[str, tuple[int, Entry]]:
    """What a launcher's options say, by meaning; of several the most: a step of a job may well take less of it."""
    out: dict[str, tuple[int, Entry]] = {}
    for entry in entries:
        meaning = names.get(norm(entry.key)) if entry.scope in scopes and not entry.off else None
        if meaning and entry.resolved and (count := _number(entry.value)) and count > out.get(meaning, (0,))[0]:
            out[meaning] = count, entry
    return out


def _number(value: Any) -> int | None:
    """A count as launchers write it: ``8``, ``gpu:a100:8``, ``2-4`` (at least two), ``ppr:8:node``."""
    if isinstance(value, str) and (found := _COUNT.match(value)):
        return int(next(group for group in found.groups() if group))
    return whole(value)


_COUNT: Final = lazy(
    r"(?:gpu:)?(?:[A-Za-z][\w.-]{0,40}:)?([0-9]{1,4})\Z|([0-9]{1,4})-[0-9]{1,4}\Z|ppr:([0-9]{1,3}):node"
)


def _of_slurm(entries: list[Entry]) -> Iterator[Reading]:
    """What ``#SBATCH``, ``salloc`` and ``srun`` ask for: cards of a machine, or of a task, or in all."""
    said = _options(entries, _REQUESTS, _SLURM)
    each = said.get("gpus_per_task")
    for field, tasks in (("gpus", "tasks_per_node"), ("world", "tasks")):
        if each is not None and tasks in said:
            said.setdefault(field, (each[0] * said[tasks][0], said[tasks][1]))
    yield from ((field, *said[field]) for field in ("nodes", "gpus", "world") if field in said)
    memory = next((e for e in entries if _SLURM.get(norm(e.key)) == "memory_per_cpu" and e.scope in _REQUESTS), None)
    if memory is not None and (found := _MEMORY.match(str(memory.value))) is not None:
        one = (1, memory)
        cpus = said.get("cpus_per_task", one)[0] * said.get("tasks_per_node", said.get("tasks", one))[0]
        yield "host_gib", cpus * to_bytes(found[1], found[2] or "M") / GIB, memory


_MEMORY: Final = lazy(r"([0-9]{1,7})([KMGT]?)\Z", re.IGNORECASE)
"""A size as Slurm takes it: in megabytes where no unit is given."""


def _by_mpi(entries: list[Entry], *, started: bool) -> Iterator[Reading]:
    """How many processes ``mpirun`` starts: one a card, or, where what it starts does that, one a machine."""
    said = _options(entries, frozenset({"mpirun"}), _MPI)
    total, each = said.get("world"), said.get("gpus")
    hosts = [
        (_slots(entry.value, ","), entry)
        for entry in entries
        if _MPI.get(entry.key) == "hosts" and entry.scope == "mpirun"
    ]
    if hosts and hosts[0][0]:
        yield "nodes", len(hosts[0][0]), hosts[0][1]
    elif total is not None and (started or each is not None):
        yield "nodes", max(1, total[0] // (each[0] if each is not None else 1)), total[1]
    if total is not None and not started:
        yield "world", *total


def _slots(value: Any, between: str) -> list[int]:
    """The cards of each machine in a list of them, counted for MPI and named by DeepSpeed; one where none are told."""
    parts = [part.partition(":")[2] for part in str(value).split(between)[:64] if part.strip()]
    return [int(slots) if between == "," and slots.isdecimal() else visible_gpus(slots) or 1 for slots in parts]


def _of_pods(entries: list[Entry]) -> Iterator[Reading]:
    """The pods of a job that have cards, each of them a machine."""
    cards = [entry.key for entry in entries if entry.key.endswith(_KUBERNETES)]
    roles = [(found[1], whole(entry.value), entry) for entry in entries if (found := _PODS.match(entry.key))]
    counted = [(count, entry) for role, count, entry in roles if count and any(key.startswith(role) for key in cards)]
    if counted:
        yield "nodes", sum(count for count, _ in counted), counted[-1][1]


def _machines(entry: Entry) -> Iterator[Reading]:
    """What is asked of a cluster or a cloud."""
    key = entry.key
    if entry.style == "pair" and (count := whole(entry.value)):
        for ends, field in (((*_KUBERNETES, _COMPOSE), "gpus"), (_PROCESSES, "gpus"), (_GROUP, "nodes")):
            if key.endswith(ends):
                yield field, count, entry
    if entry.style == "pair" and str(entry.value).startswith("hf://") and (name := codecs.MODEL.read(entry.value)):
        yield "model", name, entry  # under whatever key: KubeAI's ``url``, KServe's ``uri``
    machine = None
    if (entry.style == "pair" and key.endswith(_ACCELERATORS)) or (entry.style == "kwarg" and key == "gpu"):
        machine = accelerators(entry.value)
    if entry.style == "pair" and key.endswith(_CARD) and isinstance(entry.value, str):
        yield "gpu", _card(entry.value), entry
    if machine is not None:
        yield "gpu", machine[0], entry
        yield "gpus", machine[1], entry
    if entry.style == "kwarg":
        field = _ARGUMENTS.get(norm(key), _ARGUMENTS.get(f"{entry.scope.rsplit('.', 1)[-1]}:{key}", ""))
        count = len(entry.items) or whole(entry.value)
        if field and count and count > 0:
            yield field, count, entry


def _launched(entry: Entry) -> Iterator[tuple[str, int]]:
    """What a launcher's flag says."""
    styles = ("flag", "flag=", "override", "bare")
    if entry.off or entry.style not in styles or entry.scope in _REQUESTS:
        return
    last, value = norm(entry.key).rsplit(".", 1)[-1], entry.value
    field, count = _OPTIONS.get(last, ""), whole(value)
    if field == "nodes" and isinstance(value, str) and ":" in value:
        count = whole(value.split(":")[-1])
    elif field == "world" and entry.scope not in LAUNCHERS:
        field = ""
    elif (last, entry.scope) == ("standalone", "torchrun"):
        field, count = "nodes", 1
    elif (last, entry.scope) == ("gpus", "docker"):
        listed = str(value).strip("\"'").removeprefix("device=")
        field, count = "gpus", visible_gpus(listed) if listed != str(value) else count
    elif last == "include" and entry.scope in LAUNCHERS and ":" in str(value):
        slots = _slots(value, "@")
        yield "gpus", max(slots)
        field, count = ("nodes", len(slots)) if len(slots) > 1 else ("", 0)
    if field and count and count > 0:
        yield field, count


def _settings(entries: list[Entry], env: list[Entry]) -> Iterator[Reading]:
    """What some programs take from the environment: TGI every one of its flags, ms-swift the sizes of images.

    A script's own variable reaches its commands by its name alone; in a file of nothing but variables, all are taken.
    """
    for entry in env:
        field, read = ENVIRONMENT.get(entry.key, ("", None))
        if entry.scope == "local" and entries and field != "model":
            continue
        value = read(entry.value) if read is not None else None
        if isinstance(value, str) or (isinstance(value, int | float) and value > 0):
            yield field, value, entry
