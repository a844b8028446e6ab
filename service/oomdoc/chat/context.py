"""What a turn may leave unsaid: what was changed last, what was proposed, what oomdoc has asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.errors import OomdocError
from oomkb.memory.job import Job

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Recent:
    """A field that was changed or asked about not long ago, and what it was before."""

    field: str
    old: Any = None


@dataclass(frozen=True)
class Context:
    """The job a turn is held against, and the conversation around it."""

    job: Job
    recent: tuple[Recent, ...] = ()
    """The latest first."""
    proposed: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    """Changes that were asked about and not made."""
    refused: bool = False
    """Whether the latest of ``recent`` was given an impossible value: a number that stands alone mends it."""
    wanted: tuple[str, ...] = ()
    """Fields that oomdoc has asked for."""
    earlier: tuple[Job, ...] = ()
    """The jobs of the turns before, the latest first."""
    tried: tuple[Job, ...] = ()
    """Every run that was priced, in order."""
    latest: tuple[Mapping[str, Any], ...] = ()
    """What the latest of them changed."""
    offered: tuple[Mapping[str, Any], ...] = ()
    """The alternatives that were set side by side last."""

    @cached_property
    def _completed(self) -> Job:
        from oomkb.frameworks import complete

        try:
            return complete(self.job, careful=self.job.framework is None)
        except OomdocError:
            return self.job

    def present(self, name: str) -> Any:
        """The value of a field, stated or assumed."""
        if name == "gpu_memory_utilization":
            name = self.utilization
        if name == "seq_len" and self.job.seq_len is None and self.job.get("serving.max_model_len"):
            name = "serving.max_model_len"
        value = self.job.get(name)
        return self._completed.get(name) if value is None else value

    @property
    def has_rollout(self) -> bool:
        """Whether an engine generates beside the training."""
        return self.job.rollout is not None or self.job.objective in ("grpo", "ppo")

    @property
    def utilization(self) -> str:
        """The field of the share that an engine takes: a rollout's or a server's."""
        return "rollout.gpu_memory_utilization" if self.has_rollout else "serving.gpu_memory_utilization"
