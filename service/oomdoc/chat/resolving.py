"""The fields of a turn as consistent job fields: what goes along with a card, a method, a precision or a count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oomdoc.chat.context import Context
from oomdoc.chat.phrases import PAGED
from oomdoc.diagnosis.planned import LOCAL, blocks
from oomdoc.stated import following
from oomkb.errors import JobError, note
from oomkb.frameworks import ENGINE, ENGINES, has, supports
from oomkb.memory.engines import takes_of_the_rest
from oomkb.memory.job import Job
from oomkb.pricing import device_of
from oomkb.units import GIB

_MAX_PER_NODE: Final = 8
_DISTRIBUTED: Final = "distributed-optimizer"
_MODEL_PARALLEL: Final = ("tp", "pp", "cp")


def resolve(found: dict[str, Any], context: Context, *, pure: bool = False, whole: bool = False) -> dict[str, Any]:
    """The fields to set.

    :param pure: whether the words say that the parameters themselves are held in 16 bits.
    :param whole: whether what they say of precision is said of everything, a server's cache too.
    """
    job = context.job
    if found.get("extra_models") == "unset":
        found["extra_models"] = None
    utilization = found.pop("gpu_memory_utilization", None)
    if utilization is not None:
        found[context.utilization] = utilization
    if not context.has_rollout and "rollout.tensor_parallel" in found:
        found["tp"] = found.pop("rollout.tensor_parallel")
    elif "tp" in found and job.tp is None and job.get("rollout.tensor_parallel") is not None:
        found["rollout.tensor_parallel"] = found.pop("tp")  # the one that the job has
    serves = found.get("objective", job.objective) == "inference"
    if "seq_len" in found and serves:
        found["serving.max_model_len"] = found["seq_len"]
    if "serving.max_model_len" in found and job.seq_len is not None and serves:
        found["seq_len"] = found["serving.max_model_len"]
    engine = found.get("framework", job.framework)
    if found.get("sharding") == "zero1" and not supports(engine, "sharding", "zero1") and engine is not None:
        own = supports(engine, "sharding", _DISTRIBUTED)
        found["sharding"] = _DISTRIBUTED if own else "zero1"  # what shares the optimizer's states there
    _resolve_room(found, job)
    if engine in LOCAL and found.get("quant") in ("nf4", "int8"):
        found["quant"] = blocks(found["quant"])
    if serves and engine in ("vllm", "sglang") and found.get("serving.kv_dtype") == "int8":
        found["serving.kv_dtype"] = "fp8"  # the eight bits that their cache has
    for name in ("prompt_len", "completion_len") if serves else ():
        found.pop(name, None)  # of a request, no setting
    _resolve_requests(found, context)
    if found.get("optimizer") == PAGED:
        eight = str(context.present("optimizer")).endswith("8bit")
        found["optimizer"] = "paged_adamw_8bit" if eight else "paged_adamw"
    if "gpu" in found and "capacity_gib" not in found and job.capacity_gib is not None:
        found["capacity_gib"] = None  # it was the other card's
    _resolve_method(found, job)
    found |= following(found, job)
    _resolve_precision(found, job, pure=pure, whole=whole, quant=context.present("quant"))
    if found.keys() & {"gpus", "nodes", *_MODEL_PARALLEL}:
        _resolve_gpus(found, job)
    return found


def _resolve_room(found: dict[str, Any], job: Job) -> None:
    """What others leave of the card: the share that an engine may take of it, else what it holds for this run."""
    others, free = found.pop("others_gib", None), found.pop("free_gib", None)
    device = device_of(job.with_fields({"capacity_gib": None}))
    if device is None or (others is None and free is None):
        return
    whole = device.capacity_bytes / GIB
    room = free if free is not None else whole - (others or 0.0)
    if not 0 < room < whole:
        return
    engine = found.get("framework", job.framework) or ENGINE
    serves = found.get("objective", job.objective) == "inference"
    if serves and has(engine, "serving.utilization", serving=True) and not takes_of_the_rest(engine):
        found.setdefault("serving.gpu_memory_utilization", int(100 * room / whole) / 100)
    else:
        found.setdefault("capacity_gib", round(room, 2))


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


def _resolve_precision(found: dict[str, Any], job: Job, *, pure: bool, whole: bool, quant: Any) -> None:
    """A 16-bit type takes the place of the 16-bit type that the job has, as stored or as autocast. In full training it
    means mixed precision, unless the words say "pure"; in adapters' training the frozen base is held so.
    """
    method = found.get("method", job.method)
    trains = found.get("objective", job.objective) != "inference" and method == "full"
    if trains and job.method in ("lora", "qlora") and "param_dtype" not in found and job.framework is None:
        # The base's; what is trained now is kept as a trainer keeps it.
        found.setdefault("param_dtype", job.param_dtype)
    said = found.get("param_dtype")
    if trains and said is None and found.get("autocast") in ("bf16", "fp16") and job.autocast == "none":
        found.setdefault("param_dtype", None)  # mixed again, after 16-bit parameters
    if said in ("bf16", "fp16") and job.objective == "inference" and (quant or "none") != "none":
        found.setdefault("quant", "none")  # "back to bf16"
        if whole and job.get("serving.kv_dtype") is not None:
            found.setdefault("serving.kv_dtype", said)
    if said == "fp32" and job.autocast in ("bf16", "fp16"):
        found.setdefault("autocast", "none")
    if said not in ("bf16", "fp16") or "autocast" in found:
        return
    if trains and pure:
        found["autocast"] = "none"
    elif trains and (job.param_dtype != said or job.method != "full"):
        found |= {"autocast": said, "param_dtype": None}
    elif job.autocast in ("bf16", "fp16"):
        found["autocast"] = said
        if job.param_dtype == "fp32":
            found.pop("param_dtype")


def _resolve_gpus(found: dict[str, Any], job: Job) -> None:
    """``4 nodes, 32 cards`` means eight in each; more ranks than GPUs raise the GPUs, fewer GPUs lower the degrees."""
    if job.sp is not None and job.sp == job.tp and found.get("tp") and "sp" not in found:
        found["sp"] = found["tp"]  # Megatron's splits the samples over the same ranks
    degrees = {n: int(found.get(n) or job.get(n) or 1) for n in _MODEL_PARALLEL}
    ranks = degrees["tp"] * degrees["pp"] * degrees["cp"]
    if "gpus" in found or "nodes" in found:
        nodes, gpus = _machines(found, job)
        named = found.keys() & set(_MODEL_PARALLEL)
        if ranks > nodes * gpus and not named:
            _lower(found, degrees, nodes * gpus)
            ranks = 1
        elif job.objective == "inference" and not named and ranks == degrees["tp"] == (job.world or job.gpus or 1):
            found["tp"] = degrees["tp"] = ranks = nodes * gpus  # a server takes all the cards that it gets
    elif ranks > (job.world or (job.gpus or 1) * (job.nodes or 1)):
        nodes, gpus = job.nodes or 1, job.gpus or 1
    elif job.objective == "inference" and "tp" in found and (job.tp or 1) == (job.gpus or 1) > 1 == (job.nodes or 1):
        nodes, gpus = 1, ranks  # an engine that was spread over all its cards takes as many as it is spread over now
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


def check_offered(changes: Mapping[str, Any], job: Job) -> None:
    """:raises JobError: for a way to share the states, or a format of weights, that the framework does not have."""
    framework = changes.get("framework", job.framework)
    sharding, quant = changes.get("sharding"), changes.get("quant")
    if framework in LOCAL and quant in _NOT_LOCAL:
        why = note("job.only-gguf", framework=framework, value=quant)
        raise JobError(f"{framework} runs GGUF files, not {quant}", where="quant", note=why)
    ways = [way for way in _WAYS if supports(framework, "sharding", way, job.versions)]
    near = sharding in ways or (sharding in ("fsdp", "fsdp2") and bool({"fsdp", "fsdp2"} & set(ways)))
    if framework and framework not in ENGINES and sharding in _WAYS and ways and not near:
        values = {"framework": framework, "value": sharding, "ways": ", ".join(ways)}
        raise JobError(f"{framework} has no {sharding}", where="sharding", note=note("job.no-sharding", **values))


_WAYS: Final = ("zero1", "zero2", "zero3", "fsdp", "fsdp2", "distributed-optimizer")
_NOT_LOCAL: Final = frozenset({"awq-int4", "gptq-int4", "fp8"})
