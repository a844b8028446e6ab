"""From a job to the tape's mode: which operations happen, and the dimensions they have on one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.families.family import ROUTERS, TOWERS
from oomkb.memory.mode import Head, Mode
from oomkb.memory.program import program
from oomkb.memory.quantized import saves_weights
from oomkb.memory.setting import WITHOUT_LOGITS, Setting
from oomkb.memory.shape import ModelShape, adapted
from oomkb.memory.step import Step
from oomkb.memory.token_mixers import mixer_of, mixer_sizes
from oomkb.memory.vision import VisionShape

_MERGER: Final = 4
"""What norm, two products and an activation between tower and decoder keep, in tensors of the patches' size."""
_ORDERS: Final[Mapping[str, str]] = {"none": "pre", "sandwich": "sandwich", "only": "post"}
_KEPT: Final = 512
_DECISIVE: Final = attrgetter(
    *("objective", "style", "reference", "divides", "adapters", "method", "trained_layers", "rank", "targets", "dora"),
    *("lora_dropout", "tables", "expert_adapters", "quant", "quant_keeps", "outlived", "litgpt", "mlx", "megatron"),
    *(
        "fused",
        "held_bytes",
        "compute_bytes",
        "autocast",
        "ckpt",
        "attention",
        "unfused",
        "masked",
        "cuda",
        "fused_ce",
        "upcast",
    ),
    *("upcast", "grads", "tp", "pp", "ep", "etp", "logits_share", "sequence_parallel", "training", "mixer_kernels"),
)
"""What of a setting decides its step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerBytes:
    """Bytes on one GPU for one micro-batch."""

    pixels: float = 0.0
    """The images themselves, to the step's end."""
    kept: float = 0.0
    """What the tower saves for its backward pass, while the decoder runs."""
    forward: float = 0.0
    """The tower's own peak before the decoder runs."""
    backward: float = 0.0
    """The same after the decoder's backward pass."""


def tower_bytes(s: Setting, shape: ModelShape) -> TowerBytes:
    """The tower's share of a step, its layers played on the same tape as the decoder's."""
    images, vision = s.images, shape.vision
    if vision is None or not images.patches:
        return _NOTHING
    tower = _tower(TOWERS.get(vision.kind, "vit-siglip"), vision)
    adapters = s.adapters and not images.frozen
    own = replace(
        s,
        adapters=adapters or images.frozen,
        targets=s.targets if adapters else (),
        objective="sft",
        fused_ce=True,
        masked=False,
        quant="none",
        quant_keeps=False,
        expert_adapters="none",
        tp=1,
        pp=1,
        ep=1,
        logits_share=1.0,
        sequence_parallel=False,
    )
    step = step_of(own, tower)
    patches = float(s.batch * images.patches)
    square = patches * images.longest
    joined = patches * vision.hidden * s.compute_bytes * _MERGER
    forward = step.peak("forward", patches, square)[0]
    pixels = 4.0 * s.batch * images.pixels  # processors make fp32
    if images.frozen:
        return TowerBytes(pixels=pixels, forward=forward)
    kept = step.saved_bytes(patches, square) + joined
    back = step.peak("backward", patches, square)[0]
    return TowerBytes(pixels=pixels, kept=kept, forward=forward + joined, backward=back)


_NOTHING: Final = TowerBytes()


@lru_cache(maxsize=64)
def _tower(kind: str, vision: VisionShape) -> ModelShape:
    return ModelShape.from_config(
        {
            "model_type": kind,
            "vocab_size": 1,
            "hidden_size": vision.hidden,
            "num_hidden_layers": max(1, vision.depth - vision.unused),
            "num_attention_heads": vision.heads,
            "intermediate_size": vision.ffn,
            "tie_word_embeddings": True,
        }
    )


