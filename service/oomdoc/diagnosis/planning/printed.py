"""What a log shows that remedies and plans need: what engines and ``nvidia-smi`` printed of memory, and the context.

An engine that refuses to start says how much cache it found and what one request needs. At another share of the card
it finds as much more or less; a shorter request, or keys and values of another width, need as much less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from oomdoc.diagnosis.accounts import CACHE_BYTES, TUNES, WEIGHT_BYTES
from oomdoc.diagnosis.fixes import Context
from oomdoc.diagnosis.fixes._remedy import is_script, is_serving, world_size
from oomdoc.diagnosis.host import MERGES
from oomdoc.diagnosis.planning.spelling import DASHED
from oomdoc.diagnosis.regressions import regressions_for
from oomdoc.diagnosis.view import ranks_on_one_gpu
from oomdoc.diagnosis.without_effect import ONE_UNIT, is_one_unit
from oomdoc.evidence import Document, Evidence, Fact, Frame
from oomdoc.intake.asked import asked_of
from oomkb.dataclass import dataclass
from oomkb.frameworks import FRAMEWORKS, find
from oomkb.frameworks import line as line_of
from oomkb.kept import compiled
from oomkb.memory.device import Device, Vendor
from oomkb.memory.job import Job
from oomkb.units import GIB

if TYPE_CHECKING:
    from oomdoc.diagnosis.planning.prices import Prices

_SAME: Final = ("tp", "pp", "quant", "gpu", "param_dtype", "serving.max_num_batched_tokens", "serving.cuda_graphs")
"""With one of these changed the engine would have measured something else."""
_USUAL_SHARE: Final = 0.9
_CLOSE: Final = 1.001
_SAFE: Final = 0.98
_USUAL_TOKENS: Final = 512
_FULL: Final = 0.96
"""Share of the card from which it is taken as full."""


@dataclass(frozen=True, slots=True)
class EngineCache:
    """Bytes of cache that were found, and those that one request of ``length`` tokens needs."""

    available_bytes: float
    needed_bytes: float
    length: int
    job: Job
    """The run that printed it."""
    capacity_bytes: float
    scores_bytes: float = 0.0
    """What is computed beside it for a request of that length; a quantised cache takes flash attention, without."""

    def refuses(self, job: Job) -> bool:
        """Whether the engine's own figures rule a changed run out."""
        return self._asks(job) > _CLOSE

    def accepts(self, job: Job) -> bool:
        """Whether they say that a changed run starts."""
        return 0 < self._asks(job) <= _SAFE

    def _asks(self, job: Job) -> float:
        """The cache that one request asks for over the one that is found; 0 where these figures say nothing of it."""
        if any(job.get(name) != self.job.get(name) for name in _SAME):
            return 0.0
        share, before = (j.get("serving.gpu_memory_utilization") or _USUAL_SHARE for j in (job, self.job))
        length = job.get("serving.max_model_len") or self.length
        width, wide = (CACHE_BYTES.get(str(j.get("serving.kv_dtype")), WEIGHT_BYTES) for j in (job, self.job))
        whole = self.needed_bytes * width / wide + (self.scores_bytes if width == wide else 0.0)
        needed = whole * length / self.length
        found = self.available_bytes + (share - before) * self.capacity_bytes
        return needed / found if found > 0 else 2 * _CLOSE


def compute_buffer(
    evidence: Evidence, job: Job, weight_bytes: float, capacity_bytes: float | None
) -> EngineCache | None:
    """What llama.cpp printed when the buffer for computing, which grows with the context, found no room."""
    failure, length = evidence.root, job.get("serving.max_model_len")
    if failure is None or failure.signal.name != "ggml-compute-refused" or not capacity_bytes or not length:
        return None
    buffers = (s.data for s in evidence.find("llama-cpp-buffers"))
    cache = sum(d["size_bytes"] for d in buffers if d.get("what") == "KV" and d.get("size_bytes"))
    left = _FULL * capacity_bytes - weight_bytes
    return EngineCache(left, float(cache), length, job, capacity_bytes, float(failure.requested_bytes or 0))


