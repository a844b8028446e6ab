"""What the diagnosis may look at: the evidence, the job, its price, the matched tensors and cases. Never the text.

Sizes are bytes. Everything here is derived from :class:`~oomdoc.evidence.Evidence` and the priced job, so that two
stages never disagree about what the failure stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from oomdoc.diagnosis.cases import Vote
from oomdoc.diagnosis.observed import trained_before
from oomdoc.diagnosis.regressions import Advisory
from oomdoc.diagnosis.result import TensorMatch
from oomdoc.evidence import Evidence, Failure
from oomdoc.intake.asked import asked_of, card_in_question, pairs_in
from oomdoc.stated import following, stated_fields
from oomkb.catalog import gpus
from oomkb.dataclass import dataclass
from oomkb.errors import OomdocError
from oomkb.frameworks import PLAIN, described
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Assumption, Job
from oomkb.memory.shape import ModelShape
from oomkb.pricing import device_of
from oomkb.units import GIB

SPLIT: Final = "device_map spreads the layers over the cards"
_RANKS: Final = "as many processes as the highest rank in the log needs"
_OVER_CARDS: Final = "an engine splits a model over the cards that it is given"
_SPREAD: Final = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})


def split_by_layers(evidence: Evidence, job: Job) -> Job:
    """A model that ``device_map`` spreads over the cards: one process, every card some of the layers.

    accelerate ``utils/modeling.py``: ``infer_auto_device_map``; transformers ``Trainer.is_model_parallel``.
    """
    settings = (s for d in evidence.documents for s in d.settings if s.key.rpartition(".")[2] == "device_map")
    spread = any(str(s.value).lower() in _SPREAD for s in settings)
    count = job.gpus or 1
    alone = job.world in (None, 1) and job.sharding is None and job.tp is None and job.pp is None
    served = job.objective == "inference" and job.framework not in (None, PLAIN)
    if not spread or not alone or count < 2 or (job.nodes or 1) > 1 or served:
        return job
    split = {"pp": count, "world": count, "dp": 1}
    return job.with_fields({"world": None}).assuming({n: Assumption(v, SPLIT) for n, v in split.items()})


_LAYOUT: Final = ("world", "gpus", "nodes", "dp", "tp", "pp", "cp", "ep")


def ranks_that_speak(evidence: Evidence, job: Job) -> Job:
    """As many processes as the highest rank in the log needs, in the sizes of a machine, where nobody counts them."""
    seen = evidence.facts.get("world")
    if seen is None or seen.stated or seen.value < 2 or job.objective == "inference":
        return job
    if any(job.get(name) is not None for name in _LAYOUT):
        return job
    return job.assuming({"world": Assumption(seen.value, _RANKS)})


def over_its_cards(evidence: Evidence, job: Job) -> Job:
    """An engine that is told of without its command or config: over the cards that are counted, as one starts it."""
    model = evidence.facts.get("model")
    written = bool(evidence.documents) or (model is not None and model.origin in ("command", "code", "config"))
    if written or job.framework is None or job.gpus is None:
        return job
    split = following({"gpus": job.gpus}, job).get("tp")
    return job.assuming({"tp": Assumption(split, _OVER_CARDS)}) if split else job


def with_card_of_the_question(evidence: Evidence) -> Evidence:
    """The card that the question names, where another sentence names another: "you used 8 A100; would 4 A6000 do?"."""
    told, asked = evidence.value("gpu"), card_in_question(evidence)
    named_run = not {"model", "params_b"}.isdisjoint(evidence.facts)
    if (asked_of(evidence).alternatives and named_run) or told is None or evidence.documents or asked is None:
        return evidence
    device = gpus.find(str(told))
    if device is None or device.name == asked["gpu"]:
        return evidence
    facts = {n: fact for n, fact in evidence.facts.items() if n not in ("gpu_count", "capacity_gib", "world", "gpus")}
    facts["gpu"] = replace(facts["gpu"], value=asked["gpu"])
    for name in ("gpu_count", "gpus") if asked.get("gpus") else ():
        facts[name] = replace(facts["gpu"], name=name, value=asked["gpus"])
    return replace(evidence, facts=MappingProxyType(facts))


def run_as_told(evidence: Evidence, job: Job) -> Job:
    """Inference where a failure is only told of and nothing in it is of training: "a 13B on a 3090 runs out"."""
    outcome = evidence.outcome
    trained = job.objective or job.method or any(job.get(name) is not None for name in _OF_TRAINING)
    if trained or outcome is None or outcome.kind != "said" or evidence.documents or job.framework is not None:
        return job
    if evidence.value("phase") in _TRAINS_IN or asked_of(evidence, failed=True).trains:
        return job
    return job.assuming({"objective": Assumption("inference", "nothing is said of training")})


_OF_TRAINING: Final = (
    "optimizer",
    "micro_batch",
    "grad_accum",
    "grad_ckpt",
    "sharding",
    "lora",
    "generations",
    "rollout",
)
_TRAINS_IN: Final = frozenset({"backward", "optimizer", "optimizer-init", "loss", "eval", "save", "log-prob"})


def usual_precision(evidence: Evidence, job: Job) -> Job:
    """Mixed precision where the configuration of a failed run is out of sight: nearly all set it, and few say so."""
    return job if evidence.documents else described(job)


def card_by_number(evidence: Evidence, job: Job) -> Job:
    """A card by its bare number, where a failure names none otherwise: ``cuda oom, llama 7b, 3060``."""
    if job.has_card:
        return job
    card = asked_of(evidence).card
    return job if card is None else job.with_fields({"gpu": card})


def set_in_words(evidence: Evidence, job: Job) -> Job:
    """With settings that the words of a failed run name and no reader took: "with 8-bit Adam", "Liger is on"."""
    settings = asked_of(evidence).settings
    found = {
        name: settings[name]
        for name in _IN_WORDS
        if settings.get(name) not in (None, "eager") and job.get(name) is None  # "eager" is a way to serve, too
    }
    return job.with_fields(found) if found else job


_IN_WORDS: Final = ("optimizer", "fused_ce", "packing", "attention", "grad_ckpt", "lora.r", "lora.targets")


def spelled_out(job: Job, evidence: Evidence) -> Job:
    """With ``field=value`` in the words of the job document that no reader took (``method=full grad_ckpt=true``)."""
    for name, value in pairs_in(evidence):
        if job.get(name) is None:
            try:
                job = job.with_fields(stated_fields({name: _scalar(value)}))
            except OomdocError:
                continue
    return job


def _scalar(text: str) -> Any:
    """A value as YAML would have it, where that is a plain one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if "," in text:
        return text.split(",")
    return int(text) if text.isdecimal() and len(text) < 12 else text


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

    def bytes_of(self, name: str) -> int | None:
        """``requested``, ``capacity``, ``allocated``, ``reserved``, ``free``, ``process`` ... of the failure."""
        failure = self.failure
        value = getattr(failure, f"{name}_bytes", None) if failure is not None else None
        if name == "capacity" and value and (device := device_of(self.job)) is not None and device.lets_swap(value):
            value = device.capacity_bytes
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
        return estimate.process_bytes / capacity

    @cached_property
    def shares(self) -> Mapping[str, float]:
        """Cause -> its part of the predicted peak, 0..1."""
        if self.estimate is None:
            return {}
        terms = self.estimate.phases[self.estimate.peak_phase].terms_bytes
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
    """Whether processes of one run sit on the same card: a rank fails on another's, beside several processes."""
    count = evidence.value("gpu_count")
    cards = int(count) if isinstance(count, int | float) and count > 1 else 8
    placed = (s for s in evidence.find("torch-cuda-oom") if s.rank is not None and "device" in s.data)
    elsewhere = (s for s in placed if s.rank is not None and s.rank % cards != s.data["device"])
    return any(s.data.get("other_processes", 0) >= _MIN_RANKS for s in elsewhere)
