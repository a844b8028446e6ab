"""What the scores of a long text would take, where no engine with fused attention computes them."""

from __future__ import annotations

import re
from typing import Final

from oomdoc.diagnosis.rules._compared import longest_told
from oomdoc.diagnosis.view import View
from oomdoc.intake.sieve import alternatives
from oomkb.units import GIB, MIB

__all__ = [
    "buffer_of_scores",
    "round_request",
    "scores_bytes",
    "scores_requested",
    "scores_told",
    "training_scores_bytes",
    "unfused",
]

_ENGINES: Final = alternatives(
    r"vllm|sglang|lmdeploy|tensorrt|trt-?llm|llama[._-]?cpp|llama-server|ollama|lm ?studio|\btgi\b"
    r"|text-generation-inference|exllama|xinference|ktransformers|gguf|flash_attention_2|unsloth|llama_decode|\bmlx\b"
)
"""Programs whose attention keeps no scores, and the option that takes a fused kernel."""
_FUSED: Final = re.compile(
    r"unsloth|\bsdpa\b"
    r"|(?<!without )(?<!no )(?:flash[ _-]?att\w{0,9}|xformers)(?![^\w\n]{1,4}(?:false|off|disabled|0\b))"
)
_OLD_CARDS: Final = re.compile(
    r"\b(?:tesla )?(?:v100s?|t4|p100|p40|rtx ?20[678]0|20[678]0 ?ti|gtx ?1\d{3}|1080 ?ti?|titan)\b"
)
_OLD_MESSAGE: Final = re.compile(
    r"\(gpu \d{1,2}; [\d.]{1,8} [gm]ib total capacity; [\d.]{1,8} [gmk]?i?b?(?:ytes)? already allocated"
)
"""PyTorch's words up to 2.0; from 2.1 on the device "has a total capacity". Fused attention came to transformers 4.36,
and is used there from 2.1.1 on."""
_OWN_FUSED: Final = re.compile(r"\blit-?(?:gpt|llama|parrot)\b|nano-?gpt|megatron")
_OLD_SCRIPTS: Final = alternatives(
    r"\brun_(?:language_modeling|lm_finetuning|squad|classifier)\.py|pytorch[_-](?:transformers|pretrained[_-]bert)"
    r"|fairseq|max-source-positions|tensor2tensor|\bt2t[-_]|opennmt"
)
"""Programs of the years before fused attention, and an option that only one of them has."""
_WHOLE_LENGTH: Final = re.compile(r"\brun_(?:language_modeling|lm_finetuning|clm(?:_no_trainer)?)\.py")
"""Language modelling scripts that cut their data into blocks as long as the model takes, of 1,024 tokens at most."""
_LONGEST_BLOCK: Final = 1_024
_LEAST_HEADS: Final = 12
_COPIES_BYTES: Final = 6
"""Raw scores in 16 bit and their softmax in 32 bit."""
_HEADS: Final = 32
"""Of a model of 7B, where the model is not known."""
_A_CARD: Final = 80 * GIB
_NARROW: Final = frozenset({"fp16", "bf16", "float16", "bfloat16"})
_MUCH: Final = 0.4
_MUCH_KEPT: Final = 0.3
_PROGRAM: Final = 4_000
_AMOUNT: Final = re.compile(
    r"(?:alloc\w{0,8}|buffers?|tensors?|矩阵|张量|申请)[^\n]{0,40}?(?<![\d.])(\d{1,4}(?:\.\d{1,2})?) ?gi?b\b"
)
_LEAST_TOLD: Final = 4
_CLOSE: Final = 0.05
"""24k tokens are 24,000 or 24,576, and 37 GB may be GiB."""
_LLAMA: Final = {
    "context": re.compile(r"\bn_ctx {0,8}= {0,4}(\d{3,8})\b"),
    "batch": re.compile(r"\bn_ubatch {0,8}= {0,4}(\d{1,6})\b"),
    "heads": re.compile(r"\bn_head {0,8}= {0,4}(\d{1,4})\b"),
}
_UBATCH: Final = 512
"""What llama.cpp takes at once where it is not told otherwise."""
_LLAMA_FUSED: Final = re.compile(r"flash_attn {0,8}= {0,4}(?:1|on|enabled)\b|flash attention (?:is )?enabled")
_MOST_OF_IT: Final = 0.6


def scores_bytes(view: View) -> int | None:
    """Scores of one layer over the longest text that is told, if they take much of the card and are not fused away."""
    if view.training or _ENGINES.search(view.text) is not None or view.evidence.framework in _SERVERS:
        return None
    length = longest_told(view)
    heads = view.shape.dims.heads if view.shape is not None else _HEADS
    needed = heads * length * length * _COPIES_BYTES
    return needed if needed > _MUCH * (view.bytes_of("capacity") or _A_CARD) else None


_SERVERS: Final = frozenset({"vllm", "sglang", "lmdeploy", "tensorrt-llm", "llama.cpp", "ollama", "tgi", "unsloth"})


