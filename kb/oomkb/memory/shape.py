"""A model's shape: every matrix of every layer, read from the form of a Hugging Face ``config.json``.

Parameter counts follow from the matrices; nothing is looked up. What a family does with the configuration is in
:mod:`oomkb.memory.families.family`; reading the many spellings of the same dimension is in
:mod:`oomkb.memory.families.dimensions`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.errors import ARITHMETIC_ERRORS, JobError, Note, note
from oomkb.limits import check_tree
from oomkb.memory.families.dimensions import Dims, read_dims
from oomkb.memory.families.family import Family
from oomkb.memory.families.layer_kinds import plan
from oomkb.memory.families.layer_matrices import build_layers
from oomkb.memory.families.matrix import LayerShape, Linear
from oomkb.memory.families.mixers import SIZES
from oomkb.memory.families.outside_layers import audio_known, extra_params
from oomkb.memory.names import unread_parts
from oomkb.memory.vision import VisionShape

__all__ = ["LayerShape", "Linear", "ModelShape"]
_DEPTH: Final = 12
_NODES: Final = 20_000
_LARGEST_PARAMS: Final = 10**15
_DEPTHS: Final = ((0.7, 24), (2, 16), (4.5, 28), (9, 32), (16, 40), (40, 60), (80, 80), (200, 96))
# Experts that were bare parameters from the start, or that PEFT does not convert: adapters skip them.
_BARE_EXPERTS: Final = frozenset({"gpt_oss", "granitemoe", "granitemoeshared", "dbrx", "llama4_text", "qwen2_moe"})
_EXPERT_NAMES: Final = frozenset({"gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"})
_ALL: Final = frozenset({"all-linear", "all", "auto", "all_linear"})
# What other frameworks call the same matrices (litgpt: q, v; torchtune: output_proj, w1..w3; Megatron: linear_*).
_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "q_proj": ("q", "query", "wq", "linear_qkv"),
    "k_proj": ("k", "key", "wk", "linear_qkv"),
    "v_proj": ("v", "value", "wv", "linear_qkv"),
    "o_proj": ("o", "output_proj", "wo", "linear_proj", "dense", "projection"),
    "gate_proj": ("w1", "linear_fc1", "mlp", "gate"),
    "up_proj": ("w3", "linear_fc1", "mlp"),
    "down_proj": ("w2", "linear_fc2", "mlp"),
    "dense": ("o", "output_proj", "projection"),
    "query_key_value": ("q", "k", "v", "qkv", "q_proj", "k_proj", "v_proj"),
    "qkv_proj": ("q_proj", "k_proj", "v_proj", "q", "k", "v"),
    "c_attn": ("q_proj", "k_proj", "v_proj"),
    "fc1": ("mlp",),
    "fc2": ("mlp",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CachingLayers:
    """Numbers of layers by what they keep of a text while it is generated."""

    whole: int
    """Those that keep every token."""
    windowed: int
    """Those that keep no more than a window of it."""
    window: int
    """Tokens of the widest window."""
    recurrent: int
    """Those that keep nothing for a token: a state of one size, or what another layer keeps."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelShape:
    """A decoder (with a vision tower, where it has one) as the memory model sees it.

    Compared by identity: reading the same configuration again gives the same object, so that what is derived from a
    shape can be kept with it.
    """

    name: str
    dims: Dims
    family: Family
    layers: tuple[LayerShape, ...]
    vision: VisionShape | None = None
    known: bool = True
    """Whether the family was recognised; otherwise dimensions were taken as those of a Llama-like decoder."""
    warnings: tuple[Note, ...] = ()
    steps: dict[Any, Any] = field(default_factory=dict, repr=False, init=False)
    """Steps played for this shape, by mode: a cache of :func:`oomkb.memory.activations.step_of`."""
    config: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, name: str = "") -> ModelShape:
        """Read a configuration in the form of ``config.json``.

        :raises JobError: where not even hidden size and layer count can be found.
        """
        try:
            key = json.dumps(config, sort_keys=True, default=_plain)
        except (TypeError, ValueError):
            return _read(config, name)
        return _cached(key, name)

    @classmethod
    @lru_cache(maxsize=256)
    def from_params_b(cls, params_b: float, *, vocab_size: int = 128_000) -> ModelShape:
        """A decoder of usual proportions with about ``params_b`` billion parameters.

        Depth, width, grouping and feed-forward ratio follow the public Llama/Qwen/Mistral ladder (0.5B to 400B);
        the width is then solved so that the count comes out, in steps of 64. The cache of a token needs the number of
        key-value heads, which does not follow from a size: eight from 1B on (Llama 3, Qwen3, Mistral), two below.
        """
        target = params_b * 1e9
        layers = next((n for limit, n in _DEPTHS if params_b <= limit), 126)
        tied = params_b < 4
        width = 64 if params_b < 1.5 else 128
        hidden = ffn = heads = kv_heads = 0
        for hidden in range(256, 32_768, 64):
            kv_heads = 8 if hidden >= 16 * width else 2
            heads = kv_heads * max(1, round(hidden / width / kv_heads))
            ffn = 256 * math.ceil(3.5 * hidden / 256)
            layer = 2 * hidden * width * (heads + kv_heads) + 3 * hidden * ffn + 2 * hidden
            if vocab_size * hidden * (1 if tied else 2) + layers * layer + hidden >= target:
                break
        config = {
            "model_type": "llama",
            "vocab_size": vocab_size,
            "hidden_size": hidden,
            "intermediate_size": ffn,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": width,
            "tie_word_embeddings": tied,
        }
        shape = cls.from_config(config, name=f"about {params_b:g}B parameters")
        warning = note("estimate.only-size-known", billions=f"{params_b:g}")
        return replace(shape, warnings=(warning,), known=False)

    # -- counts ------------------------------------------------------------------------------------------------

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """What each layer is made of: ``dense`` or ``moe`` behind attention, else the mixer's part in front of it.

        ``mixer dense``, ``both dense`` (attention and a mixer side by side), ``mixer none``, ``none moe`` ...
        """
        d = self.dims
        if not d.mixers or d.model_type not in SIZES:
            return tuple("moe" if d.is_moe(i) else "dense" for i in range(d.layers))
        return tuple(slot.kind for slot in plan(d, d.fields))

    @cached_property
    def neighbours(self) -> float:
        """Parameters of the two layers next to each other that have most, in layers of the largest kind."""
        slots = plan(self.dims, self.dims.fields)
        kinds = {slot: layer.params for slot, layer in zip(sorted(set(slots), key=str), self.layers, strict=True)}
        pairs = (kinds[a] + kinds[b] for a, b in pairwise(slots))
        return max(pairs, default=0) / max(kinds.values())

    @cached_property
    def layer_count(self) -> int:
        """Decoder layers of all kinds."""
        return sum(layer.count for layer in self.layers)

    @cached_property
    def embed_params(self) -> int:
        """Token and position embeddings with their norm and projections (without an output head)."""
        d = self.dims
        total = d.vocab * d.embed_width + d.position_rows * d.hidden
        if d.embed_width != d.hidden:
            total += 2 * d.embed_width * d.hidden
        return total + (self._one_norm() if self.family.embed_norm else 0)

    @cached_property
    def head_params(self) -> int:
        """The output head's own parameters: none where it is tied to the embedding."""
        d = self.dims
        return (0 if d.tied else d.vocab * d.embed_width) + (d.vocab if self.family.head_bias else 0)

    @cached_property
    def text_params(self) -> int:
        """Parameters without the vision tower."""
        final = self._one_norm() if self.dims.final_norm else 0
        beside = extra_params(self.dims, self.config)
        return self.embed_params + self.head_params + self.layer_params + final + beside

    @cached_property
    def layer_params(self) -> int:
        """Parameters of all layers."""
        return sum(layer.params * layer.count for layer in self.layers)

    @cached_property
    def largest_params(self) -> int:
        """Parameters of the largest unit that a wrapper gathers: a layer, or the embedding."""
        return max(self.dims.vocab * self.dims.embed_width, *(layer.params for layer in self.layers))

    @cached_property
    def params(self) -> int:
        """Parameters of the whole model."""
        return self.text_params + (self.vision.params if self.vision else 0)

    @cached_property
    def active_params(self) -> float:
        """Parameters that one token meets: of the routed experts those that it is sent to."""
        d = self.dims
        return self.params - (self.expert_params * (1 - max(1, d.top_k) / d.experts) if d.experts else 0.0)

    @cached_property
    def caching(self) -> CachingLayers:
        """How many layers keep what of a text."""
        keeping = [layer for layer in self.layers if layer.caches]
        windowed = [layer for layer in keeping if layer.window]
        return CachingLayers(
            whole=sum(layer.count for layer in keeping if not layer.window),
            windowed=sum(layer.count for layer in windowed),
            window=max((layer.window or 0 for layer in windowed), default=0),
            recurrent=self.layer_count - sum(layer.count for layer in keeping),
        )

    @cached_property
    def expert_params(self) -> int:
        """Parameters of all routed experts."""
        return sum(layer.expert_params * layer.count for layer in self.layers)

    @cached_property
    def attention_params(self) -> int:
        """Parameters of all attention's matrices."""
        return sum(m.params * layer.count for layer in self.layers for m in layer.linears if m.part == "attention")

    @cached_property
    def linear_params(self) -> int:
        """Parameters of the decoder's linear modules: what 4- and 8-bit quantization replaces."""
        return sum(m.count * m.inputs * m.outputs * layer.count for layer in self.layers for m in layer.linears)

    @lru_cache(maxsize=1024)  # noqa: B019
    def lora_params(
        self, targets: str | tuple[str, ...], rank: int, *, dora: bool = False, experts: str | None = None
    ) -> int:
        """Trainable parameters of adapters of ``rank`` on ``targets`` (names, or ``all-linear``).

        :param experts: how routed experts are adapted: ``none``, ``modules`` (each its own), ``fused`` (one adapter of
            rank x experts per three-dimensional parameter, twice that on gate and up together: PEFT 0.21); by default
            as current versions do it.
        """
        each = self.layer_adapters(targets, rank, dora=dora, experts=experts)
        total = sum(layer.count * size for layer, size in zip(self.layers, each, strict=True))
        if self.vision is not None and targets == "all-linear":
            total += self.vision.lora_params(rank)
        return total

    @lru_cache(maxsize=1024)  # noqa: B019
    def layer_adapters(
        self, targets: str | tuple[str, ...], rank: int, *, dora: bool = False, experts: str | None = None
    ) -> tuple[int, ...]:
        """The same of one layer of every kind."""
        form = self.expert_adapters(targets) if experts is None else experts
        taken, found = self.experts_take_names(form), []
        for layer in self.layers:
            total = self._expert_lora(rank, form) if layer.moe else 0
            for m in layer.linears:
                if adapted(m, targets) and not (taken and m.part in ("mlp", "shared") and m.name in taken):
                    total += m.count * (rank * (m.inputs + m.outputs) + (m.outputs if dora else 0))
            found.append(total)
        return tuple(found)

    def expert_adapters(self, targets: str | tuple[str, ...], *, fused: bool = True) -> str:
        """Whether LoRA on ``targets`` reaches the routed experts, and in which form."""
        if not self.dims.experts or self.dims.model_type in _BARE_EXPERTS:
            return "none"
        listed = (targets,) if isinstance(targets, str) else targets
        names = {t.rsplit(".", 1)[-1] for t in listed if not _of_shared(t)}
        return "none" if names.isdisjoint(_ALL | _EXPERT_NAMES) else "fused" if fused else "modules"

    def experts_take_names(self, form: str) -> frozenset[str]:
        """Names whose modules get no adapters because the fused experts get them.

        peft 0.21 (``utils/transformers_weight_conversion.py``) moves ``gate_proj``, ``up_proj`` and ``down_proj`` from
        modules to parameters, so that dense layers and shared experts of the same names go without; traced for
        DeepSeek-V2, GLM-4.5, GLM-4.7 and ERNIE-4.5. Qwen2-MoE's keep theirs.
        """
        if form != "fused" or self.dims.model_type == "qwen2_moe":
            return frozenset()
        return frozenset({"gate_proj", "up_proj", "down_proj"})

    def _expert_lora(self, rank: int, form: str) -> int:
        d = self.dims
        router = rank * (d.hidden + d.experts)
        if form == "fused":
            up = 2 * rank * d.experts * (d.expert_io + 2 * d.expert_ffn)
            return up + rank * d.experts * (d.expert_ffn + d.expert_io) + router
        if form == "modules":
            return 3 * rank * d.experts * (d.expert_io + d.expert_ffn) + router
        return 0

    def _one_norm(self) -> int:
        d, norm = self.dims, self.family.norm
        return 0 if norm == "ln-plain" else d.hidden * (2 if norm == "ln" else 1)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


