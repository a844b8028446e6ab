"""A job with every choice made: what the arithmetic reads. Missing fields get neutral values, and are listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.errors import Note
from oomkb.memory import optimizers, releases
from oomkb.memory.images import NO_IMAGES, USUAL_PIXELS, Images, counted, images_of
from oomkb.memory.job import Assumption, Job
from oomkb.memory.loops import changes, gradients_stay, is_loose, steps_in_backward, typical_rows, usual_length
from oomkb.memory.offload import (
    OPTIMIZER_ALONE,
    asks_optimizer_alone,
    by_fsdp,
    joins_whole,
    keeps_gathered,
    offloaded,
    pins,
)
from oomkb.memory.ranks import FSDP, attention_dp, chunks, expert_split, ranks
from oomkb.memory.shape import ModelShape
from oomkb.memory.token_mixers import notes_of

BYTES: Final[Mapping[str, float]] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "auto": 2}
PREFERENCE: Final = frozenset({"dpo", "orpo", "simpo", "kto", "rm"})
WITHOUT_LOGITS: Final = frozenset({"rm", "embedding"})  # the head makes a number or a vector
PREFERRED: Final = frozenset({"dpo", "orpo", "simpo", "kto", "distill"})
ONLINE: Final = frozenset({"grpo", "ppo"})
_FULL: Final = frozenset({"full", "freeze", "galore", "apollo", "lisa", "badam"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The resolved numbers of one run."""

    job: Job
    objective: str
    adapters: bool
    method: str
    rank: int
    targets: str | tuple[str, ...]
    lora_dropout: float
    dora: bool
    adapter_bytes: int
    expert_adapters: str
    quant: str
    param_bytes: int
    compute_bytes: int
    autocast: bool
    optimizer: str
    optimizer_impl: str
    batch: float
    """Sequences that go through the model at once on one GPU."""
    samples: int
    """Samples (pairs for preference objectives) per GPU, as the job states them."""
    seq: int
    """Tokens of one sequence, image tokens included."""
    images: Images
    """The images of one sample."""
    ckpt: str
    """``none``, ``full``, ``parts`` (of a layer), ``selective``, ``offload``."""
    attention: str
    fused_ce: bool
    style: str
    """Whose trainer computes a preference loss; empty for other objectives."""
    sharding: str
    reshard: bool
    world: int
    dp: int
    tp: int
    pp: int
    cp: int
    sp: int
    ep: int
    etp: int
    """Tensor parallelism of routed experts."""
    attention_tp: int
    """That of attention, the key/value cache and the embedding."""
    chunks: int
    """Virtual pipeline stages on each rank (interleaved schedule)."""
    gpus_per_node: int
    accum: int
    gradients_stay: bool
    """Gradients stay allocated through the passes: several micro-batches to a step, or zeroed in place."""
    whole_gradients: bool
    """Those of a wrapper that shards them stand unsharded between micro-batches."""
    offload: frozenset[str]
    by_fsdp: bool
    """What is offloaded is FSDP's doing: gradients go to the host as well."""
    pins: bool | None
    """Offloaded buffers are page-locked; ``None``: not known."""
    accum_bytes: int
    """Of an element in which DeepSpeed adds gradients up (``grad_accum_dtype``); 0: the model's."""
    framework: str
    transformers: tuple[int, ...]
    torch: tuple[int, ...]
    masked: bool
    """An attention mask is materialised (padding, or an SDPA path that cannot rely on causality)."""
    unfused: bool
    """No fused attention kernel takes the dtype on this card (:func:`oomkb.memory.releases.lacks_kernel`)."""
    cuda: bool
    """Kernels of a CUDA device; without a named GPU the reference kernels of ``bench/trace.py``."""
    held_bytes: int
    """Bytes of the dtype in which weights meet the computation (after a sharding wrapper's cast)."""
    grads: str
    """How long whole gradients stay: ``all``, ``layer``, ``none``."""
    upcast: str
    deepspeed: bool
    """Weights and gradients in 16 bits, fp32 masters beside the moments."""
    megatron: bool
    trained_layers: int
    """The last ones, which alone are trained; of adapters 0 for all."""
    tables: int
    """Embedding and output head, as far as they are trained beside adapters, each as a copy (``modules_to_save``)."""
    state_fraction: float
    """Share of the trained parameters that has gradients and states at a time (LISA, BAdam)."""
    eval_batch: int
    compile: bool
    fused: str
    """Which kernels take in what surrounds the matrix products (:class:`oomkb.memory.mode.Mode`)."""
    expandable: bool
    """The allocator's expandable segments are on."""
    dynamic: bool
    """Batches are padded to their own longest sample, or laid end to end, so that sizes change from step to step."""
    loose: bool
    """Samples lie end to end as they come (:func:`oomkb.memory.passes.is_loose`)."""
    emptied: bool
    """The allocator's cache is given back in every step (``torch_empty_cache_steps: 1``)."""
    reference: bool
    """A reference model is asked in every step: not where its log-probabilities were computed beforehand."""
    mixer_kernels: bool
    """State spaces and the like run in kernels (:func:`oomkb.memory.releases.has_mixer_kernels`)."""
    logits_share: float
    """Share of the positions for which logits are made."""
    divides: str
    """Online RL: how the trainer divides the logits by the temperature."""
    sequence_parallel: bool
    quant_keeps: bool
    """Inputs of quantized products stay to the step's end (bitsandbytes before 0.43.2)."""
    outlived: bool
    """They stay through the forward pass of the next micro-batch, too."""
    mlx: bool
    """Apple's MLX: its own modules, no autocast, the loss and the softmax of the scores in the tensors' dtype."""
    litgpt: bool
    """lit-gpt's own modules: one kernel per activation function, the loss in chunks of rows."""
    upcast_adapters: bool
    """FSDP1 under accelerate: flat parameters with adapters inside are held in fp32, the frozen part with them."""
    notes: tuple[Note, ...]
    """What the framework does whatever the job states."""
    assumed: Mapping[str, Assumption]
    tokens: float = field(init=False)
    """Tokens that go through the layers at once on one GPU."""
    square: float = field(init=False)
    """The sum of the squares of their sequences' lengths."""

    def __post_init__(self) -> None:
        tokens = self.batch * self.seq / (self.cp * self.sp)
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "square", tokens * self.seq / (self.cp * self.sp))

    def bucket(self, name: str, default: float) -> float:
        """A bucket size in elements; ``default`` where it is not stated or not a number."""
        for key in (name, "stage3_" + name, name.removesuffix("_size")):
            value = self.job.buckets.get(key)
            if isinstance(value, int | float):
                return float(value)
        return default

    @property
    def training(self) -> bool:
        """Whether gradients are computed at all."""
        return self.objective != "inference"

    @property
    def few_layers(self) -> bool:
        """Whether the last layers alone are trained, or have adapters."""
        return self.method == "freeze" or (self.adapters and self.trained_layers > 0)

    @property
    def shards(self) -> int:
        """Ranks that share what is sharded, those that split a sequence too (DeepSpeed ``seq_data_parallel_group``)."""
        if self.sharding in ("none", "ddp", "device-map", "data-parallel"):
            return 1
        ranks = self.dp * self.cp  # a hybrid shards inside a machine and replicates over machines
        ranks *= self.sp if ranks * self.sp * self.tp * self.pp == self.world else 1
        return min(ranks, self.gpus_per_node) if self.sharding == "hsdp" else ranks


