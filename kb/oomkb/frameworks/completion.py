"""Filling what a job leaves unsaid with what its framework would do, each value with its reason."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, Final

from oomkb.catalog import gpus, models
from oomkb.catalog.model_text import quant_hint
from oomkb.errors import JobError
from oomkb.frameworks.abilities import has
from oomkb.frameworks.circumstances import config_of, distributed, fsdp, full, lora, preference, quantised, rl, zero
from oomkb.frameworks.lookup import find, lineage
from oomkb.frameworks.model import ENGINE, PLAIN, Default, in_range
from oomkb.memory.job import Assumption, Job, JobDraft
from oomkb.memory.job_reading import read_dotted
from oomkb.memory.ranks import model_parallel, ranks_needed
from oomkb.memory.states import GGUF_BYTES
from oomkb.units import billions_with_experts

UNKNOWN: Final = "unknown"
"""A framework that a configuration showed and that is not known."""
_ANY: Final = "any framework"
_USUAL_LENGTH: Final = 2048
_USUAL_CONTEXT: Final = 8192
_PLANNED: Final = "a plan, not a run: a careful start"
_SPREADING: Final = ("llama.cpp", "ollama")
"""Engines of one process, which know no ranks."""
_PLAIN_GENERATION: Final = ("transformers", "trl", "accelerate", "peft")
"""Frameworks in which serving is a plain ``generate`` call."""


def _world(job: Job) -> int:
    return (job.gpus or 1) * (job.nodes or 1)


def _needed(job: Job) -> int:
    """The fewest ranks that the parallel sizes can be laid out on."""
    return math.lcm(*ranks_needed(job).values())


def _named_size(job: Job) -> float | None:
    """Billions of parameters as the model's name says them (``Qwen2.5-14B``, ``LFM2-VL-450M``)."""
    name = job.model if isinstance(job.model, str) else ""
    return billions_with_experts(name)


_MIX: Final = re.compile(r"[-_.:](i?q[1-8](?:_[a-z0-9]{1,3}){1,2})(?:\.gguf)?\Z", re.IGNORECASE)
"""A mix of llama.cpp at the end of a file's name or of a tag."""


def _named_quant(job: Job) -> str | None:
    """How the checkpoint that is served stores its weights, as its name says (``Qwen3-32B-AWQ``)."""
    name = job.model[-200:] if isinstance(job.model, str) and job.objective == "inference" else ""
    mix = _MIX.search(name)
    return mix[1].lower() if mix and mix[1].lower() in GGUF_BYTES else quant_hint(name) if name else None


_SIXTEEN: Final = re.compile(r"(?<![a-z0-9])(?:bf16|fp16|f16|bfloat16)(?![a-z0-9])", re.IGNORECASE)


def _stored(job: Job) -> str | None:
    """How the checkpoint that is served stores its weights, as its ``config.json`` says (DeepSeek-V3's is fp8)."""
    if job.objective != "inference" or (isinstance(job.model, str) and _SIXTEEN.search(job.model[-200:])):
        return None
    return models.stored_quant(config_of(job))


def _has_adapters(job: Job) -> bool:
    return job.lora is not None and any(v is not None for v in (job.lora.r, job.lora.targets, job.lora.alpha))


def _trained(job: Job) -> bool:
    return job.objective != "inference"


def _served(job: Job) -> bool:
    return job.objective == "inference" and job.framework not in _PLAIN_GENERATION


def _by_layers(job: Job) -> bool:
    """Several cards of one machine, of which each holds some of the layers."""
    spread = (found := find(job.framework)) is not None and found.name in _SPREADING
    return spread and _world(job) > 1 and (job.nodes or 1) == 1 and job.tp is None


def _pipelined(job: Job) -> bool:
    """Whether micro-batches are trained through the stages of a pipeline."""
    return (job.pp or 1) > 1 and _trained(job) and has(job.framework, "pp") and "pp" not in job.assumed


def _group(job: Job) -> int:
    """One sample; TRL counts completions, of which a whole group is the least."""
    return job.generations or 8 if job.objective == "grpo" and job.framework == "trl" else 1


def _trains_quantised(job: Job) -> bool:
    return _trained(job) and quantised(job)


