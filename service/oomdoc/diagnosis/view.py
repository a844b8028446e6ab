"""What the diagnosis may look at: the evidence, the job, its price, the matched tensors and cases. Never the text.

Sizes are bytes. Everything here is derived from :class:`~oomdoc.evidence.Evidence` and the priced job, so that two
stages never disagree about what the failure stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, Final

from oomdoc.diagnosis.cases import Vote
from oomdoc.diagnosis.observed import failed_in, trained_before
from oomdoc.diagnosis.regressions import Advisory
from oomdoc.diagnosis.result import TensorMatch
from oomdoc.evidence import Evidence, Failure
from oomkb.dataclass import dataclass
from oomkb.memory.device import Device
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.memory.shape import ModelShape
from oomkb.pricing import device_of
from oomkb.units import GIB

_SHOWN_CONFIDENCE: Final = 0.9
"""Confidence from which a phase was read from frames or messages, not from a description."""
_INNER_FRAMES: Final = 10
_MIN_RANKS: Final = 2
"""Other processes on a card from which they are taken for ranks of the same run."""
TERMS: Final[Mapping[str, tuple[str, ...]]] = {
    "logits": ("logit", "loss", "vocab", "log_soft", "logprob"),
    "attention-scores": ("attention_score", "score"),
    "vision-tokens": ("vision", "image", "visual"),
    "kv-cache": ("kv",),
    "rollout-engine": ("rollout", "engine"),
    "extra-models": ("reference", "reward", "critic", "teacher", "extra"),
    "zero3-gather": ("gather", "bucket", "prefetch", "unshard"),
    "cuda-graph": ("graph",),
    "optimizer-init": ("optimizer", "master", "moment"),
    "model-states": ("weight", "grad", "param", "adapter"),
    "activations": ("activation", "checkpoint", "hidden", "mlp", "residual"),
}
"""Cause -> parts of the memory model's term names that belong to it; the first that fits counts."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Everything a feature may use."""

    evidence: Evidence
    job: Job
    estimate: Estimate | None = None
    supposed: Estimate | None = None
    """That of a usual run, where the defaults of what is open need many times the card (``usual_need``)."""
    shape: ModelShape | None = None
    tensors: tuple[TensorMatch, ...] = ()
    votes: tuple[Vote, ...] = ()
    """The known cases most like it."""
    sounds: Mapping[str, float] = field(default_factory=dict)
    """Cause -> how much the text reads like questions about it, in standard deviations over the causes."""
    advisories: tuple[Advisory, ...] = ()
    """Known regressions that a stated version lies in."""
    suspects: tuple[Advisory, ...] = ()
    """Known regressions that would explain it, if a version that is not stated lay in their range."""
    settings_by_key: Mapping[str, Any] = field(default_factory=dict)

    # What was read -------------------------------------------------------------------------------------------------

    @property
    def failure(self) -> Failure | None:
        """The failure to explain."""
        return self.evidence.root

    @cached_property
    def phase(self) -> str:
        """The phase that failed: what the input states, else what the failure's place shows."""
        stated = self.evidence.value("phase")
        if stated and stated != "unknown":
            return str(stated)
        return self.failure.phase if self.failure is not None else "unknown"

    @property
    def phase_shown(self) -> bool:
        """Whether frames or messages show the phase, rather than a description."""
        fact = self.evidence.facts.get("phase")
        return fact is None or fact.confidence >= _SHOWN_CONFIDENCE

    @cached_property
    def trace(self) -> str:
        """The innermost frames of the failure in lower case, a line each: ``file function code``."""
        frames = self.failure.frames if self.failure is not None else ()
        return "\n".join(f"{f.file} {f.function} {f.code}".lower() for f in frames[-_INNER_FRAMES:])

    def setting(self, *names: str) -> Any:
        """The value of a config key or command option by its plain name, or ``None``."""
        for name in names:
            if name in self.settings_by_key:
                return self.settings_by_key[name]
        return None

    # What is known of the run ---------------------------------------------------------------------------------------

    @property
    def objective(self) -> str | None:
        """``sft``, ``dpo``, ``inference`` ... as far as known."""
        return self.job.objective

    @property
    def serving(self) -> bool:
        """Whether nothing is trained."""
        return self.job.objective == "inference"

    @property
    def training(self) -> bool:
        """Whether the input says that something is trained."""
        named = any(self.is_stated(n) for n in ("objective", "method", "optimizer", "micro_batch", "sharding"))
        return not self.serving and (named or self.phase in ("backward", "optimizer-init", "optimizer-step"))

    def stated(self, name: str) -> Any:
        """A field of the job, or ``None`` where a framework's default was filled in."""
        return None if name in self.job.assumed else self.job.get(name)

    def is_stated(self, name: str) -> bool:
        """Whether the input gives a field of the job."""
        return bool(self.stated(name))

    @property
    def ranks(self) -> int | None:
        """Training processes in all, as far as the input states them."""
        job = self.job
        if self.stated("world"):
            return job.world
        gpus = self.stated("gpus")
        return int(gpus) * (job.nodes or 1) if gpus else None

    # Sizes ----------------------------------------------------------------------------------------------------------

    @cached_property
    def _device(self) -> Device | None:
        return device_of(self.job)

    def bytes_of(self, name: str) -> int | None:
        """``requested``, ``capacity``, ``allocated``, ``reserved``, ``free``, ``process`` ... of the failure."""
        failure = self.failure
        value = getattr(failure, f"{name}_bytes", None) if failure is not None else None
        if name == "capacity" and value and self._device is not None and self._device.lets_swap(value):
            value = self._device.capacity_bytes
        if value is None and name in _TOLD:
            stated = self.evidence.value(f"{name}_gib")
            if isinstance(stated, int | float) and stated:
                return round(stated * GIB)
        if value is None and name == "capacity":
            if self.estimate is not None and self.estimate.capacity_bytes:
                return round(self.estimate.capacity_bytes)
            return round(self.job.capacity_gib * GIB) if self.job.capacity_gib else None
        return value

    @cached_property
    def cached_bytes(self) -> int | None:
        """Reserved by PyTorch but not allocated, as stated or by subtraction."""
        direct = self.bytes_of("reserved_unallocated")
        if direct is not None:
            return direct
        reserved, allocated = self.bytes_of("reserved"), self.bytes_of("allocated")
        return None if reserved is None or allocated is None else max(reserved - allocated, 0)

    @cached_property
    def certainty(self) -> float:
        """The share of what decides the estimate that is stated rather than assumed, 0..1."""
        wanted: tuple[str, ...] = ("model", "gpu")
        if not self.serving:
            wanted = (*wanted, "method", "seq_len", "micro_batch")
        return sum(self._is_known(name) for name in wanted) / len(wanted)

    def _is_known(self, name: str) -> bool:
        if name == "gpu":
            return self.bytes_of("capacity") is not None
        if name == "model":
            return self.stated("model") is not None or self.stated("params_b") is not None
        if name == "method":
            return any(self.stated(n) is not None for n in ("method", "quant", "optimizer", "lora"))
        return self.stated(name) is not None

    @cached_property
    def fullness(self) -> float | None:
        """Predicted process memory over capacity, where both are known."""
        estimate, capacity = self.estimate, self.bytes_of("capacity")
        if estimate is None or not capacity:
            return None
        return (estimate.needed_bytes or estimate.process_bytes) / capacity

    @cached_property
    def fullest(self) -> str:
        """The phase of the estimate that is to explain the failure: the fullest of those that may have failed.

        What is resident in another phase only, as an engine that sleeps while the actor is updated, explains nothing.
        Without an estimate ``unknown``.
        """
        if self.estimate is None:
            return "unknown"
        phases, peak = self.estimate.phases, self.estimate.peak_phase
        phase = failed_in(self.failure) if self.failure is not None and self.failure.frames else self.phase
        failed = [name for name in _PRICED.get(phase, ()) if name in phases] if self.phase_shown else []
        return peak if not failed or peak in failed else max(failed, key=lambda name: phases[name].total_bytes)

    @cached_property
    def shares(self) -> Mapping[str, float]:
        """Cause -> its part of what the phase that failed is predicted to hold, 0..1."""
        if self.estimate is None:
            return {}
        terms = self.estimate.phases[self.fullest].terms_bytes
        total = sum(terms.values()) or 1.0
        shares: dict[str, float] = {}
        for name, size in terms.items():
            cause = owner_of(name)
            if cause:
                shares[cause] = shares.get(cause, 0.0) + size / total
        return shares

    @cached_property
    def weight_bytes(self) -> float:
        """Predicted bytes of weights that one GPU holds once the model is loaded; 0 without an estimate."""
        load = self.estimate.phases.get("load") if self.estimate is not None else None
        return sum(v for k, v in load.terms_bytes.items() if "weight" in k) if load is not None else 0.0

    @cached_property
    def state_bytes(self) -> float | None:
        """Predicted weights, gradients and optimizer states that one GPU holds at once; no temporaries of the step."""
        return None if self.estimate is None else states_of(self.estimate)