def resolve_setting(job: Job, shape: ModelShape) -> Setting:
    """Make every choice, refusing what describes no possible run.

    :raises JobError: with the field and what would be valid.
    """
    filled = dict(job.assumed)

    def pick(name: str, value: Any, default: Any, why: str = "not stated; the most common choice was taken") -> Any:
        if value is not None:
            return value
        filled.setdefault(name, Assumption(default, why))
        return default

    objective = pick("objective", job.objective, "inference" if job.serving else "sft")
    trains = objective != "inference"
    lora = job.lora
    method = pick("method", job.method, "lora" if lora is not None else "full")
    # Virtual tokens (prompt and prefix tuning) are as few as an adapter's matrices, over a base that is as frozen.
    adapted = method in ("lora", "qlora", "oft", "prompt") or (lora is not None and method not in _FULL)
    adapters = adapted and trains
    quant = job.quant or ("nf4" if method == "qlora" else "none")
    if quant == "nf4" and (job.framework or "").lower().startswith(("torchtune", "tgi")):
        quant = "nf4-double"  # torchao and TGI (``layers/bnb.py``) quantize the scales as well
    quant = releases.affine(job, quant)
    param = pick("param_dtype", job.param_dtype, "bf16").replace("auto", "bf16")
    notes = notes_of(job, shape)
    if releases.fast_loss(job) and not job.fused_ce:
        notes = (releases.FUSED, *notes)
    autocast = job.autocast if job.autocast is not None else "none"
    if releases.upcasts_frozen(job, quant):
        param = "fp32"
    world, dp, tp, pp, cp, sp, ep, per_node = ranks(job, shape)
    sharding = pick("sharding", job.sharding, "ddp" if dp > 1 else "none")
    if sharding == "zero1" and not job.runs_on("deepspeed") and _is_megatron(job, sharding):
        sharding = "distributed-optimizer"  # what people call ZeRO-1 there makes none of DeepSpeed's buffers
    if param == "fp32" and releases.loads_in_16_bits(job, sharding):
        param, notes = "bf16", (*notes, releases.LOADED)
    if param in ("bf16", "fp16") and releases.upcast_trained(job, adapters, sharding, autocast):
        param, notes = "fp32", (*notes, releases.SHARDS_WIDE)
    if asks_optimizer_alone(job, sharding):
        notes = (*notes, OPTIMIZER_ALONE)
    samples = pick("micro_batch", job.micro_batch, 1)
    images = images_of(job, shape) if trains else NO_IMAGES
    seq = pick("seq_len", job.seq_len, usual_length(job))
    if images.tokens:
        if not job.max_pixels and images.patches:
            pick("max_pixels", None, USUAL_PIXELS, "not stated; 1,280 tokens an image are usual")
        seq = max(seq, images.tokens) if counted(job) else seq + images.tokens
    doubled = 2 if objective in ("dpo", "orpo", "simpo", "rm") else 1
    style = releases.preference_style(job) if objective in PREFERRED or objective == "grpo" else ""
    # A limit of tokens is one of each GPU; a longer sample than that is a micro-batch of its own.
    batch = samples * doubled if not job.micro_tokens else max(1.0, job.micro_tokens * cp * sp / seq)
    loose = objective not in ONLINE and is_loose(job)
    batch = typical_rows(batch) if loose else batch
    samples = max(1, int(batch / doubled)) if job.micro_tokens else samples
    megatron = _is_megatron(job, sharding)
    attention = pick("attention", job.attention, "eager" if shape.family.eager else "sdpa")
    if megatron and job.grad_ckpt == "selective" and attention == "eager":
        attention = "flash2"  # scores are computed again, so that none is kept (arXiv 2205.05198, section 5)
    joined = sharding in ("zero2", "zero3") or gradients_stay(job) or megatron or method == "badam"
    return Setting(
        job=job,
        objective=objective,
        adapters=adapters,
        method=method,
        rank=pick("lora.r", lora.r if lora else None, 8) if adapters else optimizers.projection_rank(job, method),
        targets=(pick("lora.targets", lora.targets if lora else None, "all-linear") if adapters else ()),
        lora_dropout=(lora.dropout or 0.0) if lora else 0.0,
        dora=bool(lora and lora.dora),
        expert_adapters=optimizers.expert_adapters(job, shape) if adapters else "none",
        mixer_kernels=releases.has_mixer_kernels(job),
        adapter_bytes=_adapter_bytes(job, param, autocast, sharding),
        quant=quant,
        param_bytes=2 if quant.startswith(("gptq", "awq")) else int(BYTES[param]),
        compute_bytes=int(BYTES[autocast]) if autocast not in ("none", "fp8") else int(BYTES[param]),
        autocast=autocast not in ("none", "fp32", "fp8") and not sharding.startswith("zero") and sharding not in FSDP,
        optimizer=optimizers.optimizer_of(method, pick("optimizer", job.optimizer, "adamw")) if trains else "none",
        optimizer_impl=pick("optimizer_impl", job.optimizer_impl, "foreach") if trains else "foreach",
        batch=batch,
        samples=samples,
        seq=seq,
        images=images,
        ckpt=_checkpointing(pick("grad_ckpt", job.grad_ckpt, False) if trains else False, job, shape.dims.model_type),
        attention=attention,
        fused_ce=bool(job.fused_ce) or style == "chunked",
        style=style,
        sharding=sharding,
        reshard=sharding != "shard-grad-op" and job.reshard_after_forward is not False and not keeps_gathered(job),
        world=world,
        dp=dp,
        tp=tp,
        pp=pp,
        cp=cp,
        sp=1 if tp > 1 and sp in (tp, 1) else sp,
        ep=ep,
        etp=expert_split(job, tp, ep, cuts=megatron and not job.runs_on("megatron-swift")),
        attention_tp=tp // (attention_dp(job) or 1),
        chunks=chunks(job, shape, pp),
        gpus_per_node=per_node,
        accum=job.grad_accum or 1,
        gradients_stay=gradients_stay(job),
        whole_gradients=joins_whole(job, sharding),
        offload=offloaded(job, sharding),
        by_fsdp=by_fsdp(job, sharding),
        pins=pins(job, sharding),
        accum_bytes=int(BYTES.get(str(job.extra.get("grad_accum_dtype")), 0)),
        framework=(job.framework or "").lower(),
        transformers=releases.transformers_of(job),
        torch=job.release("torch"),
        masked=_masked(job, shape, attention) and objective != "inference",
        unfused=releases.lacks_kernel(job, autocast if autocast not in ("none", "fp8") else param),
        cuda=bool(job.gpu),
        held_bytes=_held(job, param, autocast, sharding),
        deepspeed=sharding.startswith("zero") or job.runs_on("deepspeed"),
        megatron=megatron,
        trained_layers=job.trained_layers or (0 if adapters else int(job.extra.get("freeze_trainable_layers") or 2)),
        tables=optimizers.trained_tables(job) if adapters else 0,
        state_fraction=optimizers.state_fraction(method, shape),
        eval_batch=0 if "eval_micro_batch" in job.assumed else job.eval_micro_batch or 0,
        compile=bool(job.compile),
        fused="megatron" if megatron else releases.fused_kernels(job, adapters, sharding),
        expandable="expandable_segments:true" in job.env.get("PYTORCH_CUDA_ALLOC_CONF", "").lower().replace(" ", ""),
        emptied=job.extra.get("torch_empty_cache_steps") == 1,
        dynamic=changes(job, loose),
        loose=loose,
        reference=optimizers.asks_reference(job, objective, adapters),
        logits_share=_logits_share(job, objective, seq),
        divides=releases.divides(job) if objective in ONLINE else "",
        sequence_parallel=bool(tp > 1 and (sp > 1 or job.extra.get("sequence_parallel"))),
        quant_keeps=releases.quant_keeps(job, quant),
        outlived=releases.outlives(job, quant),
        mlx=releases.is_mlx(job),
        litgpt=releases.is_litgpt(job),
        upcast_adapters=releases.upcast_adapters(job, adapters, quant, sharding, autocast),
        notes=notes,
        grads="layer" if sharding in FSDP or steps_in_backward(job) else "none" if joined else "all",
        upcast="vocab-parallel" if megatron else releases.loss_copies(job, round(batch), shape.dims.model_type),
        assumed=filled,
    )