def _refusals(evidence: Evidence) -> list[Mapping[str, Any]]:
    """What engines print of a cache that is too small."""
    return [signal.data for signal in evidence.signals if "kv-cache" in signal.name]


def engine_cache(
    evidence: Evidence, job: Job, capacity_bytes: float | None, request_bytes: float = 0.0
) -> EngineCache | None:
    """What the engine printed when it refused; ``None`` where it did not.

    :param request_bytes: the cache of one request as computed, for engines that count in tokens.
    """
    for data in _refusals(evidence):
        available, needed, length = (data.get(n) for n in ("available_bytes", "needed_bytes", "length"))
        stored = data.get("stored")
        if needed is None and stored and length and request_bytes:
            needed, available = request_bytes, request_bytes * stored / length
        if capacity_bytes and available is not None and needed and length:
            return EngineCache(float(available), float(needed), int(length), job, capacity_bytes)
    return None


def refused_buffer(evidence: Evidence, job: Job, prices: Prices) -> EngineCache | None:
    """What llama.cpp left for its cache, by its own lines, where the cache's buffer was refused.

    Without flash attention the scores of a micro-batch over the whole context are computed beside it, in fp32.
    """
    found, length = _beside_refused_cache(evidence), job.get("serving.max_model_len")
    if found is None or not length or prices.capacity_bytes is None:
        return None
    left, requested = found
    terms = prices.base.estimate.phases["serving"].terms_bytes
    beside = sum(size for name, size in terms.items() if name not in ("weights", "kv cache"))
    scores = 0 if job.attention in ("flash2", "flash3") else _FP32 * prices.shape.dims.heads * _USUAL_TOKENS * length
    return EngineCache(left - beside, requested, length, job, prices.capacity_bytes, scores)


def _beside_refused_cache(evidence: Evidence) -> tuple[float, float] | None:
    """What llama.cpp's weights left of a card, and the cache that was refused, both in bytes."""
    failure, before = evidence.root, next((s.data for s in evidence.find("llama-cpp-free")), None)
    buffers = [s.data for s in evidence.find("llama-cpp-buffers") if s.data.get("what") == "model"]
    loaded = sum(data["size_bytes"] for data in buffers if "CPU" not in data["buffer"].upper())
    if failure is None or failure.signal.name != "ggml-cache-refused" or not failure.requested_bytes:
        return None
    return (before["free_bytes"] - loaded, failure.requested_bytes) if before is not None and loaded else None


_COMPUTES_IN: Final = 0.8
"""Share of what the weights leave that the cache of an unknown model may take: compute buffers stand beside it."""


def _length_beside_weights(evidence: Evidence, job: Job) -> int | None:
    """Tokens whose cache fits beside llama.cpp's weights, by its own lines, whatever the model."""
    found, length = _beside_refused_cache(evidence), job.get("serving.max_model_len")
    if found is None or not length:
        return None
    left, requested = found
    return max(0, int(_COMPUTES_IN * length * left / requested))


_FP32: Final = 4


def _stored_length(refusal: Mapping[str, Any]) -> int | None:
    """The longest context that the engine itself says its cache holds: stated, stored tokens, or in proportion."""
    said = refusal.get("estimate") or refusal.get("stored")
    if said is None and refusal.get("needed_bytes") and refusal.get("available_bytes") and refusal.get("length"):
        said = refusal["length"] * refusal["available_bytes"] / refusal["needed_bytes"]
    return int(said) if said else None


def _missing_bytes(refusal: Mapping[str, Any]) -> float | None:
    """By how much the cache that the engine found is smaller than one request, as it says."""
    needed, available = refusal.get("needed_bytes"), refusal.get("available_bytes")
    return max(0.0, float(needed) - float(available)) if needed and available is not None else None


def _engine_free_share(evidence: Evidence) -> float | None:
    """What of the card was free when vLLM started, as it says where that is too little."""
    found = next((s.data for s in evidence.find("vllm-startup-free-too-low")), None)
    return found["free_bytes"] / found["capacity_bytes"] if found and found.get("capacity_bytes") else None


