"""A model that is described by its sizes and has no name: ``24 layers, d_model 2048, 16 heads, vocab 50304``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns
from oomdoc.intake.sieve import Vocabulary, found_in

_RE: Final = patterns(__file__)
_CONFIDENCE: Final = 0.7
_HEAD_SIZE: Final = 128
"""Of a model whose heads nobody counts."""
_MIN_HIDDEN: Final = 64
_WIDTH_STEP: Final = 256
"""To a multiple of which the width of a gated network is rounded (Llama's ``multiple_of``)."""
_DEFAULT_VOCAB: Final = {"gpt2": 50257, "llama": 32000}


def read_architecture(lines: Sequence[Line], words: Vocabulary) -> Iterator[Fact]:
    """The configuration of a model of which layers and width are stated, as ``model_config``.

    It is GPT-2's architecture where GPT is named, else Llama's; what is not stated is as there: a network of four times
    the width, or a gated one of eight thirds, and as many key-value heads as heads.
    """
    layers, hidden = (_first(name, lines, words) for name in ("layers", "hidden"))
    if layers is None or hidden is None or hidden[0] < _MIN_HIDDEN:
        return
    heads, groups, ffn, vocab = (_first(name, lines, words) for name in ("heads", "kv_heads", "ffn", "vocab"))
    kind = "gpt2" if next(found_in(_RE["gpt"], lines, words), None) is not None else "llama"
    width, count = hidden[0], heads[0] if heads is not None else max(1, hidden[0] // _HEAD_SIZE)
    size = vocab[0] if vocab is not None else _DEFAULT_VOCAB[kind]
    config: dict[str, Any] = {"model_type": kind, "vocab_size": size}
    if kind == "gpt2":
        config |= {"n_layer": layers[0], "n_embd": width, "n_head": count}
        config |= {"n_inner": ffn[0]} if ffn is not None else {}
    else:
        gated = -(-(width * 8 // 3) // _WIDTH_STEP) * _WIDTH_STEP
        config |= {"num_hidden_layers": layers[0], "hidden_size": width, "num_attention_heads": count}
        config |= {"num_key_value_heads": groups[0] if groups is not None else count}
        config |= {"intermediate_size": ffn[0] if ffn is not None else gated}
    line, column = hidden[1:]
    yield Fact("model_config", config, line.span(column), "prose", _CONFIDENCE)


def _first(name: str, lines: Sequence[Line], words: Vocabulary) -> tuple[int, Line, int] | None:
    """The first size of a name, with its line and column."""
    for line, found in found_in(_RE[name], lines, words):
        parts = [part for part in found.groups() if part]
        if parts:
            thousands = len(parts) > 1 and parts[1].strip().lower() == "k"
            return int(parts[0].replace(",", "")) * (1024 if thousands else 1), line, found.start() + 1
    return None