_PRICED: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("forward", "loss", "backward"), ("forward", "loss", "backward")),
    **dict.fromkeys(("optimizer-init", "optimizer-step"), ("optimizer-step",)),
    "eval": ("evaluation",),
    "log-probabilities": ("log-probabilities",),
    "generate": ("rollout",),
    "weight-sync": ("weight-sync",),
}
"""Phase of a failure -> phases of the estimate of which the fullest is compared with it. Loading and saving go through
more than the estimate's phases of these names hold."""
_STATES: Final = ("weights", "adapters", "gradients", "fp32 masters", "optimizer states")


def states_of(estimate: Estimate) -> float:
    """Weights, gradients and optimizer states that one GPU holds at once, in bytes."""
    phases = estimate.phases
    steps = (phases["optimizer-step"],) if "optimizer-step" in phases else phases.values()
    return max(sum(phase.terms_bytes.get(name, 0.0) for name in _STATES) for phase in steps)


def trained_beyond(evidence: Evidence, estimate: Estimate, capacity_bytes: float | None) -> float | None:
    """Bytes of states beyond the card although steps went well: they are otherwise than the estimate has them."""
    states = states_of(estimate)
    over = bool(capacity_bytes) and states > _OVER * (capacity_bytes or 0.0)
    return states if over and trained_before(evidence) else None


