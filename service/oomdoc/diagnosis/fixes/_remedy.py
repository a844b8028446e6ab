"""What a remedy is: a name, a safety class, and the job fields it would set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final, Literal

from oomdoc.diagnosis.forms import HOST_USABLE
from oomdoc.evidence import Message, say
from oomkb.dataclass import dataclass
from oomkb.frameworks import PLAIN, builds_on, find, has, line
from oomkb.memory.device import Device
from oomkb.memory.job import Job
from oomkb.memory.ranks import model_parallel
from oomkb.memory.setting import ONLINE, PREFERENCE
from oomkb.memory.shape import ModelShape

DEEPSPEED = frozenset({"zero1", "zero2", "zero3"})


def is_serving(job: Job) -> bool:
    """Whether nothing is trained."""
    return job.objective == "inference" or (job.objective is None and job.serving is not None)


def is_script(job: Job) -> bool:
    """Whether it is inference without an engine, as :func:`oomkb.memory.engines.engine_of` takes it."""
    return is_serving(job) and job.serving is None and not (job.framework and has(job.framework, "serving"))


def is_preference(job: Job) -> bool:
    """DPO and its relatives: pairs go through together."""
    return job.objective in PREFERENCE


def is_rl(job: Job) -> bool:
    """Whether the job generates its own samples."""
    return job.objective in ONLINE or job.rollout is not None


def feature_of(name: str, job: Job) -> str:
    """A framework's feature of that name as its trainer for this objective has it: ``fused_ce.rl``, ``fused_ce``."""
    return f"{name}.rl" if is_rl(job) else f"{name}.preference" if is_preference(job) else name


def is_lora(job: Job) -> bool:
    """Whether only adapters are trained."""
    return job.method in ("lora", "qlora", "oft", "prompt") or (job.method is None and job.lora is not None)


def world_size(job: Job) -> int:
    """Ranks in all: stated, else machines x GPUs, else one."""
    return job.world or (job.gpus or 0) * (job.nodes or 1) or (job.dp or 1) * model_parallel(job)


def sequence_groups(job: Job) -> int:
    """Ranks that share a sequence; Megatron's are those of the tensor-parallel group and take no GPUs of their own."""
    return 1 if has(job.framework, "sp.megatron") else job.sp or 1


