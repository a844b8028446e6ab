"""What was said, as consistent job fields: GPUs against parallel degrees, quantization against method, lengths."""

from __future__ import annotations

from typing import Any, Final

from oomdoc.chat.context import Context
from oomdoc.chat.phrases import PAGED
from oomkb.memory.job import Job

__all__ = ["resolve"]

_MAX_PER_NODE: Final = 8
_MODEL_PARALLEL: Final = ("tp", "pp", "cp")


def resolve(found: dict[str, Any], context: Context) -> dict[str, Any]:
    """The fields to set."""
    job = context.job
    utilization = found.pop("gpu_memory_utilization", None)
    if utilization is not None:
        found[context.utilization] = utilization
    if not context.has_rollout and "rollout.tensor_parallel" in found:
        found["tp"] = found.pop("rollout.tensor_parallel")
    serves = found.get("objective", job.objective) == "inference"
    if "seq_len" in found and serves:
        found["serving.max_model_len"] = found["seq_len"]
    if "serving.max_model_len" in found and job.seq_len is not None and serves:
        found["seq_len"] = found["serving.max_model_len"]
    _resolve_requests(found, context)
    if found.get("optimizer") == PAGED:
        eight = str(context.present("optimizer")).endswith("8bit")
        found["optimizer"] = "paged_adamw_8bit" if eight else "paged_adamw"
    if "gpu" in found and "capacity_gib" not in found and job.capacity_gib is not None:
        found["capacity_gib"] = None  # it was the other card's
    _resolve_method(found, job)
    _resolve_precision(found, job)
    if found.keys() & {"gpus", "nodes", *_MODEL_PARALLEL}:
        _resolve_gpus(found, job)
    return found


def _resolve_requests(found: dict[str, Any], context: Context) -> None:
    """No more requests at once than a server takes: the one follows the other."""
    wanted, taken = found.get("serving.concurrency"), found.get("serving.max_num_seqs")
    if wanted is not None and taken is None and wanted > (context.present("serving.max_num_seqs") or wanted):
        found["serving.max_num_seqs"] = wanted
    if taken is not None and wanted is None and taken < (context.job.get("serving.concurrency") or 0):
        found["serving.concurrency"] = taken


def _resolve_method(found: dict[str, Any], job: Job) -> None:
    if found.get("method") == "qlora" and found.get("quant") == "none":
        found.pop("quant")
    if found.get("method") in ("lora", "full") and job.method == "qlora" and "quant" not in found:
        found["quant"] = "none"
    if "lora.r" in found and "method" not in found and job.method not in ("lora", "qlora"):
        found["method"] = "lora"


def _resolve_precision(found: dict[str, Any], job: Job) -> None:
    """A 16-bit type takes the place of the 16-bit type that the job has, as stored or as autocast."""
    said = found.get("param_dtype")
    if said == "fp32" and job.autocast in ("bf16", "fp16"):
        found.setdefault("autocast", "none")
    if said not in ("bf16", "fp16") or "autocast" in found:
        return
    if job.autocast in ("bf16", "fp16"):
        found["autocast"] = said
        if job.param_dtype == "fp32":
            found.pop("param_dtype")


def _resolve_gpus(found: dict[str, Any], job: Job) -> None:
    """``4 nodes, 32 cards`` means eight in each; more ranks than GPUs raise the GPUs, fewer GPUs lower the degrees."""
    degrees = {n: int(found.get(n) or job.get(n) or 1) for n in _MODEL_PARALLEL}
    ranks = degrees["tp"] * degrees["pp"] * degrees["cp"]
    if "gpus" in found or "nodes" in found:
        nodes, gpus = _machines(found, job)
        if ranks > nodes * gpus and not found.keys() & set(_MODEL_PARALLEL):
            _lower(found, degrees, nodes * gpus)
            ranks = 1
    elif ranks > (job.world or (job.gpus or 1) * (job.nodes or 1)):
        nodes, gpus = job.nodes or 1, job.gpus or 1
    else:
        return
    if ranks > nodes * gpus:
        gpus = min(ranks, max(_MAX_PER_NODE, gpus)) if nodes == 1 else gpus
        nodes = max(nodes, -(-ranks // gpus))
    found["gpus"] = gpus
    if nodes > 1 or job.nodes:
        found["nodes"] = nodes
    found["world"] = nodes * gpus
    if job.dp is not None:
        found["dp"] = None


def _machines(found: dict[str, Any], job: Job) -> tuple[int, int]:
    nodes = found.get("nodes") or job.nodes or 1
    gpus = found.get("gpus") or job.gpus or 1
    if found.get("nodes", 1) > 1 and gpus > _MAX_PER_NODE and gpus % nodes == 0 and "gpus" in found:
        return nodes, gpus // nodes
    if "nodes" not in found:
        if gpus > 16 and gpus % 8 == 0:
            return gpus // 8, 8
        if job.nodes and job.nodes > 1:
            if found.get("gpus", 0) == job.nodes * (job.gpus or 8):
                return nodes, job.gpus or 8
            if found.get("gpus") == 1:
                return 1, 1
    return nodes, gpus


def _lower(found: dict[str, Any], degrees: dict[str, int], world: int) -> None:
    """Parallel degrees that fit the GPUs left, the tensor-parallel one kept longest."""
    for name in ("cp", "pp", "tp"):
        product = degrees["tp"] * degrees["pp"] * degrees["cp"]
        if product <= world or degrees[name] == 1:
            continue
        others = product // degrees[name]
        degrees[name] = max(1, world // others)
        found[name] = degrees[name]
