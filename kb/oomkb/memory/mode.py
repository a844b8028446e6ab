"""What decides which operations a step consists of, sizes apart."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.errors import JobError, note
from oomkb.limits import shown
from oomkb.tables import read_table

VOCABULARY: Final[Mapping[str, Mapping[str, str]]] = read_table(Path(__file__).with_name("vocabulary.toml"))
"""Field -> word -> the spellings that mean it, apart by blanks."""


def _key(word: object) -> str:
    return str(word).strip().lower().replace("_", "-").replace(" ", "-").replace("(", "").replace(")", "")


@cache
def _table(name: str) -> dict[str, str]:
    table: dict[str, str] = {}
    for canonical, spellings in VOCABULARY[name].items():
        for spelling in (canonical, *spellings.split()):
            table.setdefault(_key(spelling), canonical)
    return table


def normalise(name: str, value: Any, *, where: str = "") -> Any:
    """The canonical word for ``value`` in the field ``name``.

    :raises JobError: naming the field and the words it takes.
    """
    if value is False and name in ("autocast", "quant", "sharding"):
        return "none"
    word = _table(name).get(_key(value)) if isinstance(value, str | int | float) else None
    if word is None:
        valid = ", ".join(VOCABULARY[name])
        raise JobError(
            f"{shown(value)} is not known",
            where=where or name,
            hint=f"one of {valid}",
            note=note("job.not-known", value=shown(value), valid=valid),
        )
    return {"true": True, "false": False}.get(word, word) if name == "grad_ckpt" else word


@dataclass(frozen=True, slots=True)
class Mixer:
    """What a layer's token mixer holds between its projections, where it is not attention: bytes by unit."""

    inputs: tuple[tuple[str, str], ...]
    """Projections of the hidden states: name and unit of the width."""
    output: tuple[str, str]
    passing: tuple[tuple[str, float], ...]
    """At most while it runs and nothing is kept."""
    forward: tuple[tuple[str, float], ...]
    kept: tuple[tuple[str, float], ...]
    backward: tuple[tuple[str, float], ...]
    """At most in backward, what is kept and all gradients among it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """Everything about a run that changes which operations happen, and no size."""

    norm: str
    order: str
    """``pre``, ``sandwich``, ``post``, ``parallel`` (one norm), ``parallel-two``, ``neox``."""
    gated: bool
    act: str
    qkv: str
    gate_up: str
    grouped: bool
    single: bool
    """One key/value head: expanding it over the query heads is a view."""
    qk_norm: str
    rotary: str
    """``full``, ``partial``, ``interleaved`` or ``none``."""
    wide_rotary: bool
    """Tables of sines in fp32, so that the rotation runs in fp32 and is cast back (OLMo)."""
    by_heads: bool
    """Queries are joined of parts, so that they lie head by head in memory, and attention's output with them."""
    latent: str
    """``""``, ``kv`` or ``q-kv`` (MLA with a compressed query)."""
    trained: bool
    """Base weights get gradients."""
    adapters: frozenset[str]
    lora_dropout: bool
    adapter: float
    param: float
    autocast: float
    attention: str
    mask: bool
    dropout: bool
    attention_dropout: bool
    softmax: str
    softcap: bool
    multiplier: bool
    mixer: Mixer | None
    shared: str
    cuda: bool
    router: str = ""
    """How experts are chosen and gated (:mod:`oomkb.memory.moe`)."""
    merged_experts: bool = False
    """Adapters on fused expert parameters: PEFT adds their product to a copy of the weights for each pass."""
    quant: bool = False
    quant_saves: bool = False
    """The dequantized weights are kept for backward (GPTQ in plain torch)."""
    quant_keeps: bool = False
    """The quantized product keeps its input on the graph's node, where no checkpoint reaches it, to the step's end."""
    math: bool = False
    """SDPA falls back to the written-out kernel, in fp32."""
    slopes: bool = False
    """SDPA with ALiBi: one additive mask for every head."""
    dora: bool = False
    turned: bool = False
    """Linear modules multiply by ``weight.T`` themselves (Falcon), of which autocast caches no cast."""
    fused: str = ""
    """Norms, rotations and gated products in one kernel each: ``compile`` (torch.compile), ``liger``, ``megatron``,
    ``adapters`` (kernels that take the adapters' products in, without casts, and make the gated product again)."""
    grads: str = "all"
    """How long a parameter's gradient stays whole: ``all`` (the step), ``layer`` (its unit), ``none``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What happens before the first layer and after the last one."""

    tied: bool
    trained: bool
    """Embedding and output head get gradients."""
    embed_grad: bool
    """The embedding's output needs a gradient (trained, or made to for checkpointing under LoRA)."""
    embed_norm: bool
    learned: bool
    embed_dropout: bool
    scaled: bool
    softcap: bool
    scaled_logits: bool
    fused: bool
    """The loss never makes the whole logits."""
    loss: str
    """``sft``, ``preference``, ``log-probs``, ``hidden`` (stop at the last hidden state)."""
    objective: str = ""
    """Of a preference loss: ``dpo``, ``kto``, ``orpo``, ``simpo``, ``distill``."""
    style: str = ""
    """Whose trainer computes a preference loss (:func:`oomkb.memory.releases.preference_style`)."""
    upcast: str
    """How the loss upcasts: ``once``, ``shift`` (a second copy), ``kept`` (the loop holds them),
    ``over`` (unsloth's kernel reads 16-bit logits, scales them and writes their gradient over them)."""
    ckpt: str
    masks: int
    """Kinds of attention masks (full, windowed)."""
    final_norm: bool
    reference: bool
    """DPO: the reference pass runs on the same weights with adapters switched off, under no_grad."""
    outlived: bool = False
    """The loop's name for the loss holds the graph of the micro-batch before, and what hangs on its nodes."""
    active: int = 0
    """How many layers are trained where the others are frozen (LISA); played as the last ones."""
    holds: bool = False
    """The trainer's loop names the logits until the step is over."""
    divides: str = ""
    """Online RL: how a slice of the logits is divided by the temperature (:func:`oomkb.memory.releases.divides`)."""
    one_row: bool = False
    """Online RL: a batch of one sequence, whose row is the whole."""