def _pipeline_of(evidence: Evidence) -> str | None:
    """The library whose pipeline makes images or video, by the frames of what failed."""
    files = [f.file.replace("\\", "/") for f in (evidence.root.frames if evidence.root is not None else ())]
    makers = [f for f in FRAMEWORKS if f.package and line_of(f.name, "pipeline-offload") is not None]
    shown = next((f.name for f in makers if any(f"/{f.package}/" in file for file in files)), None)
    if shown is not None or next(evidence.find("diffusion-model"), None) is None:
        return shown
    own = any(line_of(evidence.framework, f"pipeline-{part}") for part in ("offload", "encoders"))
    return evidence.framework if own else "diffusers"


_MIN_HELD_BYTES: Final = GIB
"""What a desktop holds is less."""


def _holders(evidence: Evidence) -> tuple[tuple[int, str, int], ...]:
    """Processes that ``nvidia-smi`` lists with what they hold, in bytes, the largest first.

    A training script among others, or what holds as much as the message says of this process, is the run in question:
    nobody ends that to make room for it.
    """
    own = evidence.root.process_bytes if evidence.root is not None else None
    listed = {
        (s.data["pid"], s.data["command"], s.data["used_bytes"])
        for s in evidence.find("nvidia-smi-process")
        if s.data["used_bytes"] >= _MIN_HELD_BYTES
    }
    trains = {one for one in listed if any(word in one[1].lower() for word in _TRAINS)}
    same = {one for one in listed if own and abs(one[2] - own) <= _SAME_PROCESS * own}
    others = listed - trains - (same if len(same) == 1 else set())
    return tuple(sorted(others or listed, key=lambda one: -one[2]))


_SAME_PROCESS: Final = 0.02
"""Part by which ``nvidia-smi`` and PyTorch's message may differ on what a process holds."""
_TRAINS: Final = ("train", "finetune", "fine_tune", "sft")
"""Parts of the names of scripts that train."""


def context_of(evidence: Evidence, job: Job, causes: Sequence[str], matched: Iterable[str]) -> Context:
    """What remedies may look at besides the job, as far as the input has it."""
    failure = evidence.root
    stated = evidence.value("phase")
    used = world_size(job)
    machine = evidence.value("gpu_count")
    spare = int(machine) - used if isinstance(machine, int | float) and (job.nodes or 1) == 1 else 0
    hint = evidence.facts.get("phase")
    if not stated and hint is not None and (failure is None or failure.phase == "unknown"):
        stated = hint.value
    return Context(
        framework=job.framework,
        versions={**evidence.versions, **job.versions},
        phase=str(stated or (failure.phase if failure is not None else "unknown")),
        causes=tuple(causes),
        requested_bytes=failure.requested_bytes if failure else None,
        reserved_unallocated_bytes=failure.reserved_unallocated_bytes if failure else None,
        other_process_bytes=failure.other_process_bytes if failure else None,
        serving=is_serving(job),
        script=is_script(job),
        spare_gpus=max(0, min(spare, 64)),
        facts=MappingProxyType(_facts(evidence, job, causes, matched)),
    )


_KEEPS: Final = compiled(r"\w[\w.]{0,40}(?:\.append\([^()]{1,40}\)|\s?\+=\s?[\w.]{1,40})")


def _kept(line: str) -> str | None:
    """The expression of a line of code that keeps a tensor."""
    found = _KEEPS.search(line)
    return found[0] if found is not None else None


