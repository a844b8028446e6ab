"""Weights, gradients and optimizer states on one GPU, and what of them lies in host memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.families.family import buffer_bytes
from oomkb.memory.offload import offloaded_bytes, offloaded_share
from oomkb.memory.optimizers import OPTIMIZERS, Optimizer, step_temporary_bytes
from oomkb.memory.ranks import FSDP, GATHERED
from oomkb.memory.setting import Setting
from oomkb.memory.shape import Linear, ModelShape

_RANK: Final = 128
"""GaLore's and APOLLO's rank where none is stated (their ``optim_args`` in transformers)."""
# Bytes per quantized element. bitsandbytes: 4 bits and one fp32 scale per 64; double quantization: one byte per 64 and
# one fp32 per 64 x 256 (arXiv 2305.14314, section 3). GPTQ and AWQ at group size 128: fp16 scale and 4-bit zero.
QUANT_BYTES: Final[Mapping[str, float]] = {
    "nf4": 0.5 + 4 / 64,
    "nf4-double": 0.5 + 1 / 64 + 4 / (64 * 256),
    "int8": 1 + 4 / 4096,
    "fp8": 1.0,
    "gptq-int4": 0.5 + 2.5 / 128,
    "gptq-int8": 1 + 3 / 128,
    "awq-int4": 0.5 + 2.5 / 128,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,  # one scale of 8 bits for 16 (compressed-tensors ``FP4A16``, ModelOpt ``NVFP4``)
    "affine-4bit": 0.5 + 4 / 64,  # MLX: scale and bias in 16 bits for 64 (``nn/layers/quantized.py``)
    "affine-8bit": 1 + 4 / 64,
    "int4-experts": 0.5 + 2 / 32,  # one bf16 scale for 32 (moonshotai/Kimi-K2-Thinking, config.json)
}
GGUF_BYTES: Final[Mapping[str, float]] = {
    name: bits / 8
    for name, bits in (
        *(("iq1_s", 1.69), ("iq1_m", 1.86), ("iq2_xxs", 2.13), ("iq2_xs", 2.37), ("iq2_s", 2.48), ("iq2_m", 2.70)),
        *(("q2_k", 2.94), ("iq3_xxs", 3.07), ("iq3_xs", 3.27), ("q3_k_s", 3.44), ("iq3_m", 3.58), ("q3_k_m", 3.84)),
        *(("q3_k_l", 4.19), ("iq4_xs", 4.32), ("q4_0", 4.5), ("q4_k_s", 4.54), ("q4_k_m", 4.80), ("q4_1", 5.0)),
        *(("q5_k_s", 5.50), ("q5_k_m", 5.65), ("q6_k", 6.56), ("q8_0", 8.5)),
    )
}
"""Bytes of a weight of the layers in the mixes of llama.cpp: bits of the 8B in ``tools/quantize/README.md``, less its
embedding and output."""
_GGUF_HEAD: Final = 6.5625 / 8
"""Bytes of a weight of the output, Q6_K in every mix below 8 bits (llama.cpp ``src/llama-quant.cpp``)."""
_GGUF_BLOCK: Final = 256
_GGUF_UNEVEN: Final = 1.2 / 8
"""More bytes of a weight in rows that are no multiple of a block: Q4_K gives way to Q5_0, Q6_K to Q8_0 (the same file;
the files of Qwen2.5 72B, whose rows of 29,568 are none, are larger by as much)."""
_EXPERTS_ONLY: Final = frozenset({"mxfp4", "int4-experts"})
"""Checkpoints whose attention stays in 16 bits (openai/gpt-oss-20b ``modules_to_not_convert``)."""
_TWO_MOMENTS: Final = 1.5
"""Bytes an element of block-wise states: one moment takes little more than one byte, two little more than two."""
_SHARDED_GRADS: Final = GATHERED | {"zero2"}
_SHARDED_STATES: Final = _SHARDED_GRADS | {"zero1", "distributed-optimizer"}
_NO_TRAINER: Final = ("torchtune", "titan", "litgpt", "lit-gpt", "megatron", "nemo", "xtuner", "accelerate", "fsdp")


def moment_bytes(s: Setting, shape: ModelShape, kind: Optimizer, each: float, stated: float) -> float:
    """All states of ``stated`` trained elements before sharding; ``each``: bytes of an element in their dtype."""
    full, split = kind.moments * each + kind.fixed, s.tp * s.pp
    if kind.factored:
        width = each if kind.factored < 0 else kind.factored
        sides = stated / max(1, s.rank) if s.adapters else _sides(shape) / split
        return width * sides
    if s.adapters or not (kind.matrices_only or kind.low_rank):
        return full * stated
    inside = min(stated, sum(m * n * count for m, n, count in _matrices(shape)) / split)
    if kind.matrices_only:
        return full * inside + 2 * each * (stated - inside)
    # A projection is kept in the gradients' dtype; of fp32 gradients it is a view that keeps the whole factor alive.
    whole = kind.decomposes and each == 4
    low = kept = 0
    for m, n, count in _matrices(shape):
        rank, short = min(s.rank or _RANK, m, n), min(m, n)
        low += rank * max(m, n) * count
        kept += short * (short if whole else rank) * count
    return full * (stated - inside) + (full * low + each * kept) / split


def step_bytes(s: Setting, shape: ModelShape, kind: Optimizer, *, each: float, trained: float, largest: float) -> float:
    """What one step allocates beside weights, gradients and states, for one rank's share."""
    found = step_temporary_bytes(s.optimizer, s.optimizer_impl, each=each, trained=trained, largest=largest)
    if kind.foreach and s.optimizer_impl == "single" and not s.adapters:
        found = max(found, min(_pair(s, shape, kind.single), 2 * trained) * each)
    if s.adapters or not (kind.matrices_only or kind.low_rank):
        return found
    m, n = max(((m, n) for m, n, _ in _matrices(shape)), key=lambda sides: sides[0] * sides[1], default=(0, 0))
    size, short = m * n / s.tp, min(m, n)
    if kind.matrices_only:  # Newton-Schulz in bf16: the update, two iterates, the Gram matrix and its square
        rest = max(0.0, trained - sum(m * n * count for m, n, count in _matrices(shape)) / s.tp / s.pp / s.shards)
        beside = step_temporary_bytes("adamw", s.optimizer_impl, each=each, trained=rest, largest=largest)
        return max(beside, (each + 4) * size + 4 * short**2)
    if kind.decomposes:  # torch.linalg.svd: the gradient in fp32, both factors, and the update before
        return max(found, (each + (8 if each < 4 else 4)) * size + 8 * short**2)
    return max(found, 5 * each * size)


