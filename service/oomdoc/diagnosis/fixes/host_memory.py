"""Host memory: more of it for the container or job, or less put into it.

What fills it: one copy of the model per rank while loading, offloaded states, pinned buffers, data-loader workers
that copy the data set, checkpoints gathered for saving.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._job import DEEPSPEED, FSDP
from oomdoc.diagnosis.fixes._lines import hf_line
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import Message, say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job
from oomkb.units import GIB

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "host-ram" not in context.causes[:2]:
        return
    offload = job.offload or ()
    kept = "param" if "param" in offload else "optimizer" if "optimizer" in offload else None
    own = line_of(context.framework, {"param": "keep-param", "optimizer": "keep-optimizer"}.get(kept or "", ""))
    if kept and context.facts.get("fits_on_gpu", True) and (own is not None or job.sharding in DEEPSPEED):
        key = f"fixes.host-memory.{kept}"
        said = say(f"{key}-set", line=own) if own is not None else say(key, line=f'"offload_{kept}"')
        yield Variant(instruction=said, effort=0.4)
    if offload and job.sharding in DEEPSPEED and own is None:
        yield Variant(instruction=say("fixes.host-memory.pinned", line='"pin_memory": false'), effort=0.3)
    needed, known = context.facts.get("host_needed_bytes") or 0.0, context.host_bytes
    short = bool(offload and known and needed > _USABLE * known)
    if short:
        if job.sharding == "zero3":
            yield Variant(instruction=say("fixes.host-memory.nvme", line=_NVME), effort=0.6)
        sizes = {"needed_bytes": needed, "limit_bytes": known}
        yield Variant(
            instruction=say("fixes.host-memory.limit-need", line=_limit(context, needed), **sizes), effort=0.6
        )
        return
    if context.facts.get("engine_sees_no_gpu"):
        yield Variant(instruction=say("fixes.host-memory.no-gpu", line=_GPUS), effort=0.2)
    if context.phase == "save" and job.sharding not in (*DEEPSPEED, *FSDP):
        yield Variant(instruction=say("fixes.host-memory.merge", line=_MERGE), effort=0.6)
    if context.phase in ("load", "unknown") and not context.serving:
        yield Variant(instruction=_one_copy(job, context), effort=0.6)
    if context.phase not in ("load", "save") and not context.serving:
        line = hf_line(context.framework, {"dataloader_num_workers": 0, "dataloader_pin_memory": False})
        yield Variant(instruction=say("fixes.host-memory.workers", line=line), effort=0.4)
    smaller = line_of(context.framework, "smaller-file")
    if smaller is not None:
        yield Variant(instruction=say("fixes.host-memory.smaller-file", line=smaller), effort=0.4)
    limit = {"line": _limit(context, needed if context.serving else 0.0)}
    raised = say("fixes.host-memory.limit-of", limit_bytes=known, **limit) if known else None
    yield Variant(instruction=raised or say("fixes.host-memory.limit", **limit), effort=0.6)


_GPUS: Final = "docker run --gpus=all ...  # with the NVIDIA container toolkit"
_NVME: Final = '"offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}'
"""DeepSpeed's ZeRO-Infinity, which shards parameters: ``runtime/zero/offload_config.py``."""
_MERGE: Final = "AutoModelForCausalLM.from_pretrained(..., dtype='bfloat16', low_cpu_mem_usage=True, device_map='auto')"
_USABLE: Final = 0.9
"""Share of a machine's memory that one job can use."""
_STEP_GIB: Final = 16


def _limit(context: Context, needed_bytes: float) -> str:
    """How the detected scheduler is asked for more; with a size where one is known to be enough."""
    gib = -(-round(needed_bytes / _USABLE / GIB) // _STEP_GIB) * _STEP_GIB
    lines = {
        "slurm": f"#SBATCH --mem={f'{gib}G' if gib else 0}",
        "kubernetes": f"resources.limits.memory: {f'{gib}Gi' if gib else '...'}",
    }
    docker = f"docker run --memory={f'{gib}g' if gib else '...'}"
    return lines.get(str(context.facts.get("scheduler")), docker if gib else f"{docker} / #SBATCH --mem=0")


def _one_copy(job: Job, context: Context) -> Message:
    """Loading on one process; with what the copies of all of them take, where that is known to be too much."""
    line, shape, limit = _load_line(job, context), context.shape, context.host_bytes
    count = job.gpus or job.world or 1
    copy = 2 * shape.params if shape is not None else 0
    if limit and copy and count > 1 and count * copy > limit:
        sizes = {"count": count, "copy_bytes": copy, "all_bytes": count * copy, "limit_bytes": limit}
        return say("fixes.host-memory.load-copies", line=line, **sizes)
    return say("fixes.host-memory.load", line=line)


def _load_line(job: Job, context: Context) -> str:
    if job.sharding in ("fsdp", "fsdp2", "hsdp"):
        return "fsdp_cpu_ram_efficient_loading: true"
    if job.sharding == "zero3":
        return "TrainingArguments(deepspeed=...)  # from_pretrained(...) after it"
    return "from_pretrained(..., low_cpu_mem_usage=True, dtype='bfloat16')"


REMEDY = Remedy(
    name="host-memory",
    safety="same-numbers",
    kinds=frozenset({"any"}),
    variants=_variants,
    causes=frozenset({"host-ram"}),
    advice=True,
)