_WHOLE_MODEL_BYTES: Final = 4 * GIB
"""What FSDP gathers at once from which its unit is no layer."""
_KEPT: Final = ("eval/collected", "eval/keeps-predictions")
_SAID: Final[Mapping[str, tuple[str, ...]]] = {
    "calibrates": ("activations/calibration",),
    "conversation": ("grows-with-conversation",),
    "in_vision_tower": ("vision-tokens/tower",),
    "image_limit_named": ("vision-tokens/size-set",),
    "device_map": ("inactive-setting/map-of-devices",),
    "pins": ("host-ram/pinned",),
    "resumes": ("fails-when-resuming",),
    "memory_volume": ("host-ram/memory-volume",),
    "files_in_memory": ("host-ram/files-in-memory",),
    "preprocessing": ("fails-while-preprocessing", "host-ram/dataset"),
    "object_workers": (
        *("grows-with-steps", "fails-at-random-step", "fails-after-long-run", "fewer-workers-help"),
        "host-ram/loader-worker",
    ),
}
"""Facts, with the statements and signs that show them; workers of a data loader copy the objects that they touch."""
_TRAINERS: Final = ("transformers/", "accelerate/", "lightning/", "swift/", "llamafactory/")
"""Parts of the paths of libraries that save by themselves."""
_CUDA: Final = "PYTORCH_CUDA_ALLOC_CONF"
_VARIABLES: Final = {"npu-oom": "PYTORCH_NPU_ALLOC_CONF", "hip-oom": "PYTORCH_HIP_ALLOC_CONF"}
"""What the allocator of another accelerator reads: torch_npu 2.1 and later, PyTorch for ROCm."""
_MAKERS: Final[Mapping[str, Vendor]] = {
    "mps-oom": "apple",
    "metal-buffer-too-large": "apple",
    "npu-oom": "huawei",
    "hip-oom": "amd",
}
_SCHEDULERS: Final = ("slurm", "kubernetes", "docker")


def of_maker(evidence: Evidence, device: Device | None) -> Device | None:
    """The card, of the maker whose library refused the memory, where no name tells which card it is."""
    maker = _MAKERS.get(evidence.root.signal.name) if evidence.root is not None else None
    return device if device is None or maker is None or device.vendor != "other" else replace(device, vendor=maker)


def typed_key(fact: Fact) -> str | None:
    """The key that a person typed before a value."""
    said = fact.span.text[max(0, fact.span.column - 1) :]
    for mark in ("=", ":"):
        key, found, value = said.partition(mark)
        digits = value.lstrip()[: len(str(fact.value)) + 1].rstrip(" ,;.)")
        if found and key.strip().lstrip("-").replace("_", "").isalnum() and digits == str(fact.value):
            return key.strip()
    return None


def _is_own_loop(frames: Sequence[Frame]) -> bool:
    """Whether what failed was called by no trainer of a library, as far as frames show it."""
    files = [frame.file for frame in frames if frame.file]
    return bool(files) and not any(part in file for file in files for part in _TRAINERS)


def _is_wsl(evidence: Evidence) -> bool:
    """Whether Linux under Windows is at work, and not Windows itself (a drive's letter)."""
    shown = (sign.span.text.lower() for sign in evidence.signs if sign.name == "host-ram/on-windows")
    return any(mark in text for text in shown for mark in ("wsl", "/mnt/", "desktop-"))


def _has_options(document: Document) -> bool:
    """Whether a document is a command with options for the run, not only a launcher's."""
    known = find(document.framework)
    dashed = sum(f"--{s.key}" in document.text for s in document.settings if "-" not in s.key)
    return document.form == "shell" and known is not None and known.kind != "launcher" and dashed > 0


def _starts_several_engines(evidence: Evidence) -> bool:
    """Whether commands start several engines, each at a port of its own."""
    ports = {str(s.value) for d in evidence.documents if d.form == "shell" for s in d.settings if s.key == "port"}
    return len(ports) > 1