def _is_megatron(job: Job, sharding: str) -> bool:
    named = sharding == "distributed-optimizer" or job.runs_on("megatron", "nemo")
    return named and not job.runs_on("automodel")


def _adapter_bytes(job: Job, param: str, autocast: str, sharding: str) -> int:
    """PEFT casts 16-bit adapters to fp32 (``autocast_adapter_dtype``); frameworks with their own LoRA do not.

    DeepSpeed's engine casts the whole module to its own dtype (0.19.8, ``engine._configure_distributed_model``).
    """
    if sharding.startswith("zero"):
        return _held(job, param, autocast, sharding)
    if job.lora is not None and job.lora.dtype:
        return int(BYTES.get(job.lora.dtype, 4))
    own = job.runs_on(*releases.OWN_MODELS, "fsdp_qlora")
    return int(BYTES[param]) if own and autocast == "none" else 4


def _logits_share(job: Job, objective: str, seq: int) -> float:
    if objective not in ONLINE or not job.completion_len or job.runs_on("verl"):
        return 1.0  # verl scores whole packed sequences
    return min(1.0, job.completion_len / seq)


def _masked(job: Job, shape: ModelShape, attention: str) -> bool:
    """Whether the run makes attention masks: eager always; SDPA for padded batches of Hugging Face models."""
    if attention == "eager":
        return True
    if attention != "sdpa" or job.packing or shape.family.lean_mask or job.runs_on(*releases.OWN_MODELS):
        return False
    return not (job.packing is False and "packing" not in job.assumed and job.micro_batch == 1)


def _held(job: Job, param: str, autocast: str, sharding: str) -> int:
    """FSDP's mixed precision and DeepSpeed's engines hand the layers 16-bit weights, whatever the shards hold."""
    if (job.quant or "").startswith(("gptq", "awq")):
        return 2  # their kernels give 16 bits, whatever the adapters are held in
    if sharding in FSDP or sharding.startswith("zero"):
        wanted = job.extra.get("fsdp")
        name = wanted.get("param_dtype") if isinstance(wanted, Mapping) else None
        if isinstance(name, str) and name in BYTES:
            return int(BYTES[name])
        if autocast not in ("none", "fp32", "fp8"):
            return int(BYTES[autocast])
    return int(BYTES[param])


def _checkpointing(value: bool | str, job: Job, kind: str) -> str:
    if value == "selective" and job.runs_on("megatron", "nemo"):
        return "none"  # recomputes the core attention only: what is kept is as with a fused kernel
    if isinstance(value, bool) and "activations" in (job.offload or ()):
        return "offload"  # one layer at a time is on the GPU in either case, computed again or brought back
    if isinstance(value, bool):
        return "none" if not value else "parts" if releases.checkpoints_parts(job, kind) else "full"
    return value