def scores_told(view: View) -> bool:
    """Whether an amount of memory is told that is the scores of one layer over the longest text that is told."""
    length = longest_told(view)
    one = (view.shape.dims.heads if view.shape is not None else _HEADS) * length * length
    told = [float(found[1]) for found in _AMOUNT.finditer(view.prose)]
    near = (abs(amount * 1e9 / (one * width) - 1) < _CLOSE for amount in told for width in (2, 4) if one)
    return any(near) and max(told) >= _LEAST_TOLD


def buffer_of_scores(view: View) -> bool:
    """Whether most of a llama.cpp compute buffer that was refused is one batch's scores over the whole context."""
    requested = view.bytes_of("requested")
    context, batch, heads = (_LLAMA[name].search(view.text) for name in ("context", "batch", "heads"))
    if not requested or context is None or _LLAMA_FUSED.search(view.text) is not None:
        return False
    many = int(heads[1]) if heads is not None else view.shape.dims.heads if view.shape is not None else _HEADS
    return (
        _MOST_OF_IT * requested
        < many * int(context[1]) * (int(batch[1]) if batch is not None else _UBATCH) * 4
        <= requested
    )


def training_scores_bytes(view: View) -> int | None:
    """Scores that the layers of a training keep for the backward pass, if they take much of the card."""
    length, shape, capacity = _trained_length(view), view.shape, view.bytes_of("capacity")
    if _FUSED.search(view.text) is not None or not view.training or not length or not capacity:
        return None
    if view.phase in _WITHOUT_STEPS:
        return None
    heads, layers = (shape.dims.heads, shape.dims.layers) if shape is not None else (_LEAST_HEADS, _LEAST_HEADS)
    kept = 1 if view.job.grad_ckpt else layers
    narrow = _NARROW.intersection((view.job.autocast, view.job.param_dtype))
    needed = (view.job.micro_batch or 1) * kept * heads * length**2 * (_COPIES_BYTES if narrow else 2 * _COPIES_BYTES)
    return int(needed) if needed > _MUCH_KEPT * capacity else None


def _programs(view: View) -> str:
    """The text with the commands and scripts that were read as settings."""
    return "\n".join((view.text, *(document.text[:_PROGRAM].lower() for document in view.evidence.documents)))


def _trained_length(view: View) -> int:
    """Tokens of a row, as stated or as the script takes them; of a model that is not known, the greatest told."""
    if view.shape is None:
        return longest_told(view) if _OLD_SCRIPTS.search(_programs(view)) is not None else 0
    positions = view.shape.dims.max_positions
    stated = view.stated("seq_len")
    if stated is None and positions and _WHOLE_LENGTH.search(_programs(view)) is not None:
        return min(positions, _LONGEST_BLOCK)
    return int(stated or 0)


def scores_requested(view: View) -> tuple[int, ...] | None:
    """``(batch, heads, S, S)`` where all of them are known and one layer's scores are what was asked for."""
    requested, shape, length = view.bytes_of("requested"), view.shape, _trained_length(view)
    if not requested or shape is None or not length or not view.training:
        return None
    batch = view.job.micro_batch or 1
    one = batch * shape.dims.heads * length**2
    near = any(abs(requested - one * width) <= _NEAR_BYTES for width in (2, 4))
    return (batch, shape.dims.heads, length, length) if near else None


_WITHOUT_STEPS: Final = ("load", "save", "optimizer-init")
_ROUND_PARTS: Final = (1, 3, 5)
_LEAST_ROUND: Final = GIB
_NEAR_BYTES: Final = 2 * MIB
"""The allocator asks for whole blocks of this."""


def round_request(view: View) -> bool:
    """Whether an old PyTorch was asked for a power of two, or three or five of one, of 1 GiB or more.

    Batch, heads and lengths are round and weights of that size are not; layers' widths and vocabularies seldom are.
    """
    requested = view.bytes_of("requested") or 0
    if requested < _LEAST_ROUND or not of_old_torch(view) or view.phase in _WITHOUT_STEPS:
        return False
    mebibytes = round(requested / MIB)
    return abs(requested - mebibytes * MIB) < MIB / 100 and mebibytes // (mebibytes & -mebibytes) in _ROUND_PARTS


def unfused(view: View) -> bool:
    """Whether versions before fused attention are stated or shown, or a card FlashAttention-2 is not built for."""
    return (
        _before(view, "torch", (2, 0))
        or _before(view, "transformers", (4, 36))
        or _OLD_CARDS.search(f"{view.job.gpu or ''}".lower()) is not None
        or of_old_torch(view)
        or _OLD_SCRIPTS.search(_programs(view)) is not None
    )


def of_old_torch(view: View) -> bool:
    """Whether the message is one of PyTorch 2.0 or older, and no program with a fused attention of its own is named."""
    failure = view.failure
    if failure is None or _OLD_MESSAGE.search(failure.signal.span.text.lower() + view.text) is None:
        return False
    named = (_FUSED, _OWN_FUSED, _ENGINES)
    return view.evidence.framework not in _SERVERS and all(one.search(view.text) is None for one in named)


def _before(view: View, library: str, version: tuple[int, int]) -> bool:
    found = re.match(r"(\d{1,3})\.(\d{1,3})", view.evidence.versions.get(library, ""))
    return found is not None and (int(found[1]), int(found[2])) < version
