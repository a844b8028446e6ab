"""Weights, optimizer states and activations in fewer bytes, in host memory, or not trained at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import (
    Context,
    Safety,
    Variant,
    feature_of,
    half_precision,
    is_lora,
    is_serving,
    remedy,
)
from oomdoc.diagnosis.fixes.hardware import has_bitsandbytes
from oomdoc.diagnosis.fixes.helper_models import find, without
from oomkb.memory.job import Job
from oomkb.memory.setting import WITHOUT_LOGITS

_ADAPTED: Final = ("gradients", "optimizer states", "master")
_ADAPTER: Final = ("weights", "adapter", "gradients", "optimizer states", "activations")
_FULL: Final = ("full", "freeze", "galore", "apollo", "lisa", "badam")
_NEW_ADAPTER: Final = {"r": 16, "targets": "all-linear"}
_UNSHARDED: Final = (None, "none", "ddp", "zero1", "zero2", "device-map")
_PROJECTIONS: Final = ("llama", "qwen2", "qwen3", "mistral", "gemma", "mixtral")
"""Families whose projections have these names: fused ones (phi3, chatglm, gpt2) have others."""
_PARAM_EFFORT: Final = 2.5
"""Host memory for all states, a CPU optimizer, and a step that waits for the host link: after smaller batches, fused
losses and sharding, which change one key."""


def _quantised(job: Job) -> bool:
    return job.quant not in (None, "none")


@remedy("changed-training", "training", reduces=_ADAPTED)
def lora(job: Job, context: Context) -> Iterator[Variant]:
    """LoRA: train small adapters, keep the model frozen. Gradients and optimizer states of the base vanish; activations
    and logits stay almost as they are. Hu et al. 2021, "LoRA".
    """
    if job.method not in _FULL or job.objective == "pretrain" or not context.has("lora"):
        return
    fields: dict[str, object] = {"method": "lora", "lora": _NEW_ADAPTER}
    if job.objective in ("dpo", "kto", "grpo", "ppo") and find(job, "reference"):
        # The frozen base serves as the reference.
        fields["extra_models"] = without(job, "reference")
    if job.optimizer in ("galore_adamw", "galore_adamw_8bit", "apollo_adamw", "lomo"):
        fields["optimizer"] = "adamw"
    # A frozen base needs no fp32 master: it is held in the dtype it computes in.
    fields.update(half_precision(job, bf16=context.can("bf16")))
    yield Variant(fields=fields, effort=1.5)


@remedy("changed-training", "training", reduces=("weights", *_ADAPTED))
def qlora(job: Job, context: Context) -> Iterator[Variant]:
    """QLoRA: adapters over a base stored in 4 bits (NF4, double quantisation), 8 bits become 4. Dettmers et al. 2023,
    "QLoRA".

    Not with ZeRO-3 or ZeRO's parameter offload: bitsandbytes' packed weights cannot be partitioned by DeepSpeed's
    engine in most frameworks, so it is proposed for unsharded, DDP and ZeRO-1/2 runs.
    """
    if job.objective == "pretrain" or not context.has("qlora"):
        return
    if not has_bitsandbytes(context.device) or job.sharding not in _UNSHARDED or "param" in (job.offload or ()):
        return
    if job.quant == "int8" and is_lora(job):
        yield Variant(fields={"method": "qlora", "quant": "nf4-double"}, effort=0.8, safety="changed-numerics")
    if _quantised(job) or job.method == "qlora":
        return
    fields: dict[str, object] = {"method": "qlora", "quant": "nf4-double"}
    if job.method != "lora":
        fields["lora"] = _NEW_ADAPTER
        if find(job, "reference"):
            fields["extra_models"] = without(job, "reference")
    fields.update(half_precision(job, bf16=context.can("bf16")))
    # From LoRA the base's precision changes; from full fine-tuning the training does.
    safety: Safety = "changed-numerics" if job.method == "lora" else "changed-training"
    yield Variant(fields=fields, effort=1.5, safety=safety)


@remedy("changed-training", "training", reduces=_ADAPTER)
def lora_rank(job: Job, context: Context) -> Iterator[Variant]:
    """A smaller LoRA rank: adapters, their gradients and optimizer states shrink in proportion (seldom much)."""
    rank = job.get("lora.r")
    if is_lora(job) and isinstance(rank, int) and rank > 16 and context.has("lora"):
        for smaller in dict.fromkeys((rank // 2, 16)):
            if smaller >= 16:
                yield Variant(fields={"lora.r": smaller}, effort=0.5)


@remedy("changed-training", "training", reduces=_ADAPTER)
def lora_targets(job: Job, context: Context) -> Iterator[Variant]:
    """Adapters on the attention projections only: fewer adapters, and fewer layer inputs kept for them in backward."""
    family = context.shape.dims.model_type if context.shape is not None else ""
    whole = is_lora(job) and job.get("lora.targets") == "all-linear"
    if whole and context.has("lora") and family.startswith(_PROJECTIONS):
        yield Variant(fields={"lora.targets": ["q_proj", "v_proj"]}, effort=0.5)


@remedy("changed-numerics", "training", reduces=("activations", "recomputed"))
def mixed_precision(job: Job, context: Context) -> Iterator[Variant]:
    """Activations and matrix products in 16 bits, weights stay fp32: bf16 where the hardware has it, else fp16 with
    loss scaling. Micikevicius et al. 2017, "Mixed Precision Training".
    """
    plain = job.param_dtype == "fp32" and job.autocast in (None, "none", "fp32")
    if plain and context.device is not None and context.has("micro_batch"):
        yield Variant(fields={"autocast": "bf16" if context.can("bf16") else "fp16"}, effort=0.5)


@remedy("changed-numerics", "training", "serving", reduces=("weights", *_ADAPTED, "activations", "kv"))
def half_weights(job: Job, context: Context) -> Iterator[Variant]:
    """Weights held in 16 bits instead of fp32 (pure bf16 training): weights, gradients and Adam's moments halve.

    Without an fp32 master small updates are rounded away, so this changes the numerics. bf16 needs hardware for it;
    fp16 without masters does not train, so it is offered for frozen weights only: those of LoRA, and of inference.
    """
    if job.param_dtype != "fp32" or _quantised(job):
        return
    bf16 = context.device is not None and context.can("bf16")
    if is_serving(job):
        yield Variant(fields={"param_dtype": "bf16" if bf16 else "fp16"}, effort=0.3)
    elif context.has("pure_bf16") and job.sharding not in ("zero1", "zero2", "zero3", "distributed-optimizer"):
        # Those engines keep their own fp32 masters, sharded.
        if bf16:
            yield Variant(fields={"param_dtype": "bf16", "autocast": "bf16"}, effort=1.2)
        elif is_lora(job) and job.autocast == "fp16":
            yield Variant(fields={"param_dtype": "fp16"}, effort=0.6)


@remedy("same-numbers", "training", "serving", reduces=("attention", "mask", "activations", "recomputed"))
def attention(job: Job, context: Context) -> Iterator[Variant]:
    """A fused attention kernel: no sequence x sequence scores are ever stored.

    FlashAttention-2 needs compute capability 8.0 (Ampere) and 16-bit activations; PyTorch's SDPA picks a memory-
    efficient kernel on older cards. Dao 2023, "FlashAttention-2".
    """
    if not context.has("attention") or (context.serving and not context.script):
        return
    # A script that fails in its scores has them, whatever is not said of them.
    scores = context.script and job.attention is None and context.causes[:1] == ("attention-scores",)
    if job.attention == "eager" or scores:
        yield Variant(fields={"attention": "sdpa"}, effort=0.3)
    half = job.autocast in ("bf16", "fp16") or job.param_dtype in ("bf16", "fp16")
    # Only where the card is known: an old card refuses to start with it.
    if job.attention in ("eager", "sdpa") and context.device and context.can("flash2") and half:
        yield Variant(fields={"attention": "flash2"}, effort=0.8)


@remedy("same-numbers", "training", reduces=("logits", "loss"))
def fused_ce(job: Job, context: Context) -> Iterator[Variant]:
    """A fused or chunked loss: logits of all tokens times all words are never whole in memory.

    Liger's fused linear cross-entropy, cut cross-entropy, chunked losses. Where the trainer itself reads the logits
    (preference losses in most frameworks), there is no such switch, and none is proposed; nor for encoder-decoder
    models, of which Liger's table of models (``MODEL_TYPE_TO_APPLY_LIGER_FN``) has none. Hsu et al. 2024, "Liger
    Kernel"; Wijmans et al. 2024, "Cut Your Losses".
    """
    # A trained head needs a gradient buffer of words x width: more than the logits of few tokens.
    tokens = (job.micro_batch or 1) * (job.seq_len or 2048)
    worth_it = context.shape is None or is_lora(job) or tokens >= context.shape.dims.hidden
    decoder = job.objective not in WITHOUT_LOGITS and not (context.shape and context.shape.dims.encoder_layers)
    if not job.fused_ce and decoder and worth_it and context.has(feature_of("fused_ce", job)):
        yield Variant(fields={"fused_ce": True}, effort=0.8)


@remedy("same-numbers", "training", reduces=("activations", "recomputed"))
def offload_activations(job: Job, context: Context) -> Iterator[Variant]:
    """What backward needs moves to host memory during forward and comes back in time.

    Cheap where the host link keeps up with the layers (long sequences), slow where it does not.
    """
    offload = job.offload or ()
    if (
        "activations" in offload
        or job.grad_ckpt == "offload"
        or not context.has(feature_of("offload.activations", job))
    ):
        return
    # Without checkpointing every activation would travel, which torchtune refuses (its recipes, 0.4 to 0.6) and no host
    # link keeps up with.
    first = {} if job.grad_ckpt or not context.has("grad_ckpt") else {"grad_ckpt": True}
    yield Variant(fields={**first, "offload": [*offload, "activations"]}, effort=1.0)


@remedy("same-numbers", "training", reduces=("optimizer states", "master"))
def offload_optimizer(job: Job, context: Context) -> Iterator[Variant]:
    """Optimizer states in host memory, updated there: frees 12 bytes a parameter, costs a slow step and host memory.

    Needs room on the host: 16 bytes a trainable parameter over all ranks of the machine. Ren et al. 2021,
    "ZeRO-Offload". Where a configuration of stage 3 offloads parameters as well, :func:`offload_param` says it.
    """
    offload = job.offload or ()
    if "optimizer" in offload or job.optimizer not in (None, "adamw"):
        return
    if job.sharding in ("zero1", "zero2", "zero3"):
        able = context.has("zero.offload") or context.has("zero.offload_optimizer")
        able = able and not (job.sharding == "zero3" and context.has("zero3.offload_both"))
    elif job.sharding in ("fsdp", "fsdp2", "hsdp"):
        able = context.has("fsdp.offload_optimizer")
    else:  # Megatron has a switch of its own
        able = job.sharding == "distributed-optimizer" and context.has("megatron.offload_optimizer")
    if able:
        yield Variant(fields={"offload": [*offload, "optimizer"]}, effort=1.0)


@remedy("same-numbers", "training", reduces=("weights", *_ADAPTED))
def offload_param(job: Job, context: Context) -> Iterator[Variant]:
    """Parameters in host memory too, fetched layer by layer: only with ZeRO-3 or FSDP, and the slowest of the fixes.

    Frozen or trained, every parameter crosses the host link in forward and again in backward. Rajbhandari et al. 2021,
    "ZeRO-Infinity".
    """
    offload = job.offload or ()
    if "param" in offload or job.optimizer not in (None, "adamw", "sgd"):
        return
    zero = job.sharding == "zero3" and context.has("zero.offload")
    fsdp = job.sharding in ("fsdp", "fsdp2") and context.has("fsdp.offload")
    if zero or fsdp:
        both = [*offload, *(kind for kind in ("optimizer", "param") if kind not in offload)]
        yield Variant(fields={"offload": both}, effort=_PARAM_EFFORT)