def data_parallel(job: Job) -> int:
    """Replicas that see different samples (ranks of one sequence-parallel group see the same ones)."""
    if job.world or job.gpus or not job.dp:
        return max(1, world_size(job) // (model_parallel(job) * sequence_groups(job)))
    return job.dp


def global_batch(job: Job) -> int | None:
    """Samples per optimizer step; ``None`` where the micro-batch is not known."""
    return None if job.micro_batch is None else job.micro_batch * (job.grad_accum or 1) * data_parallel(job)


def kinds_of(job: Job) -> frozenset[str]:
    """Which remedies can apply at all."""
    kinds = {"any", "serving" if is_serving(job) else "training"}
    if is_preference(job):
        kinds.add("preference")
    if is_rl(job):
        kinds.add("rl")
    if job.max_pixels or job.images or job.video_frames:
        kinds.add("vision")
    return frozenset(kinds)


def half_precision(job: Job, *, bf16: bool) -> dict[str, str]:
    """Fields that hold a mixed-precision job's fp32 weights in its 16-bit dtype; ``bf16``: whether the card has it."""
    if job.param_dtype != "fp32" or job.autocast not in ("bf16", "fp16"):
        return {}
    if job.autocast == "bf16" and not bf16:
        return {"param_dtype": "fp16", "autocast": "fp16"}
    return {"param_dtype": job.autocast}


Safety = Literal["same-numbers", "changed-numerics", "changed-training"]
Kind = Literal["training", "preference", "rl", "serving", "vision", "any"]
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a remedy may look at besides the job: the hardware, the model, the software, the failure."""

    device: Device | None = None
    shape: ModelShape | None = None
    framework: str | None = None
    versions: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    phase: str = "unknown"
    """Where it failed, in the words of :class:`oomdoc.evidence.Failure`."""
    causes: tuple[str, ...] = ()
    """The taxonomy's names, most probable first."""
    host_bytes: float | None = None
    """Host memory of one machine, where known."""
    requested_bytes: float | None = None
    reserved_unallocated_bytes: float | None = None
    other_process_bytes: float | None = None
    serving: bool = False
    """Whether the job is inference: decides what an unnamed framework is taken to be."""
    script: bool = False
    """Whether it is inference in a script, without an engine."""
    without: frozenset[str] = frozenset()
    """Names of remedies that are ruled out, by the person or by their circumstances."""
    kept: frozenset[str] = frozenset()
    """Job fields that no remedy may touch, as the person says."""
    spare_gpus: int = 0
    """GPUs of the machine that the job does not use."""
    facts: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """Anything else that an instruction quotes: process ids, ``/dev/shm`` size, an inactive setting ..."""

    def has(self, feature: str) -> bool:
        """Whether the job's framework has a setting for it (see ``_features``)."""
        return has(self.framework, feature, self.versions, serving=self.serving and not self.script)

    def can(self, feature: str) -> bool:
        """Whether the hardware can do it; unknown hardware is not trusted with what older cards lack."""
        return self.device.can(feature) if self.device is not None else feature not in ("flash3", "fp8")

    def host_holds(self, size_bytes: float) -> bool:
        """Whether one machine's memory has room for so much; of unknown size, it has."""
        return not self.host_bytes or size_bytes <= HOST_USABLE * self.host_bytes

    def line(self, remedy: str, otherwise: str) -> str:
        """The line by which the framework's record says a remedy; ``otherwise`` where it has none."""
        found = line(self.framework, remedy)
        return otherwise if found is None else found

    @property
    def own_code(self) -> bool:
        """Whether the person runs code that they can change, as far as is known; a program takes settings alone."""
        found = find(self.framework)
        return found is None or found.library

    @property
    def has_trainer(self) -> bool:
        """Whether the run is known to be of transformers' Trainer or of one built on it."""
        return not self.serving and builds_on(self.framework, PLAIN)

    def in_library(self, line: str) -> str | Message:
        """A line of the transformers library, named as such where it is not known that the person's program is one."""
        return line if builds_on(self.framework, PLAIN) else say("fixes.in-words.library", line=line)

    def arguments(self, **settings: object) -> str | Message:
        """Settings as :func:`arguments_line` writes them."""
        written = arguments_line(self.framework, settings)
        return written if self.has_trainer else self.in_library(written)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One setting of a remedy.

    ``fields`` are job fields to set; a remedy that is no setting at all carries an ``instruction`` instead.
    ``effort`` is what it costs a person: 0.3 one key, 1 a new config file or package, 3 a change of code,
    8 other hardware.
    """

    fields: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    effort: float = 0.5
    notes: tuple[Message, ...] = ()
    instruction: Message | None = None
    safety: Safety | None = None
    """Where it differs from the remedy's own class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A function from job to job, with its preconditions inside ``variants``: what does not apply is not yielded."""

    name: str
    safety: Safety
    kinds: frozenset[Kind]
    variants: Callable[[Job, Context], Iterable[Variant]]
    reduces: tuple[str, ...] = ()
    """Prefixes of the memory model's term names that it claims to lower; ``host`` for host memory."""
    causes: frozenset[str] = frozenset()
    """For instructions: the causes of the taxonomy it answers. Empty for what arithmetic decides."""
    hardware: bool = False
    """Whether it asks for more or other hardware."""

    @property
    def advice(self) -> bool:
        """Instruction only: never part of an arithmetic plan."""
        return bool(self.causes)


def remedy(
    safety: Safety, *kinds: Kind, reduces: Sequence[str] = (), causes: Iterable[str] = (), hardware: bool = False
) -> Callable[[Callable[[Job, Context], Iterable[Variant]]], Remedy]:
    """Make a remedy of the function that yields its variants; it is called as the function is."""

    def made(variants: Callable[[Job, Context], Iterable[Variant]]) -> Remedy:
        return Remedy(
            name=variants.__name__.replace("_", "-"),
            safety=safety,
            kinds=frozenset(kinds),
            variants=variants,
            reduces=tuple(reduces),
            causes=frozenset(causes),
            hardware=hardware,
        )

    return made


def step(words: str, effort: float, safety: Safety | None = None, **values: Any) -> Variant:
    """An instruction, ``fixes.<words>`` of the catalogue, with what it quotes."""
    return Variant(instruction=say(f"fixes.{words}", **values), effort=effort, safety=safety)


def arguments_line(framework: str | None, settings: Mapping[str, object]) -> str:
    """Training arguments of the Hugging Face layer: YAML, flags, or keyword arguments."""
    form = line(framework, "arguments")
    if form == "yaml":
        return "\n".join(f"{key}: {as_written(value)}" for key, value in settings.items())
    if form == "flags" or framework == "lightning":
        return " ".join(f"--{key} {as_written(value)}" for key, value in settings.items())
    return ", ".join(f"{key}={value!r}" for key, value in settings.items())


def as_written(value: object) -> str:
    """A value as people and files write it."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else str(value)