def _mixed(job: Job) -> bool:
    """Full training with nothing said of its precision: 16 bytes a parameter, as everybody reckons it."""
    plain = job.framework in (None, "transformers", "trl", "accelerate")
    return plain and _trained(job) and job.method in (None, "full") and not zero(job) and not quantised(job)


def _half(job: Job) -> str:
    device = gpus.find(job.gpu) if job.gpu else None
    return "fp16" if device is not None and not device.can("bf16") else "bf16"


def _fusable(job: Job) -> bool:
    return _trained(job) and job.optimizer in (None, "adamw")


def _sampled(job: Job) -> bool:
    return _trained(job) and job.prompt_len is None and job.completion_len is None and not rl(job)


def _split(job: Job) -> int:
    """As many parts as there are cards, where the cards are a power of two."""
    count = (job.gpus or 1) * (job.nodes or 1) // (job.pp or 1)
    return 1 << (max(1, count).bit_length() - 1)


def _longest(job: Job) -> int | None:
    config = config_of(job)
    longest = config.get("max_position_embeddings") or config.get("max_target_positions")  # speech: of the decoder
    return longest if isinstance(longest, int) and longest > 0 else None


def _usual_length(job: Job) -> int:
    return min(_USUAL_LENGTH, _longest(job) or _USUAL_LENGTH)


def _usual_context(job: Job) -> int:
    return job.seq_len or min(_USUAL_CONTEXT, _longest(job) or _USUAL_CONTEXT)