def _facts(evidence: Evidence, job: Job, causes: Sequence[str], matched: Iterable[str]) -> dict[str, Any]:
    pids = [s.data["pid"] for s in evidence.signals if s.data.get("pid") and "process" in s.name]
    signals = " ".join(s.name for s in evidence.signals)
    said = {s.name for s in evidence.statements} | {s.name for s in evidence.signs}
    failure, refusals, outcome = evidence.root, _refusals(evidence), evidence.outcome
    other = outcome.name if outcome is not None and outcome.kind == "other" else None
    missing = map(_missing_bytes, refusals)
    filled = failure is not None and failure.kind == "host"
    windows = (filled or "host-ram" in causes[:1]) and "host-ram/on-windows" in said
    wsl = windows and _is_wsl(evidence)
    return {
        "pids": tuple(dict.fromkeys(pids)),
        "maker": _MAKERS.get(failure.signal.name) if failure is not None else None,
        "holders": _holders(evidence),
        "several_engines": _starts_several_engines(evidence),
        "inactive": [{"setting": i.setting, "reason": i.reason, "values": dict(i.values)} for i in evidence.inactive],
        "regressions": regressions_for(job, {**job.versions, **evidence.versions}, list(matched)),
        "worked_with": evidence.worked_with,
        "engine_max_model_len": next(filter(None, map(_stored_length, refusals)), None),
        "needed_length": asked_of(evidence, failed=True).length if evidence.failures and is_serving(job) else None,
        "length_beside_weights": _length_beside_weights(evidence, job),
        "engine_cache_missing_bytes": next((size for size in missing if size is not None), None),
        "engine_free_share": _engine_free_share(evidence),
        "pipeline": _pipeline_of(evidence),
        "kept_line": next(
            filter(None, (_kept(s.span.text) for s in evidence.signs if s.name == "leak/graph-kept")), None
        ),
        "samples": next((s.data["count"] for s in evidence.find("samples-counted")), None),
        "keeps_predictions": any(sign.name in _KEPT for sign in evidence.signs),
        "engine_sees_no_gpu": next(evidence.find("ollama-no-gpu"), None) is not None,
        "ranks_on_one_gpu": ranks_on_one_gpu(evidence) or (failure is None and "one-gpu-fuller" in said),
        "typed": {name: key for name, fact in evidence.facts.items() if (key := typed_key(fact)) is not None},
        **{name: not said.isdisjoint(shown_by) for name, shown_by in _SAID.items()},
        "own_loop": _is_own_loop(failure.frames if failure is not None else ()),
        "host_failed": filled,
        "expandable": ("expandable_segments", "true") in evidence.assigned,
        "host_array": failure is not None and failure.signal.name == "numpy-oom",
        "merges": not said.isdisjoint(MERGES),
        "of_host": evidence.outcome is not None and evidence.outcome.memory == "host",
        "state_dict_functions": any(
            "checkpoint/state_dict" in frame.file for frame in (failure.frames if failure is not None else ())
        ),
        "locked_limit": next(evidence.find("locked-memory-refused"), None) is not None,
        "wsl": wsl,
        "killed": failure is not None and failure.signal.name == "exit-137",
        "autotunes": failure is not None and any(f.function in TUNES for f in failure.frames),
        "gathers_whole": failure is not None
        and (failure.requested_bytes or 0) >= _WHOLE_MODEL_BYTES
        and is_one_unit(evidence),
        "wraps_nothing": any(one.reason == ONE_UNIT for one in evidence.inactive),
        "mps": failure is not None
        and failure.signal.name.startswith("mps")
        and "mps" in failure.signal.span.text.lower(),  # PyTorch's message; Metal's own is that of other programs too
        "sampler_warm_up": next(evidence.find("vllm-sampler-warmup"), None) is not None,
        "swap_space": any(
            s.key.replace("-", "_").endswith("swap_space") and str(s.value) != "0"
            for d in evidence.documents
            for s in d.settings
        ),
        "paging_file": "paging-file-too-small" in signals or (windows and not wsl),
        "nccl_shared": "nccl-shm-failed" in signals,
        "allocator_variable": _VARIABLES.get(failure.signal.name, _CUDA) if failure is not None else _CUDA,
        "scheduler": next(
            (name for name in _SCHEDULERS if any(s.name.startswith(name) for s in evidence.signals)), None
        ),
        "options": job.framework in DASHED or any(_has_options(d) for d in evidence.documents),
        "fsdp_flags": any("fsdp_" in s.key for d in evidence.documents if d.form == "shell" for s in d.settings),
        "host_free_bytes": failure.free_bytes if failure is not None and failure.kind == "host" else None,
        "look_alike": next((name for name in ("triton", "disk") if name in signals), other),
    }