def mode_of(s: Setting, shape: ModelShape) -> Mode:
    """Which operations happen."""
    d, family = shape.dims, shape.family
    trained = not s.adapters and s.training and s.method != "none"
    autocast = float(s.compute_bytes) if s.autocast else 0.0
    param = float(s.held_bytes)
    return Mode(
        norm=family.norm,
        order=_order(shape),
        gated=family.gated,
        act="gelu" if (s.litgpt or s.megatron) and d.act.startswith("gelu") else d.act,
        qkv=family.qkv,
        gate_up=family.gate_up,
        grouped=d.kv_heads < d.heads and not d.kv_lora_rank,
        single=d.kv_heads == 1 and d.heads > 1,
        qk_norm="head" if d.qk_norm == "heads" else d.qk_norm,
        rotary=_rotary(shape),
        wide_rotary=family.wide_rotary,
        by_heads=bool(d.kv_lora_rank) or d.model_type == "phi3" or _rotary(shape) == "partial",
        latent=("q-kv" if d.q_lora_rank else "kv") if d.kv_lora_rank else "",
        trained=trained,
        adapters=_adapted_slots(s, shape),
        lora_dropout=bool(s.lora_dropout),
        adapter=_adapter_bytes(s),
        param=param,
        autocast=autocast,
        attention="eager" if s.attention == "eager" else "sdpa" if s.attention == "sdpa" else "flash",
        mask=s.masked,
        dropout=d.dropout > 0,
        attention_dropout=d.attention_dropout > 0,
        softmax="input" if (s.megatron or s.mlx) and family.softmax == "fp32" else family.softmax,  # its own kernel
        softcap=d.attention_softcap,
        multiplier=family.scaled_residual,
        mixer=mixer_of(s, shape),
        shared=("gated" if family.shared_gate else "plain") if d.shared_ffn else "",
        cuda=s.cuda,
        router=_own_experts(s) or ROUTERS.get(d.model_type, ""),
        merged_experts=s.expert_adapters == "fused",
        quant=s.quant != "none",
        quant_saves=saves_weights(s.quant, s.framework),
        quant_keeps=s.quant_keeps,
        math=s.attention == "sdpa" and (s.unfused or _broadcast(s, shape) or (not s.cuda and _unfused(shape))),
        dora=s.dora,
        slopes=s.attention == "sdpa" and d.model_type == "falcon" and bool(d.fields.get("alibi")),
        turned=d.model_type == "falcon" and not s.litgpt,
        fused=s.fused,
        grads=s.grads,
    )


def _adapter_bytes(s: Setting) -> float:
    """Of an element as it is used: FSDP2 gathers adapters in the computation's dtype."""
    return float(min(s.held_bytes, s.adapter_bytes) if s.sharding in ("fsdp2", "hsdp") else s.adapter_bytes)


def _own_experts(s: Setting) -> str:
    """Frameworks whose experts are their own, whatever the family's are (:mod:`oomkb.memory.moe`)."""
    return "inside" if s.megatron else "titan" if "titan" in s.framework or "prime-rl" in s.framework else ""


def _loss(s: Setting) -> str:
    if s.fused_ce or s.objective in WITHOUT_LOGITS:
        return "hidden"
    if s.objective in ("grpo", "ppo"):
        return "log-probs"
    return "preference" if s.style else "sft"


def _broadcast(s: Setting, shape: ModelShape) -> bool:
    """One key/value head that is broadcast, not expanded (lit-gpt expands it): no fused kernel takes that."""
    d = shape.dims
    return d.model_type == "falcon" and d.kv_heads == 1 and d.heads > 1 and not s.litgpt


def _unfused(shape: ModelShape) -> bool:
    """What the fused kernel of the CPU, which the traces see, does not take and those of CUDA do."""
    d = shape.dims
    return d.attention_dropout > 0 or bool(d.kv_lora_rank and d.qk_head_dim != d.v_head_dim)


def head_of(s: Setting, shape: ModelShape) -> Head:
    """What happens around the layers."""
    d, family = shape.dims, shape.family
    trained = s.training and (not s.adapters or s.tables > 0)
    return Head(
        tied=d.tied,
        trained=trained,
        embed_grad=trained or (s.adapters and s.ckpt != "none"),
        embed_norm=family.embed_norm,
        learned=d.position_rows > 0,
        embed_dropout=d.embed_dropout > 0,
        scaled=family.scaled_embed,
        softcap=d.logit_softcap,
        scaled_logits=d.logit_scale,
        fused=s.fused_ce,
        loss=_loss(s),
        objective=s.objective if s.style else "",
        style=s.style,
        upcast=s.upcast,
        ckpt=s.ckpt,
        masks=len({bool(layer.window) for layer in shape.layers}) if s.masked else 0,
        final_norm=d.final_norm,
        reference=s.reference,
        outlived=s.outlived,
        active=_active(s, shape),
        holds=_holds(s),
        divides=s.divides,
        one_row=_one_row(s),
    )


def _order(shape: ModelShape) -> str:
    d, family = shape.dims, shape.family
    if d.parallel:
        return "neox" if d.norms == 2 else "parallel"
    if not d.final_norm:
        return "after"
    return _ORDERS[family.post_norms]


def _rotary(shape: ModelShape) -> str:
    d = shape.dims
    if shape.family.positions != "rope" or not d.rotary_dim:
        return "none"
    return "full" if d.rotary_dim >= d.head_dim else "partial"