# What holds before a framework's own defaults: it decides which of them apply.
_FIRST: Final = (
    Default(
        "params_b",
        _named_size,
        "the model's name says so",
        _ANY,
        when=lambda j: (_named_size(j) or 0) > 0,
    ),
    Default(
        "gpus",
        lambda j: max(1, j.world // (j.nodes or 1)),
        "ranks over machines",
        _ANY,
        when=lambda j: j.world is not None,
    ),
    Default("gpus", _needed, "as many GPUs as the parallel sizes need", _ANY, when=lambda j: _needed(j) > 1),
    Default("gpus", 1, "no number of GPUs is stated", _ANY),
    Default("nodes", 1, "no number of machines is stated", _ANY),
    Default("world", _world, "GPUs times machines", _ANY),
    Default(
        "pp", _world, "one process spreads the layers over the cards", "llama.cpp --split-mode layer", when=_by_layers
    ),
    Default(
        "grad_accum",
        lambda j: j.pp,
        "as many micro-batches as the pipeline has stages: fewer leave stages idle",
        "Megatron-LM arXiv:2104.04473, section 2.2",
        when=_pipelined,
    ),
    Default("method", "qlora", "adapters on a quantised base", _ANY, when=lambda j: _has_adapters(j) and quantised(j)),
    Default("method", "lora", "adapters are configured", _ANY, when=_has_adapters),
    Default("method", "none", "nothing is trained", _ANY, when=lambda j: j.objective == "inference"),
    Default("quant", "nf4", "the usual storage of QLoRA", _ANY, when=lambda j: j.method == "qlora"),
    Default("quant", _named_quant, "the model's name says so", _ANY, when=lambda j: _named_quant(j) is not None),
    Default("quant", "mxfp4", "the model is published so, its files too", _ANY, when=lambda j: _stored(j) == "mxfp4"),
)
_LAST: Final = (
    Default("objective", "sft", "the usual objective", _ANY),
    Default("method", "qlora", "a quantised base can only be trained through adapters", _ANY, when=quantised),
    Default("method", "full", "no adapters are configured", _ANY),
    Default("quant", _stored, "the checkpoint's config.json says so", _ANY, when=lambda j: _stored(j) is not None),
    Default("quant", "none", "the base is not quantised", _ANY),
    Default("micro_batch", 1, "no batch size is stated", _ANY),
    Default("grad_accum", 1, "no accumulation is stated", _ANY),
    Default("eval_micro_batch", lambda j: j.micro_batch or 1, "the evaluation batch follows the training batch", _ANY),
    Default("prompt_len", 512, "no prompt length is stated", _ANY, when=lambda j: rl(j) and j.seq_len is None),
    Default(
        "completion_len",
        512,
        "no completion length is stated: TRL takes 256, ms-swift 512, OpenRLHF and verl more",
        _ANY,
        when=lambda j: rl(j) and j.seq_len is None,
    ),
    Default(
        "completion_len",
        lambda j: max(1, (j.seq_len or 0) - (j.prompt_len or (j.seq_len or 0) // 2)),
        "what the prompt leaves of the length; half of it where no prompt length is stated",
        _ANY,
        when=lambda j: rl(j) and (j.seq_len or 0) > 1,
    ),
    Default(
        "seq_len",
        lambda j: (j.prompt_len or 512) + (j.completion_len or 512),
        "prompt and completion together",
        _ANY,
        when=lambda j: j.prompt_len is not None or j.completion_len is not None,
    ),
    Default("seq_len", 2048, "no length is stated", _ANY),
    Default("packing", False, "samples are not packed unless set", _ANY),
    Default(
        "sharding",
        "device-map",
        "one process over several GPUs",
        _ANY,
        when=lambda j: (j.gpus or 1) > 1 and j.world == 1,
    ),
    Default("sharding", "ddp", "several ranks without a sharding setting replicate everything", _ANY, when=distributed),
    Default("sharding", "none", "one GPU", _ANY),
    Default("grad_ckpt", False, "not switched on", _ANY),
    Default("param_dtype", "bf16", "the usual dtype", _ANY),
    Default("autocast", "none", "no mixed precision is stated", _ANY),
    Default("attention", "sdpa", "PyTorch's scaled_dot_product_attention", _ANY),
    Default("optimizer", "adamw", "the usual optimizer", _ANY),
    Default("optimizer_impl", "fused", "DeepSpeed brings its own fused step", _ANY, when=zero),
    Default("optimizer_impl", "foreach", "PyTorch's default on CUDA", _ANY, when=lambda j: j.optimizer == "adamw"),
    Default("fused_ce", False, "logits are materialised whole", _ANY),
    Default("offload", [], "nothing is offloaded", _ANY),
    Default("reshard_after_forward", True, "full sharding", _ANY, when=fsdp),
    Default("lora.r", 8, "PEFT's rank", "peft tuners/lora/config.py", when=lora),
    Default("lora.targets", "all-linear", "the usual targets", _ANY, when=lora),
    Default(
        "extra_models",
        [{"role": "reference"}],
        "the objective compares with a reference model",
        _ANY,
        when=lambda j: preference(j) and full(j),
    ),
    Default("extra_models", [], "no other model is stated", _ANY),
    Default("generations", 8, "completions per prompt", _ANY, when=lambda j: j.objective == "grpo"),
    Default("tp", 1, "not stated", _ANY),
    Default("pp", 1, "not stated", _ANY),
    Default("cp", 1, "not stated", _ANY),
    Default(
        "dp", lambda j: max(1, (j.world or 1) // model_parallel(j)), "ranks left after the other parallel sizes", _ANY
    ),
)
# What a careful person starts a run with that is only planned, before any framework's own defaults.
_CAREFUL: Final = (
    Default("method", "qlora", "a quantised base can only be trained through adapters", _ANY, when=_trains_quantised),
    Default("quant", "nf4", "the usual storage of QLoRA", _ANY, when=lambda j: j.method == "qlora"),
    Default("micro_batch", _group, "one sample at a time, the smallest start", _PLANNED, when=_trained),
    Default("eval_micro_batch", lambda j: j.micro_batch, "as large as the training batch", _PLANNED, when=_trained),
    Default("grad_ckpt", True, "checkpointing saves most for its price", _PLANNED, when=_trained),
    Default(
        "autocast",
        _half,
        "mixed precision, the usual one",
        _PLANNED,
        when=lambda j: _mixed(j) and j.param_dtype is None,
    ),
    Default(
        "param_dtype",
        "fp32",
        "master weights in fp32, as mixed precision has them",
        _PLANNED,
        when=lambda j: _mixed(j) and j.autocast in ("bf16", "fp16"),
    ),
    Default("optimizer_impl", "fused", "the step without temporaries", _PLANNED, when=_fusable),
    Default("seq_len", _usual_length, "a usual length, no more than the model's own", _PLANNED, when=_sampled),
    Default("generations", 8, "completions per prompt", _ANY, when=lambda j: j.objective == "grpo"),
    Default("tp", _split, "the cards share the model", _PLANNED, when=_served),
    Default("serving.max_model_len", _usual_context, "a usual context", _PLANNED, when=_served),
)
_TRAINING_ONLY: Final = frozenset(
    [
        "micro_batch",
        "grad_accum",
        "eval_micro_batch",
        "packing",
        "grad_ckpt",
        "optimizer",
        "optimizer_impl",
        "fused_ce",
        "reshard_after_forward",
        "generations",
        "extra_models",
        "seq_len",
    ]
)


class _Step:
    """One default, ready to be applied: what does not depend on the job is worked out once."""

    __slots__ = ("assumption", "default", "dotted", "field", "read", "training", "when")

    def __init__(self, default: Default) -> None:
        self.default, self.field = default, default.field
        self.when = default.when if default.conditional else None
        self.dotted = "." in default.field
        self.training = default.field in _TRAINING_ONLY
        self.read: Any = None
        self.assumption: Assumption | None = None
        if not callable(default.value):
            self.assumption = Assumption(default.value, self.why)
            self.read = read_dotted(default.field, default.value)

    @property
    def why(self) -> str:
        source = "" if self.default.source == _ANY else f" ({self.default.source})"
        return self.default.why + source

    def compute(self, draft: JobDraft) -> None:
        """Fill the field with a value that follows from the job."""
        value: Any = self.default.of(draft.job)
        if value is None:
            return
        try:
            draft.assume(self.field, read_dotted(self.field, value), Assumption(value, self.why))
        except JobError:  # a stated field of odd form: leave this one open
            return


def _apply(steps: Iterable[_Step], draft: JobDraft) -> None:
    """Fill the fields that are open and whose circumstances hold, in order: this runs seventy times for every job."""
    job, assume = draft.job, draft.assume
    for step in steps:
        field = step.field
        if (job.get(field) if step.dotted else getattr(job, field)) is not None:
            continue
        when = step.when
        if (when is not None and not when(job)) or (step.training and job.objective == "inference"):
            continue
        if step.assumption is not None:
            assume(field, step.read, step.assumption)
        else:
            step.compute(draft)


@lru_cache(maxsize=256)
def _own(framework: str, version: str | None) -> tuple[_Step, ...]:
    """The steps of one framework's own defaults, those of the release."""
    (member, *_) = lineage(framework)
    return tuple(_Step(d) for d in member.defaults if in_range(d.versions, version))


@cache
def _common() -> tuple[tuple[_Step, ...], tuple[_Step, ...], tuple[_Step, ...]]:
    return tuple(map(_Step, _FIRST)), tuple(map(_Step, _LAST)), tuple(map(_Step, _CAREFUL))


def complete(job: Job, *, careful: bool = False) -> Job:
    """The job with every field that decides memory filled in; what was filled is under ``assumed`` with its reason.

    Stated fields are never changed. Where no framework is stated, it is taken for plain transformers; of one that is
    stated and ``unknown`` no framework's defaults are applied.

    :param careful: whether it is a run that somebody only plans: what is open is then as a careful person starts (one
        sample, checkpointing, a fused optimizer, up to 2,048 tokens) rather than as the framework's defaults have it.
    """
    framework = find(job.framework)
    draft = JobDraft(job)
    if careful and job.framework is None and job.objective == "inference":
        framework = find(ENGINE)
        draft.assume("framework", ENGINE, _ENGINE)
    elif job.framework is None:
        draft.assume("framework", PLAIN, _PLAIN)
    first, last, planned = _common()
    _apply(first, draft)
    if careful:
        _apply(planned, draft)
    named = framework.name if framework else None if job.framework == UNKNOWN else PLAIN
    for member in lineage(named):
        _apply(_own(member.name, job.versions.get(member.package) or job.versions.get(member.name)), draft)
    _apply(last, draft)
    return draft.done()


_PLAIN: Final = Assumption(PLAIN, "no framework is stated")
_ENGINE: Final = Assumption(ENGINE, "no engine is stated")
