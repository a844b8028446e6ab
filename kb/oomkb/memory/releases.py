"""What releases of libraries did that no setting says, read off a job's framework and versions."""

from __future__ import annotations

import re
from typing import Final

from oomkb.errors import note
from oomkb.memory.job import Job, version
from oomkb.memory.loops import script_loss
from oomkb.memory.ranks import GATHERED, stated_count

_MONTH: Final = re.compile(r"\b(20[12]\d)-?(0[1-9]|1[0-2])(?:-\d\d|\d\d)?\b")
_LOSS_COMPILED: Final = 2025 * 12 + 4
_BY_LAYER: Final = ("prime-rl", "automodel")
"""Whose ``compile`` takes the layers one by one, and nothing around them."""
_TRANSFORMERS: Final = re.compile(r"transformers[ =]{1,3}v?(\d{1,2}(?:\.\d{1,3}){1,2})")
_LOOPS: Final = {"prime-rl": "kept wide", "automodel": "kept"}
"""Loops whose name for the model's output outlives the backward pass: of fp32 logits, or of those the model gave.

prime-rl's ``src/prime_rl/trainer/sft/train.py`` deletes ``logits`` and keeps ``out``; NeMo Automodel's
``recipes/llm/train_ft.py``, ``_forward_backward_step``.
"""
_MIXER_PACKAGES: Final = frozenset({"mamba-ssm", "flash-linear-attention", "fla", "kernels"})
DEEPSPEED: Final = "deepspeed"
FUSED: Final = note("estimate.fused-loss-taken")
LOADED: Final = note("estimate.loaded-in-16-bits")
_ENTROPY_CHUNK: Final = 2048
MOVES_STATES: Final = ("verl", "easyr1")
"""Frameworks that move states between steps by themselves, and back for each update (verl ``utils/fsdp_utils.py``)."""
MOVES_OPTIMIZER: Final = ("prime-rl", "areal")
"""Those with a switch of their own for the optimizer under FSDP (``optim_cpu_offload``, ``per_layer_optim_step``)."""
_LIGER: Final = ("transformers", "trl", "llama-factory", "llamafactory", "llama factory", "swift", "openrlhf", "verl")
_AMD: Final = re.compile(r"\b(?:amd|instinct|radeon|mi ?[1-4]\d{1,2}[axp]?|rx ?[5-9]\d{3})\b", re.IGNORECASE)
_AUTOMODEL_LAYERS: Final = frozenset(
    {"baichuan", "deepseek_v3", "deepseek_v32", "gpt_oss", "kimi_k2", "kimi_linear", "llama", "mimo_v2_flash"}
    | {"minimax_m2", "ministral3", "mistral3", "nemotron_h", "qwen2", "qwen3", "qwen3_5", "qwen3_next", "qwen3_vl"}
)
"""Families of which it has layers of its own (``nemo_automodel/_transformers/registry.py``, August 2026)."""
_BITSANDBYTES: Final = re.compile(r"(?:bitsandbytes|bnb)[ =]{1,3}v?(\d{1,2}(?:\.\d{1,3}){1,2})")
_SWIFT_1: Final = re.compile(r"swift[ =]{1,3}v?1\.")
SHARDS_WIDE: Final = note("estimate.shards-wide")
_PLAIN_LOSS: Final = frozenset({"gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "opt", "bloom", "falcon", "mpt"})
_REMOTE_LOSS: Final = frozenset({"qwen", "baichuan", "chatglm", "internlm"})
"""Families whose code lies in their repositories and kept its own loss, whatever the release of transformers."""
_NOT_UPCAST: Final = ("gptq", "none")
"""``prepare_model_for_kbit_training`` leaves GPTQ's models as they are (``peft/utils/other.py``, 0.21)."""
OWN_MODELS: Final = ("titan", "torchtune", "lit-gpt", "litgpt", "megatron", "nemo", "unsloth", "vllm", "sglang", "mlx")


def _compiled_loss(job: Job) -> bool:
    """Whether the compiler takes the loss in, with torch 2.6 and later.

    torchtitan compiled it from October to December 2024 (commit e10cb94 to e8977b0), and again since 2 April 2025
    (commit bbb1b61, "refactor train_spec.loss_fn").
    """
    if not job.compile or job.runs_on(*_BY_LAYER):
        return False
    torch, month = job.versions.get("torch"), _month(job)
    return not (torch and version(torch) < (2, 6)) and (not month or month >= _LOSS_COMPILED)


def _month(job: Job) -> int:
    """The first month that a job's text on versions names, counted from year 0; 0 where it names none."""
    found = _MONTH.search(_versions_text(job))
    return int(found[1]) * 12 + int(found[2]) if found else 0


def _versions_text(job: Job) -> str:
    return str(job.extra.get("versions_text") or "")


def transformers_of(job: Job) -> tuple[int, ...]:
    """The release of transformers, empty where it is not stated."""
    stated = job.versions.get("transformers")
    if stated:
        return version(stated)
    found = _TRANSFORMERS.search(_versions_text(job))
    return version(found[1]) if found else ()


def loss_copies(job: Job, rows: int, kind: str) -> str:
    """How the loss copies the logits, for ``rows`` sequences of a model of this ``kind``."""
    if is_litgpt(job):  # ``chunked_cross_entropy`` and the benchmarks built on it stay in the logits' dtype
        return "plain"
    if is_mlx(job):  # ``default_loss`` shifts the tokens, and takes the log-sum-exp in the logits' dtype
        return "script"
    if job.runs_on("unsloth"):
        return "over"  # ``kernels/cross_entropy_loss.py`` reads 16-bit logits and writes their gradient over them
    if own := script_loss(job):
        return own if job.loop is None or job.loop.loss_autocast is not False else f"{own} outside"
    if _compiled_loss(job):
        return "compiled"
    for name, style in _LOOPS.items():
        if job.runs_on(name):
            return style
    known = transformers_of(job)
    found = _upcast(known, rows, kind)
    if found == "plain" or not fast_loss(job):
        return found
    # Since 4.46 the loss function does the upcast, and its caller keeps the 16-bit logits meanwhile.
    return "in-place" if known and known < (4, 46) else "in-place, held"


def preference_style(job: Job) -> str:
    """Whose trainer computes a preference loss: :mod:`oomkb.memory.preference_losses` says what each of them does.

    LLaMA-Factory handed the labels on to the model up to 0.9.3; TRL picks row by row since 0.12 (``PR 2153``) and
    projects in tiles since 1.15 (``chunked``), but for ORPO and CPO, whose trainers are experimental.
    """
    if job.objective == "distill":
        return _divergence(job)
    if job.runs_on("trl", "axolotl", "handbook"):
        known = job.release("trl")
        if known >= (1, 15) and job.objective not in ("orpo", "simpo"):
            return "chunked"
        if job.objective == "grpo":
            return ""
        if not known or known >= (1,):
            return "trl"
        return "trl-0" if known >= (0, 12) else "trl-gather"
    if job.objective == "grpo":
        return ""
    return "factory" if job.release("llamafactory") >= (0, 9, 4) else "factory-labels"


def has_mixer_kernels(job: Job) -> bool:
    """Whether mixers that are not attention run in kernels: in programs of their own, or with their packages.

    axolotl's recipes for such models install flash-linear-attention; its published peaks of Qwen3.5 (``unseen2.jsonl``)
    are those of kernels. NeMo Automodel's layers import theirs (``models/nemotron_v3/layers.py``: mamba-ssm).
    """
    own = job.runs_on(*OWN_MODELS, "axolotl", "automodel")
    return own or any(name.replace("_", "-").lower() in _MIXER_PACKAGES for name in job.versions)


def divides(job: Job) -> str:
    """How TRL divides the logits by the temperature (``trainer/grpo_trainer.py``, ``rloo_trainer.py``).

    ``in-place``: 1.0 to 1.9, where backward pays with copies of all of them. ``copy``: a second tensor, before that and
    after (0.18 to 0.29, 1.10 to 1.13). ``kernel``: Triton's, 1.14, which keeps the logits alone.
    """
    known = job.release("trl")
    if job.runs_on("verl") and job.packing and (job.attention or "").startswith("flash"):
        return _packed_style(job)
    if not job.runs_on("trl"):
        return "in-place" if job.runs_on("swift") else ""
    if job.objective != "grpo" or not known or (1,) <= known < (1, 10):
        return "in-place"
    return "copy" if known < (1, 14) else "kernel"


def _packed_style(job: Job) -> str:
    """``packed``, then how entropy is computed, and whether logits are divided by a temperature."""
    stated = job.extra
    words = ["packed"]
    if stated.get("temperature", 1) not in (1, 1.0):
        words.append("scaled")
    if stated.get("calculate_entropy") or stated.get("entropy_coeff"):
        chunk = stated_count(job, "entropy_from_logits_chunk_size") or _ENTROPY_CHUNK
        tokens = (job.micro_batch or 1) * (job.seq_len or chunk)
        last = tokens % chunk or chunk  # is the first in backward; what it leaves makes room for the others
        rows = round(max(last, chunk - 0.4 * last))
        chunked = f"rows={rows}" if tokens > chunk else "rows=T"
        how = chunked if stated.get("entropy_from_logits_with_chunking") else "entropy"
        words.append("again" if stated.get("entropy_checkpointing") else how)
    return " ".join(words)


def _divergence(job: Job) -> str:
    """TRL's ``beta`` is 0.5 unless stated (``GKDConfig``); elsewhere forward KL is usual."""
    stated = job.extra.get("gkd_beta")
    beta = stated if isinstance(stated, int | float) else 0.5 if job.runs_on("trl") else 0.0
    return "divergence" if beta <= 0 else "divergence-reverse" if beta >= 1 else "divergence-mixed"


def chunk_target(job: Job) -> float:
    """GiB at which unsloth's loss aims with a chunk: 1 from 2025.8.5, then half of what is free, 4 at most (2026.7)."""
    known = job.release("unsloth")
    if not job.runs_on("unsloth") or (known and known < (2025, 8, 5)):
        return 0.0
    return 1.0 if known and known < (2025, 9, 1) else 4.0


def loads_in_16_bits(job: Job, sharding: str) -> bool:
    """fms-hf-tuning loads in ``torch_dtype`` (bfloat16); accelerate upcasts flat parameters of FSDP, nothing else."""
    return job.runs_on("fms-hf-tuning") and sharding in ("none", "ddp") and job.autocast in ("bf16", "fp16")


def fast_loss(job: Job) -> bool:
    """fms-acceleration's fused kernels (``kernels/unsloth/cross_entropy_loss.py``): gradients replace the logits."""
    return job.runs_on("fms-acceleration", "foak")


def _liger(job: Job) -> bool:
    """Whether Liger's kernels are patched in, as NeMo Automodel does unless set otherwise."""
    stated = job.extra.get("use_liger_kernel")
    if isinstance(stated, bool):
        return stated
    fused = job.fused_ce and job.objective in ("sft", "pretrain") and preference_style(job) != "chunked"
    return job.runs_on("automodel") or (bool(fused) and job.runs_on(*_LIGER))


def lacks_kernel(job: Job, dtype: str) -> bool:
    """Whether SDPA has none but its written-out kernel on a card of AMD.

    torch for ROCm has fused ones since it was built with AOTriton: 2.3 for 16 bits, 2.5 for fp32
    (``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp``, ``check_prefer_...`` under ``USE_ROCM``).
    """
    torch = job.release("torch")
    old = bool(torch) and torch < ((2, 5) if dtype == "fp32" else (2, 3))
    return old and _AMD.search(job.gpu or "") is not None


def fused_kernels(job: Job, adapters: bool, sharding: str) -> str:
    """Whose kernels take in what surrounds the matrix products.

    unsloth patches its models with its own (``unsloth/kernels/fast_lora.py``); axolotl switches the same on by itself
    or as ``lora_mlp_kernel`` says. ``use_liger_kernel`` of the Trainer brings Liger's norms, gates and rotary
    embeddings with its loss.
    """
    if adapters and not (job.lora and job.lora.dora):
        stated = job.extra.get("lora_mlp_kernel")
        usual = job.runs_on("axolotl") and sharding not in ("fsdp", "hsdp") and _axolotl_fuses(job)
        if job.runs_on("unsloth") or (usual if stated is None else stated is True):
            return "adapters"
    if _liger(job) or is_mlx(job):  # ``mx.fast.rms_norm`` and ``rope``, and a compiled gate, keep their inputs alone
        return "liger"
    # Under a checkpoint the compiler's partitioner has nothing to choose: published peaks are those of eager layers.
    return "compile" if job.compile and not job.grad_ckpt else ""


def _axolotl_fuses(job: Job) -> bool:
    """Whether axolotl takes its own LoRA kernels (``check_auto_enable_lora_kernels``).

    Since 0.9.2 (PR 2589, April 2025), never in preference training or over an 8-bit base; with dropout not before 0.16
    (PR 2655 of May 2025, PR 3528 of March 2026).
    """
    if job.objective not in (None, "sft", "pretrain") or job.quant == "int8":
        return False
    known = job.release("axolotl")
    month = _month(job)
    first, taken = ((0, 16), 2026 * 12 + 4) if job.lora and job.lora.dropout else ((0, 9, 2), 2025 * 12 + 5)
    return known >= first if known else not month or month >= taken


def checkpoints_parts(job: Job, kind: str) -> bool:
    """NeMo Automodel checkpoints the parts of a layer (``apply_submodule_checkpointing``) unless it compiles them.

    Layers that come from transformers as they are, it checkpoints whole since 8 July 2026 (PR 2840, release 0.5).
    """
    if not job.runs_on("automodel") or job.compile:
        return False
    known, month = job.release("automodel"), _month(job)
    before = known < (0, 5) if known else 0 < month < 2026 * 12 + 7
    return before or kind in _AUTOMODEL_LAYERS or "moe" in kind


def is_litgpt(job: Job) -> bool:
    """Whether lit-gpt runs the job, under either of its names."""
    return job.runs_on("lit-gpt", "litgpt")


def is_mlx(job: Job) -> bool:
    """Whether the run is one of MLX, Apple's arrays."""
    return job.runs_on("mlx")


def affine(job: Job, quant: str) -> str:
    """MLX's own storage, where a base in 4 or 8 bits is one of its checkpoints (``nn/layers/quantized.py``)."""
    return {"nf4": "affine-4bit", "int8": "affine-8bit"}.get(quant, quant) if is_mlx(job) else quant


def quant_keeps(job: Job, quant: str) -> bool:
    """Bitsandbytes before 0.43.2 (July 2024, PR 1270) kept the input of every 4-bit product on its node.

    A reentrant checkpoint runs forward without a graph, so that nothing stays; ms-swift 1 made all of them
    non-reentrant (``swift/llm/utils/model.py``), where only autograd's own saved tensors are recomputed.
    """
    if quant == "int8":  # MatMul8bitLt still does (``ctx.tensors``, 0.50.2)
        return not job.grad_ckpt
    if not quant.startswith("nf4") or job.runs_on("torchtune"):
        return False
    found = _BITSANDBYTES.search(_versions_text(job))
    stated = job.versions.get("bitsandbytes") or (found[1] if found else "")
    swift = bool(_SWIFT_1.search((job.framework or "").lower()) or job.versions.get("ms-swift", "").startswith("1."))
    old = version(stated) < (0, 43, 2) if stated else swift
    return old and (not job.grad_ckpt or swift)


def outlives(job: Job, quant: str) -> bool:
    """What hangs on the nodes of one micro-batch is alive through the next one's forward pass.

    ``loss`` in lit-gpt's ``fit`` (``finetune/lora.py``) holds the graph until it is the next one's name. Its recipes
    put the longest sample first, and before that there is none: a job whose length is that sample's says so.
    """
    return is_litgpt(job) and quant_keeps(job, quant) and not job.extra.get("longest_sample_first")


def quantizes_whole(job: Job, quant: str) -> bool:
    """Before 0.2 torchao (commit 6081796, May 2024) compared every element of a matrix with all 16 values at once.

    What that leaves cached is reserved to the run's end: 9.1 GB for Llama-2 7B, whose weights are 4 (torchtune's
    ``docs/source/tutorials/qlora_finetune.rst``). torchtune asks for 0.2 and more since its 0.2.
    """
    known = job.release("torchtune")
    torchao = job.release("torchao")
    if not job.runs_on("torchtune") or not quant.startswith("nf4"):
        return False
    return torchao < (0, 2) if torchao else known < (0, 2)


def upcast_adapters(job: Job, adapters: bool, quant: str, sharding: str, autocast: str) -> bool:
    """Accelerate 0.30.0 (PR 2674, ``Accelerator.prepare_model``): flat parameters that need gradients go to fp32.

    A flat parameter needs them as soon as an adapter is in it. Under FSDP2 the whole model went to fp32 from 1.6.0 on
    (``fsdp2_prepare_model``), from 1.14.0 (PR 3985) only what is trained.
    """
    if not adapters or quant != "none" or not _accelerated(job, sharding, autocast):
        return False
    if sharding == "fsdp2":
        known = job.release("accelerate")
        return bool(known) and known < (1, 14)
    return True


def upcast_trained(job: Job, adapters: bool, sharding: str, autocast: str) -> bool:
    """The same of a model that is trained as a whole: 16-bit weights become fp32 shards under mixed precision."""
    return not adapters and _accelerated(job, sharding, autocast)


def _accelerated(job: Job, sharding: str, autocast: str) -> bool:
    """Whether accelerate wraps the model for mixed precision in a release that upcasts."""
    if sharding not in ("fsdp", "fsdp2", "hsdp", "shard-grad-op") or autocast not in ("bf16", "fp16"):
        return False
    if not job.framework or job.runs_on(*OWN_MODELS, "fsdp_qlora", "pytorch", "xtuner", "verl"):
        return False
    known = job.release("accelerate")
    return not known or known >= ((1, 6) if sharding == "fsdp2" else (0, 30))


def _upcast(transformers: tuple[int, ...], rows: int, kind: str) -> str:
    """Before 4.49 the shifted logits were a second fp32 copy where there was more than one sequence.

    Before 4.49 the older families computed their own loss, in the model's dtype.
    """
    if kind in _REMOTE_LOSS or (transformers and transformers < (4, 49) and kind in _PLAIN_LOSS):
        return "plain"
    return "shift" if transformers and transformers < (4, 49) and rows > 1 else "once"


def upcasts_frozen(job: Job, quant: str) -> bool:
    """Whether norms, embedding and head of a quantized model were upcast to fp32: by scripts of which no more is known
    (``prepare_model_for_kbit_training``), and by TRL up to PR 4081 and 4577 unless weights were sharded (PR 1416).
    """
    stated = job.loop.kbit_prepared if job.loop else None
    plain = (job.framework or "").lower() == "transformers" and "framework" not in job.assumed
    script = plain and "grad_ckpt" in job.assumed and not job.planned
    own = script or (job.runs_on("trl") and () < job.release("trl") < (0, 24))
    return (own and job.sharding not in GATHERED if stated is None else stated) and not quant.startswith(_NOT_UPCAST)
