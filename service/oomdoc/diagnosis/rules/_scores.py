"""What the scores of a long text would take, where no engine with fused attention computes them."""

from __future__ import annotations

import re
from typing import Final

from oomdoc.diagnosis.rules._compared import longest_told
from oomdoc.diagnosis.view import View
from oomdoc.intake.sieve import alternatives
from oomkb.units import GIB

__all__ = ["scores_bytes", "training_scores_bytes", "unfused"]

_ENGINES: Final = alternatives(
    r"vllm|sglang|lmdeploy|tensorrt|trt-?llm|llama[._-]?cpp|llama-server|ollama|lm ?studio|\btgi\b"
    r"|text-generation-inference|exllama|xinference|ktransformers|gguf|flash_attention_2|unsloth|llama_decode|\bmlx\b"
)
"""Programs whose attention keeps no scores, and the option that takes a fused kernel."""
_FUSED: Final = re.compile(r"unsloth|flash[ _-]?att|xformers|\bsdpa\b")
_OLD_CARDS: Final = re.compile(
    r"\b(?:tesla )?(?:v100s?|t4|p100|p40|rtx ?20[678]0|20[678]0 ?ti|gtx ?1\d{3}|1080 ?ti?|titan)\b"
)
_COPIES_BYTES: Final = 6
"""Raw scores in 16 bit and their softmax in 32 bit."""
_HEADS: Final = 32
"""Of a model of 7B, where the model is not known."""
_A_CARD: Final = 80 * GIB
_MUCH: Final = 0.4


def scores_bytes(view: View) -> int | None:
    """Scores of one layer over the longest text that is told, if they take much of the card and are not fused away."""
    if view.training or _ENGINES.search(view.text) is not None or view.evidence.framework in _SERVERS:
        return None
    length = longest_told(view)
    heads = view.shape.dims.heads if view.shape is not None else _HEADS
    needed = heads * length * length * _COPIES_BYTES
    return needed if needed > _MUCH * (view.bytes_of("capacity") or _A_CARD) else None


_SERVERS: Final = frozenset({"vllm", "sglang", "lmdeploy", "tensorrt-llm", "llama.cpp", "ollama", "tgi", "unsloth"})


def training_scores_bytes(view: View) -> int | None:
    """Scores that the layers of a training keep for the backward pass, if they take much of the card."""
    length, shape, capacity = view.stated("seq_len"), view.shape, view.bytes_of("capacity")
    if _FUSED.search(view.text) is not None or not view.training or not length or shape is None or not capacity:
        return None
    kept = 1 if view.job.grad_ckpt else shape.dims.layers
    needed = (view.job.micro_batch or 1) * kept * shape.dims.heads * int(length) ** 2 * _COPIES_BYTES
    return int(needed) if needed > _MUCH * capacity else None


def unfused(view: View) -> bool:
    """Whether versions before fused attention are stated, or a card for which FlashAttention-2 is not built."""
    return (
        _before(view, "torch", (2, 0))
        or _before(view, "transformers", (4, 36))
        or _OLD_CARDS.search(f"{view.job.gpu or ''}".lower()) is not None
    )


def _before(view: View, library: str, version: tuple[int, int]) -> bool:
    found = re.match(r"(\d{1,3})\.(\d{1,3})", view.evidence.versions.get(library, ""))
    return found is not None and (int(found[1]), int(found[2])) < version