def _pair(s: Setting, shape: ModelShape, single: float) -> float:
    """The same for two matrices in a row: the loop over parameters still names the last one's temporary."""
    most = 0.0
    for layer in shape.layers:
        for a, b in pairwise(layer.linears):
            if not a.bias and "router" not in (a.part, b.part):
                most = max(most, _of_one(a) + single * _of_one(b))
    return most / s.tp / (s.shards if s.sharding in GATHERED or s.sharding in ("zero1", "zero2") else 1)


def _of_one(m: Linear) -> int:
    """Elements of one parameter: all experts' are one."""
    return m.inputs * m.outputs * (1 if m.module else m.count)


def _matrices(shape: ModelShape, *, stacked: bool = False) -> Iterator[tuple[int, int, int]]:
    """Inputs, outputs and number of the layers' matrices; ``stacked``: those that lie in one parameter, too."""
    for layer in shape.layers:
        for m in layer.linears:
            if stacked or m.part != "expert":
                yield m.inputs, m.outputs, m.count * layer.count


def _sides(shape: ModelShape) -> int:
    """Rows and columns of all matrices, tables included, and all elements of vectors."""
    d, sides, inside = shape.dims, 0, 0
    for m, n, count in _matrices(shape, stacked=True):
        sides += (m + n) * count
        inside += m * n * count
    tables = 1 if d.tied else 2
    vectors = shape.text_params - inside - tables * d.vocab * d.embed_width - d.position_rows * d.hidden
    return sides + tables * (d.vocab + d.embed_width) + d.position_rows + max(0, vectors)


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Bytes on one GPU, and in the host memory of one machine."""

    weights: float
    adapters: float
    gradients: float
    """All gradients of this GPU, as they stand before the optimizer's step."""
    optimizer: float
    masters: float
    buckets: float
    """Reduction buckets that stay."""
    bucket: float
    """Those that are made for backward and go after it."""
    reduced: float
    """Gradients as they are applied: ZeRO-1 leaves each rank its partition after backward."""
    step: float
    """Temporaries of the step."""
    host: float
    host_most: float
    """With what pinned buffers take beyond their size, where it is not known that none is pinned."""
    nvme: float = 0.0
    """On the drives of one machine."""
    paged: float = 0.0
    """Optimizer states outside the caching allocator."""
    trainable: int = 0