def _adapted_slots(s: Setting, shape: ModelShape) -> frozenset[str]:
    if not s.adapters:
        return frozenset()
    family, slots = shape.family, set()
    by_name = {m.name: adapted(m, s.targets) for layer in shape.layers for m in layer.linears if m.part != "expert"}
    if shape.dims.kv_lora_rank:
        pairs = {
            "q": "q_proj",
            "q_a": "q_a_proj",
            "q_b": "q_b_proj",
            "kv_a": "kv_a_proj_with_mqa",
            "kv_b": "kv_b_proj",
            "o": "o_proj",
        }
        slots |= {slot for slot, name in pairs.items() if by_name.get(name)}
    else:
        q, k, v, o = family.names[:4]
        attention = [("qkv", q)] if family.qkv == "fused" else [("q", q), ("k", k), ("v", v)]
        slots |= {slot for slot, name in (*attention, ("o", o)) if by_name.get(name)}
    gate, up, down = family.names[4:7]
    for slot, name in (("gate", gate), ("up", up), ("down", down)):
        if name and by_name.get(name) and name not in shape.experts_take_names(s.expert_adapters):
            slots |= {slot, "shared." + slot}
    if by_name.get("shared_expert_gate"):
        slots.add("shared_expert_gate")
    slots |= {
        "mixer." + m.name for layer in shape.layers for m in layer.linears if m.part == "mixer" and by_name[m.name]
    }
    return frozenset(slots)


def _active(s: Setting, shape: ModelShape) -> int:
    """LISA's layers in training, where there are frozen ones below them."""
    few = s.method == "lisa" and s.trained_layers + 2 <= shape.dims.layers // s.pp
    return s.trained_layers if few else 0


def _positions(kinds: tuple[str, ...], active: int = 0) -> tuple[str, ...]:
    """The kinds that decide the program: first, those in between, last (or as many as are trained)."""
    top = len(kinds) - (active or 1)
    middle = tuple(sorted(set(kinds[1:top]))) or (kinds[0],)
    return (kinds[0], *middle, *kinds[top:])


def env_of(s: Setting, shape: ModelShape) -> tuple[tuple[str, float], ...]:
    """The dimensions on one GPU: what tensor parallelism splits is divided already."""
    d, tp = shape.dims, s.tp
    kv = max(d.kv_width / tp, d.head_dim)
    q = d.q_width / tp if not d.kv_lora_rank else d.heads * d.qk_head_dim / tp
    pass_part = d.qk_nope_dim / d.qk_head_dim if d.kv_lora_rank else 1.0
    fraction = min(1.0, d.rotary_dim / d.head_dim)
    return tuple(
        {
            "h": float(d.hidden),
            "e": float(d.embed_width),
            "q": q,
            "k": kv,
            "qkv": q + 2 * kv,
            "n": d.heads / tp,
            "m": max(1.0, d.kv_heads / tp),
            "d": float(d.head_dim),
            "f": d.ffn / tp,
            "fs": d.shared_ffn / tp,
            "fe": d.expert_ffn / s.etp,
            "E": float(d.experts),
            "X": d.experts / s.ep,
            "top": d.top_k / (tp if s.sequence_parallel and s.etp < tp else 1),
            "V": d.vocab / tp * s.logits_share,
            "W": d.vocab / tp,
            "sh": 1.0 / tp if s.sequence_parallel else 1.0,
            "r": float(s.rank),
            "rows": float(d.position_rows),
            "p": fraction,
            "u": 1.0 - fraction,
            "pn": pass_part,
            "pr": 1.0 - pass_part,
            "lq": float(d.q_lora_rank),
            "lk": float(d.kv_lora_rank + d.qk_rope_dim),
            "lkv": float(d.kv_lora_rank),
            "dr": float(d.qk_rope_dim),
            "kvb": d.heads * (d.qk_nope_dim + d.v_head_dim) / tp,
            "vh": d.heads * d.v_head_dim / tp,
            "in": 0.0,
            **mixer_sizes(s, shape),
        }.items()
    )


def _holds(s: Setting) -> bool:
    """Whether the loop names the logits until the step is over."""
    return s.objective == "ppo" and "trl" in s.framework


def _one_row(s: Setting) -> bool:
    """Whether a batch of one sequence is computed otherwise than of several."""
    return s.divides == "copy" and s.samples == 1


def step_of(s: Setting, shape: ModelShape) -> Step:
    """The step's instants for this job on this shape; kept for every other batch size and length."""
    worked_out = (_one_row(s), _holds(s), _adapter_bytes(s), saves_weights(s.quant, s.framework), _own_experts(s))
    key = (*_DECISIVE(s), *worked_out, *mixer_sizes(s, shape).values())
    kept: dict[tuple[object, ...], Step] = shape.steps
    found = kept.get(key)
    if found is None:
        if len(kept) >= _KEPT:
            kept.clear()
        found = kept[key] = _built(s, shape)
    return found


def _built(s: Setting, shape: ModelShape) -> Step:
    kinds = shape.kinds
    stage = max(1, round(len(kinds) / s.pp))
    played = kinds[:stage] if s.pp > 1 else kinds
    # No gradient goes below the layers trained: nothing is kept there, unless a checkpoint asks for one of its input.
    if s.few_layers and (s.adapters or s.ckpt == "none"):
        played = played[-max(1, s.trained_layers) :]
    head = head_of(s, shape)
    found = program(mode_of(s, shape), head, _positions(played, head.active))
    return Step(found, played, dict(env_of(s, shape)), ckpt=s.ckpt != "none")