@lru_cache(maxsize=2048)
def _cached(text: str, name: str) -> ModelShape:
    return _read(json.loads(text), name)


def _read(config: Mapping[str, Any], name: str) -> ModelShape:
    """:raises JobError: for a configuration of nonsense, whatever the nonsense is."""
    try:
        check_tree(config, where="model", depth=_DEPTH, nodes=_NODES, finite=False, error=JobError)
        shape = _read_checked(config, name)
        possible = 0 < shape.params < _LARGEST_PARAMS
    except ARITHMETIC_ERRORS as error:
        raise JobError(f"the model's configuration cannot be read ({type(error).__name__})", where="model") from error
    if not possible:
        raise JobError(f"{shape.params:,} parameters are no model's", where="model", hint="check its dimensions")
    return shape


def _read_checked(config: Mapping[str, Any], name: str) -> ModelShape:
    dims, family, known, warnings = read_dims(config)
    label = name or str(config.get("name") or config.get("_name_or_path") or config.get("model_type") or "")
    vision = VisionShape.from_config(config, dims.hidden)
    if vision is not None and not vision.known:
        warnings = (*warnings, note("estimate.vision-unknown", kind=str(config.get("model_type"))))
    if not audio_known(config):
        warnings = (*warnings, note("estimate.audio-unknown", kind=str(config.get("model_type"))))
    if parts := unread_parts(config):
        warnings = (*warnings, note("estimate.parts-not-counted", parts=tuple(parts)))
    return ModelShape(
        name=label,
        dims=dims,
        family=family,
        layers=build_layers(dims, family),
        vision=vision,
        known=known and not warnings,
        warnings=warnings,
        config=MappingProxyType(dict(config)),
    )


def adapted(linear: Linear, targets: str | tuple[str, ...] | None) -> bool:
    """Whether LoRA with ``targets`` puts an adapter on this matrix (PEFT: on modules, by the end of their name)."""
    if not linear.module or linear.part == "head":
        return False
    if targets is None or targets in _ALL or (not isinstance(targets, str) and any(t in _ALL for t in targets)):
        return linear.part != "router"
    names = (targets,) if isinstance(targets, str) else targets
    aliases = {linear.name, *_ALIASES.get(linear.name, ())}
    named = [t for t in names if t.rsplit(".", 1)[-1] in aliases]
    return any(linear.part == "shared" or not _of_shared(t) for t in named)


def _of_shared(target: str) -> bool:
    """Whether a target names shared experts alone: ``shared_expert.up_proj``."""
    return target.rpartition(".")[0].rpartition(".")[2].startswith("shared")
