"""What a remedy is: a name, a safety class, and the job fields it would set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from oomdoc.diagnosis.forms import HOST_USABLE
from oomdoc.messages import Message, say
from oomkb.dataclass import dataclass
from oomkb.frameworks import has, line
from oomkb.memory.device import Device
from oomkb.memory.job import Job

if TYPE_CHECKING:
    from oomkb.memory.shape import ModelShape

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

    def arguments(self, **settings: object) -> str:
        """Settings as :func:`arguments_line` writes them."""
        return arguments_line(self.framework, settings)


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
        return "\n".join(f"{key}: {_word(value)}" for key, value in settings.items())
    if form == "flags" or framework == "lightning":
        return " ".join(f"--{key} {_word(value)}" for key, value in settings.items())
    return ", ".join(f"{key}={value!r}" for key, value in settings.items())


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
