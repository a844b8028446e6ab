"""What a remedy is: a name, a safety class, and the job fields it would set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from oomdoc.messages import Message
from oomkb.dataclass import dataclass
from oomkb.frameworks import has
from oomkb.memory.device import Device
from oomkb.memory.job import Job

if TYPE_CHECKING:
    from oomkb.memory.shape import ModelShape

__all__ = ["Context", "Kind", "Remedy", "Safety", "Variant"]

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

    @property
    def fragmentation(self) -> bool:
        """Whether reserved but unused memory explains the failure: the request would have fitted into it."""
        unused, wanted = self.reserved_unallocated_bytes, self.requested_bytes
        if "fragmentation" in self.causes[:2]:
            return True
        return unused is not None and wanted is not None and unused > 1.2 * wanted and unused > 512 << 20


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
    advice: bool = False
    """Instruction only: never part of an arithmetic plan."""