_TOLD: Final = frozenset({"capacity", "allocated", "reserved"})
"""Sizes that are those of the failure where a person tells them and the message does not."""
_OVER: Final = 1.02
"""How far states must exceed a card before steps that went well contradict them."""


def owner_of(term: str) -> str | None:
    """The cause to which a term of the memory model belongs."""
    name = term.lower().replace("-", "_")
    return next((cause for cause, parts in TERMS.items() if any(p in name for p in parts)), None)


def ranks_on_one_gpu(evidence: Evidence) -> bool:
    """Whether processes of one run sit on the same card: a rank fails on another's, beside several processes, or there
    are as many of them as the run has cards.
    """
    count = evidence.value("gpu_count")
    cards = int(count) if isinstance(count, int | float) and count > 1 else 8
    placed = (s for s in evidence.find("torch-cuda-oom") if s.rank is not None and "device" in s.data)
    elsewhere = (s for s in placed if s.rank is not None and s.rank % cards != s.data["device"])
    together = max((s.data.get("other_processes", 0) + 1 for s in evidence.find("torch-cuda-oom")), default=0)
    all_of_them = count is not None and together == cards > _MIN_RANKS
    return all_of_them or any(s.data.get("other_processes", 0) >= _MIN_RANKS for s in elsewhere)
