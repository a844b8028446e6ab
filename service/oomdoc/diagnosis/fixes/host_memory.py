"""Host memory: more of it for the container or job, or less put into it.

What fills it: one copy of the model per rank while loading, offloaded states, pinned buffers, data-loader workers
that copy the data set, checkpoints gathered for saving.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from oomdoc.diagnosis.fixes._remedy import DEEPSPEED, Context, Variant, is_rl, remedy
from oomdoc.diagnosis.fixes._remedy import step as any_step
from oomdoc.diagnosis.forms import CARD_USABLE, HOST_USABLE, LITTLE_HOST_BYTES
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job
from oomkb.memory.ranks import FSDP
from oomkb.units import GIB

if TYPE_CHECKING:
    from oomdoc.diagnosis.host import HostNeed

ZERO_FIRST: Final = (
    "training_args = TrainingArguments(..., deepspeed='ds_z3.json'); model = AutoModel.from_pretrained(...)"
)
"""ZeRO-3's configuration has to exist before the weights are read: ``is_deepspeed_zero3_enabled``."""


@remedy("same-numbers", "any", causes=["host-ram"])
def host_memory(job: Job, context: Context) -> Iterator[Variant]:
    """What of it is too much, by what the job and the text say of it; then a higher limit."""
    need = context.facts.get("host_need")
    in_memory = [*_volumes(context)]
    if context.facts.get("files_in_memory"):
        yield from in_memory
    limited = [*_limits(job, context)] if need is None or context.facts.get("wsl") else []
    yield from limited
    if context.facts.get("paging_file"):
        yield _step("paging-file", 0.2)
    elif need is not None and need.kind == "offload":
        yield from _offloaded(job, context, need)
    elif context.facts.get("preprocessing"):
        line = context.arguments(preprocessing_num_workers=1)
        yield _step("preprocessing", 0.4, line=line if line_of(context.framework, "arguments") else _MAP)
    elif context.facts.get("engine_sees_no_gpu"):
        yield _step("no-gpu", 0.2, line=_GPUS)
    elif context.phase == "save" or (need is not None and need.kind == "merge"):
        if need is not None and need.kind == "merge" and job.sharding in DEEPSPEED:
            yield _step("merge-parts", 0.4, line=_PARTS)
        elif job.sharding not in (*DEEPSPEED, *FSDP) and _placed(job, context, need):
            yield from _merged(context, need)
            return
    elif is_rl(job) and not (need is not None and need.kind == "offload"):
        yield from _shared_with_rollouts(context)
        need = None  # what is loaded is a small part of it
    elif need is not None and need.kind == "load":
        yield from _loaded(job, context, need)
    if context.facts.get("host_array"):
        yield _step("array", 0.3, size_bytes=context.requested_bytes)
    elif context.facts.get("object_workers") and not context.serving and (need is None or need.kind == "load"):
        if context.own_code and not context.facts.get("preprocessing"):
            yield _step("objects", 0.6, line=_ARROW)
        line = context.arguments(dataloader_num_workers=2, dataloader_pin_memory=False)
        yield _step("workers", 0.4, line=line)
    if line_of(context.framework, "smaller-file") is not None:
        yield from _smaller_file(context)
    yield from _more(context, need)
    if not context.facts.get("files_in_memory"):  # most such volumes are /dev/shm, and hold little
        yield from in_memory


def _volumes(context: Context) -> Iterator[Variant]:
    """What is written to a volume in memory, on Kubernetes."""
    if context.facts.get("memory_volume") and context.facts.get("scheduler") == "kubernetes":
        yield _step("memory-volume", 0.6, line=_ON_DISK)


def _merged(context: Context, need: HostNeed | None) -> Iterator[Variant]:
    """Room first, where the program that merges or converts is not one whose settings are known."""
    own = line_of(context.framework, "merge")
    how = _step("merge", 0.6, line=own or context.in_library(_MERGE))
    yield from (*_more(context, need), how) if own is None else (how, *_more(context, need))