def rank_params(s: Setting, shape: ModelShape) -> tuple[float, float]:
    """(linear, other) elements on the fullest GPU after tensor, pipeline and expert parallelism."""
    experts, more = shape.expert_params, 1 / s.attention_tp - 1 / s.tp  # what data-parallel attention keeps whole
    linear = (shape.linear_params - experts) / s.tp + more * shape.attention_params
    linear += padded(s, shape) * experts / (s.ep * s.etp)
    inner, ends = shape.layer_params - shape.linear_params, shape.text_params - shape.layer_params
    if s.pp > 1:
        ends = max(shape.embed_params, shape.head_params or shape.embed_params)
    # Engines cut the tower as they cut the decoder (vLLM ``models/qwen2_5_vl.py``); trainers leave it whole.
    vision = shape.vision.params / (1 if s.training else s.tp) if shape.vision else 0
    return linear / s.pp, inner / s.pp + ends / s.tp + more * shape.embed_params + vision


def padded(s: Setting, shape: ModelShape) -> float:
    """How much larger shards of fused experts are for being cut along the experts (FSDP2 cuts the first dimension).

    64 ranks hold one of 60 experts each, or none: the fullest one holds 64/60 of its share, of 8 experts eight times.
    """
    experts, shards = shape.dims.experts / s.ep, max(1, s.shards // s.ep)
    if s.sharding != "fsdp2" or experts < 2:
        return 1.0
    return math.ceil(experts / shards) * shards / experts


def weight_bytes(s: Setting, shape: ModelShape, held: float, of_rank: tuple[float, float] | None = None) -> float:
    """Weights on one GPU before data-parallel sharding, at ``held`` bytes an element where they are not quantized.

    :param of_rank: what :func:`rank_params` gives, where that is known.
    """
    linear, other = of_rank or rank_params(s, shape)
    if s.quant in GGUF_BYTES:
        return _gguf_bytes(s, shape) + (shape.vision.params if shape.vision else 0) * held
    bits = QUANT_BYTES.get(s.quant)
    if bits is None:
        return (linear + other) * held
    if s.quant.startswith("affine"):  # embedding and head as well
        return (linear + other) * bits
    if shape.dims.experts and s.quant in _EXPERTS_ONLY:
        experts = shape.expert_params / (s.ep * s.etp) / s.pp
        return experts * bits + (linear - experts + other) * held
    if shape.dims.experts and s.transformers >= (5,) and s.quant.startswith(("nf4", "int8")):
        # bitsandbytes replaces linear modules; experts kept in one parameter are none.
        experts = shape.expert_params / s.ep / s.pp
        return (linear - experts) * bits + (experts + other) * held
    return linear * bits + other * held


def _gguf_bytes(s: Setting, shape: ModelShape) -> float:
    """A file of llama.cpp on the fullest card: the embedding stays with the processor, the output counts as one layer.

    ``src/llama-model.cpp``: ``dev_input`` is the CPU, layers and output are cut into as many parts as there are cards.
    """
    layers, parts = shape.layer_count, s.pp
    body, head = layers_and_output(s, shape, GGUF_BYTES[s.quant])
    most = -(-(layers + 1) // parts)
    return max(most * body / layers if parts > 1 else 0.0, (layers - most * (parts - 1)) * body / layers + head) / s.tp


def layers_and_output(s: Setting, shape: ModelShape, each: float) -> tuple[float, float]:
    """Bytes of all layers and of the output of a llama.cpp file, at ``each`` bytes a weight of the layers."""
    matrices = [(m, layer.count * m.count) for layer in shape.layers for m in layer.linears]
    uneven = sum(n * m.inputs * m.outputs for m, n in matrices if m.inputs % _GGUF_BLOCK) if "_k" in s.quant else 0
    body = (shape.text_params - shape.embed_params - shape.head_params) * each + uneven * _GGUF_UNEVEN
    return body, (shape.head_params or shape.embed_params) * max(each, _GGUF_HEAD)


def states_of(s: Setting, shape: ModelShape) -> States:
    """All states of one training run."""
    linear, other = rank_params(s, shape)
    total = linear + other
    trainable = (
        shape.lora_params(s.targets, s.rank, dora=s.dora, experts=s.expert_adapters) if s.adapters else shape.params
    )
    trained = trainable / s.tp / s.pp if s.adapters else total
    if s.images.frozen and shape.vision:  # the tower gets neither gradients nor adapters
        still = shape.vision.params
        if s.adapters:
            still = shape.vision.lora_params(s.rank) if s.targets == "all-linear" else 0
        trained, trainable = trained - still, trainable - still
    if s.few_layers:
        trained = trained * min(1.0, s.trained_layers / max(1, shape.layer_count))
        trainable = int(trainable * min(1.0, s.trained_layers / max(1, shape.layer_count)))
    engine = s.deepspeed
    each = float(s.held_bytes if engine else s.adapter_bytes if s.adapters else s.param_bytes)
    held = 4.0 if s.upcast_adapters else float(s.held_bytes if engine else s.param_bytes)
    base, kind = _shards(s, shape, total), OPTIMIZERS[s.optimizer]
    shards = s.shards if s.adapters else base
    split_w, split_g, split_o = (
        shards if s.sharding in kinds else 1 for kinds in (GATHERED, _SHARDED_GRADS, _SHARDED_STATES)
    )
    weights = weight_bytes(s, shape, held, (linear, other)) / (base if s.sharding in GATHERED else 1) + buffer_bytes(
        shape.dims
    )
    tables = s.tables * shape.dims.vocab * shape.dims.embed_width / s.tp
    whole = tables * float(s.held_bytes if engine else s.param_bytes)
    adapters = (trained * each + whole) / split_w if s.adapters else 0.0
    stated = trained * s.state_fraction
    # BAdam's ``BlockOptimizer`` (1.4) keeps fp32 copies of the active block, and gives its optimizer fp32 gradients.
    block = s.method == "badam"
    # Megatron updates fp32 weights in place (``core/optimizer/optimizer.py``: ``FP32Optimizer``).
    master_each = 4.0 if engine or (s.megatron and s.param_bytes < 4) or block else 0.0
    state_each = 4.0 if master_each else each
    optimizer = moment_bytes(s, shape, kind, state_each, stated)
    optimizer = (optimizer + _wide_embedding(s, shape, stated, kind.fixed)) / split_o
    optimizer += (whole * kind.moments + tables * kind.fixed) / split_o if not engine else 8 * tables / split_o
    masters = (stated + tables) * master_each / split_o
    grad_each = 4.0 if s.megatron else each
    keeps = kind.keeps_grads and (s.grads != "layer" or s.sharding in FSDP)
    gradients = (trained * grad_each + whole if keeps else 0.0) * s.state_fraction
    wide, largest = max(each, master_each) if block else each, _largest(s, shape) / split_o
    step = step_bytes(s, shape, kind, each=wide, trained=stated / split_o, largest=largest)
    if kind.foreach and s.optimizer_impl == "foreach":
        step += kind.foreach * whole / split_o
    trained, trainable = trained + tables, trainable + int(tables * s.tp)
    if engine:
        step = _deepspeed_step(s, trained / split_o)
    on_gpu = "optimizer" not in s.offload
    moved_share = offloaded_share(s.job)
    away = not on_gpu and (engine or s.by_fsdp)  # where gradients are applied
    # Adapters are parameters like all others; under FSDP1 their gradients' shards take their place in backward.
    beside = adapters if s.by_fsdp and s.sharding == "fsdp2" else 0.0
    applied = 4.0 if engine or s.megatron else each
    host, host_most = offloaded_bytes(
        s,
        shape,
        states=0.0 if on_gpu else moved_share * (optimizer + masters + applied * trained / split_o),
        weights=weights + beside if "param" in s.offload else 0.0,
        partition=trained / split_o,
    )
    moved = (0.0 if on_gpu else optimizer + masters) + (weights if "param" in s.offload else 0.0)
    if not on_gpu:
        optimizer, masters, step = ((1 - moved_share) * size for size in (optimizer, masters, step))
    return States(
        weights=0.0 if "param" in s.offload else weights,
        adapters=adapters - beside,
        gradients=0.0 if away else gradients / split_g,
        optimizer=0.0 if kind.paged else optimizer,
        masters=masters,
        buckets=trained * each if s.sharding == "ddp" and s.dp > 1 else 0.0,
        bucket=_bucket(s, trained, each),
        reduced=0.0 if away else 4 * stated if block else gradients / (split_o if s.sharding == "zero1" else split_g),
        step=step,
        host=host,
        host_most=host_most,
        nvme=moved * s.gpus_per_node if s.job.nvme_offload else 0.0,
        paged=optimizer if kind.paged else 0.0,
        trainable=trainable,
    )


def _shards(s: Setting, shape: ModelShape, total: float) -> float:
    """Ranks over which what this GPU holds is sharded, in the mean over its elements.

    Under expert parallelism fewer ranks hold the same experts than hold the same dense weights: ``dp x cp x tp`` over
    ``ep x etp`` (Megatron-LM ``core/parallel_state.py``, expert data parallelism).
    """
    shards = float(s.shards)
    if shards <= 1 or s.ep == 1:
        return shards
    experts = shape.expert_params / (s.ep * s.etp * s.pp)
    alike = max(1.0, shards * s.tp / (s.ep * s.etp))
    return total / ((total - experts) / shards + experts / alike)


def _largest(s: Setting, shape: ModelShape) -> float:
    """Elements of the largest trained parameter; all experts of a layer are one where they are kept in one."""
    if s.adapters:
        d = shape.dims
        if s.expert_adapters == "fused":  # gate and up share a factor of twice the rank
            return 2 * s.rank * d.experts * max(d.hidden, 2 * d.expert_ffn)
        return s.rank * max(d.ffn, d.hidden)
    return _largest_matrix(shape, s.ep) / s.tp


@lru_cache(maxsize=1024)
def _largest_matrix(shape: ModelShape, split: int) -> float:
    """:param split: cards that share the experts."""
    matrices = (
        m.inputs * m.outputs * (m.count / split if m.part == "expert" and not m.module else 1)
        for layer in shape.layers
        for m in layer.linears
    )
    return max(float(shape.dims.vocab * shape.dims.embed_width), *matrices)


def _wide_embedding(s: Setting, shape: ModelShape, stated: float, fixed: float) -> float:
    """The Hugging Face Trainer keeps the embeddings' states of bitsandbytes' 8-bit optimizers in 32 bits.

    ``create_optimizer`` of ``trainer.py``, 4.19 to 5.23 (``register_module_override``).
    """
    if not s.optimizer.endswith("_8bit") or s.adapters or s.method not in ("full", "pretrain"):
        return 0.0
    if any(word in s.framework for word in _NO_TRAINER):
        return 0.0
    moments = 2 if fixed > _TWO_MOMENTS else 1
    return min(stated, shape.embed_params / s.tp) * (4 * moments - fixed) if fixed else 0.0


def _deepspeed_step(s: Setting, partition: float) -> float:
    """fp32 copies of the gradients that are being applied: the partition, or one sub-group of it under stage 3."""
    if s.sharding == "zero3":
        return 4.0 * min(partition, s.bucket("sub_group_size", 1e9))
    return 4.0 * partition


def _bucket(s: Setting, trained: float, each: float) -> float:
    """ZeRO-1's and -2's, allocated whole, whatever is trained (DeepSpeed 0.19, ``zero/stage_1_and_2.py``,
    ``setup_buckets``). Frameworks on top of DeepSpeed state sizes of their own for what they leave to it.
    """
    if s.sharding not in ("zero1", "zero2"):
        return 0.0
    size = s.bucket("reduce_bucket_size", 5e8 if s.framework.startswith("deepspeed") else min(5e8, trained))
    return size * each * (2 if s.bucket("overlap_comm", 0.0) else 1)