def _limits(job: Job, context: Context) -> Iterator[Variant]:
    """What limits host memory, or ends a process, other than that there is too little of it."""
    if context.facts.get("locked_limit"):
        yield _step("locked", 0.2, line="ulimit -l unlimited")
    elif context.facts.get("pins"):
        yield _step("pinned", 0.3, line='"pin_memory": false' if job.sharding in DEEPSPEED else "pin_memory=False")
    if context.facts.get("wsl"):
        yield _step("wsl", 0.3, line="memory=")
    if context.facts.get("killed") and context.phase == "unknown" and context.facts.get("scheduler") is None:
        yield _step("look", 0.2, line=_KILLED)


_KILLED: Final = "dmesg -T | grep -iE 'killed process|out of memory'"


def _step(name: str, effort: float, **values: Any) -> Variant:
    return any_step(f"host-memory.{name}", effort, **values)


_ON_DISK: Final = "volumes: [{name: models, persistentVolumeClaim: {claimName: models}}]"
_GPUS: Final = "docker run --gpus=all ..."
_NVME: Final = '"offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}'
"""DeepSpeed's ZeRO-Infinity, which shards parameters: ``runtime/zero/offload_config.py``."""
_MERGE: Final = (
    "AutoModelForCausalLM.from_pretrained(..., torch_dtype='bfloat16', low_cpu_mem_usage=True, device_map='auto')"
)
_PARTS: Final = "python zero_to_fp32.py . out/ --max_shard_size 5GB"
"""From DeepSpeed 0.16 each part is put together when it is written: ``utils/zero_to_fp32.py``, ``lazy_mode``."""
_MAP: Final = "dataset.map(..., num_proc=4, writer_batch_size=100, keep_in_memory=False)"
_ARROW: Final = "datasets.load_dataset('json', data_files=...)"
_QUANTIZED: Final = "from_pretrained(..., device_map='auto', quantization_config=BitsAndBytesConfig(load_in_4bit=True))"
_STEP_GIB: Final = 16
_Q4_BYTES: Final = 0.61
"""Bytes per parameter of a Q4_K_M file (llama.cpp ``tools/quantize/README.md``: 4.89 bits)."""
_BESIDE_BYTES: Final = 2.0 * GIB
"""What Ollama asks for beside the file: a cache of 4,096 tokens, compute buffers, its projector."""


def _offloaded(job: Job, context: Context, need: HostNeed) -> Iterator[Variant]:
    """Less of it on the host, where the card has the room; to disk, where nothing else has."""
    offload = job.offload or ()
    kept = "param" if "param" in offload else "optimizer"
    own = line_of(context.framework, "keep-param" if kept == "param" else "keep-optimizer")
    switch = line_of(context.framework, "offload-switch") if kept == "optimizer" else None
    if not context.host_holds(need.total_bytes) and job.sharding == "zero3":
        yield _step("nvme", 0.3, line=_NVME)
    if context.facts.get("fits_on_gpu", True) and (own is not None or job.sharding in DEEPSPEED):
        if own is not None:
            yield _step(f"{kept}-set", 0.4, line=own)
        else:
            yield _step(kept, 0.4, setting=switch or f'"offload_{kept}"')
    pinned = job.sharding in DEEPSPEED and job.extra.get("pin_memory") is not False
    if pinned and own is None and switch is None and context.host_holds(context.facts.get("unpinned_bytes", 0.0)):
        yield _step("pinned", 0.3, line='"pin_memory": false')


def _placed(job: Job, context: Context, need: HostNeed | None) -> bool:
    """Whether the cards and the machine's memory together hold what a merge needs, as far as they are known."""
    if need is None or context.device is None:
        return True
    cards = (job.gpus or 1) * context.device.capacity_bytes
    return context.host_holds(max(0.0, need.total_bytes - CARD_USABLE * cards))


def _loaded(job: Job, context: Context, need: HostNeed) -> Iterator[Variant]:
    """One copy instead of one per process, in 16 bits instead of 32, or straight onto the cards in four."""
    half = "bfloat16" if context.device is None or context.can("bf16") else "float16"
    dtype = f"torch_dtype=torch.{half}"
    sizes: dict[str, Any] = {"count": need.count, "copy_bytes": need.copy_bytes, "all_bytes": need.total_bytes}
    if need.dtype == "fp32" and job.sharding in (None, "none", "ddp") and context.host_holds(need.total_bytes / 2):
        line = context.in_library(f"from_pretrained(..., {dtype})")
        yield _step("half", 0.3, half_bytes=need.total_bytes / 2, line=line, **sizes)
    if need.count > 1:
        yield _step("load-copies", 0.6, line=_load_line(job, context, dtype, need.copy_bytes), **sizes)
    elif need.count == 1 and context.script:
        yield _step(
            "quantized",
            0.5,
            quarter_bytes=_Q4_BYTES / 2 * need.total_bytes / (2 if need.dtype == "fp32" else 1),
            line=context.in_library(_QUANTIZED),
        )


def _shared_with_rollouts(context: Context) -> Iterator[Variant]:
    """Several models' states and sleeping engines in one machine's memory: what of them is there by a setting."""
    for kept in ("param", "optimizer"):
        if (own := line_of(context.framework, f"keep-{kept}")) is not None:
            yield _step(f"{kept}-set", 0.3, line=own)
    yield _step("rollouts", 0.5)


def _smaller_file(context: Context) -> Iterator[Variant]:
    """The largest model in four bits for which there is room, where the engine says how much that is."""
    free = context.facts.get("host_free_bytes")
    if free and free > 2 * _BESIDE_BYTES:
        billions = math.floor((free - _BESIDE_BYTES) / _Q4_BYTES / 1e9)
        yield _step("smaller-model", 0.4, free_bytes=free, billions=billions)


def _more(context: Context, need: HostNeed | None) -> Iterator[Variant]:
    """A higher limit from whoever sets one; of a machine of its own, memory or swap."""
    known, scheduler = context.host_bytes, context.facts.get("scheduler")
    needed = need.total_bytes if need is not None else context.requested_bytes or 0.0
    if (context.host_bytes and context.host_holds(needed)) or (need is not None and need.kind == "save"):
        needed = 0.0  # something else fills it
    gib = -(-round(needed / HOST_USABLE / GIB) // _STEP_GIB) * _STEP_GIB
    if scheduler is not None and (not known or gib <= known / GIB):
        gib = 0  # a limit that is not in sight may be higher already
    lines = {
        "slurm": f"#SBATCH --mem={f'{gib}G' if gib else 0}",
        "kubernetes": f"resources.limits.memory: {f'{gib}Gi' if gib else '...'}",
        "docker": f"docker run --memory={f'{gib}g' if gib else '...'}",
    }
    if scheduler in lines:
        form = "limit-need" if gib else "limit-of" if known else "limit-for" if needed else "limit"
        yield _step(form, 0.6, line=lines[scheduler], needed_bytes=needed, limit_bytes=known or 0)
    elif gib and needed >= LITTLE_HOST_BYTES:
        yield _step("more", 0.8, needed_bytes=needed)


def _load_line(job: Job, context: Context, dtype: str, copy_bytes: float) -> str:
    """What loads one copy per machine, in the words of what the person uses; no card takes more than it has."""
    if job.sharding in FSDP:
        # accelerate (utils/dataclasses.py) refuses the one without the other; FSDP2 always hands the shards out.
        keys = ["fsdp_cpu_ram_efficient_loading", *(["fsdp_sync_module_states"] if job.sharding == "fsdp" else [])]
        flags = context.facts.get("fsdp_flags")
        return " ".join(f"--{key} true" for key in keys) if flags else ", ".join(f"{key}: true" for key in keys)
    card = context.device.capacity_bytes if context.device is not None else math.inf
    if job.sharding == "zero3" or copy_bytes > CARD_USABLE * card:
        return ZERO_FIRST
    return f"from_pretrained(..., {dtype}, device_map={{'': int(os.environ['LOCAL_RANK'])}})"
