"""Why a term of the memory takes what it takes: the quantities that it is the product of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from oomdoc.chat import parts
from oomdoc.diagnosis.forms import needed_of
from oomdoc.report.words import has, word
from oomkb.memory.cache import element_bytes
from oomkb.memory.estimate import Estimate
from oomkb.memory.setting import Setting, resolve_setting
from oomkb.pricing import Priced
from oomkb.units import GIB, KIB

_PARAMETERS: Final = ("weights", "gathered weights", "reference model", "reward model", "critic model")
_TRAINED: Final = ("gradients", "optimizer states", "fp32 masters", "optimizer temporaries", "adapters")
_ACTIVE: Final = ("activations", "recomputed layer", "attention scores")
_WHOLE: Final = ("zero3", "fsdp", "fsdp2", "hsdp")
_STATES: Final = dict.fromkeys(("zero1", "distributed-optimizer"), ("optimizer states", "fp32 masters"))
_STATES_2: Final = ("optimizer states", "fp32 masters", "gradients")
_MOVED: Final = 0.05 * GIB
_STAYS: Final = 0.3 * GIB
_LEAST: Final = 0.1
"""Share of what is needed from which a term decides."""


def held_by(estimate: Estimate) -> Mapping[str, float]:
    """The terms of the fullest phase; of a server with the cache that its requests need."""
    terms = dict(estimate.phases[estimate.peak_phase].terms_bytes)
    if estimate.served is not None:
        terms["kv cache"] = estimate.served.needed_bytes
    return terms


def sum_of(name: str, priced: Priced, language: str) -> str:
    """One term as a product; empty for one that is none."""
    estimate = priced.estimate
    sizes = [phase.terms_bytes.get(name, 0.0) for phase in estimate.phases.values()]
    size = held_by(estimate).get(name) or max(sizes, default=0.0)
    if size < _MOVED:
        return ""
    values = {"term": parts.term(name, language), "size_bytes": size}
    if name == "rollout engine":
        share = priced.job.get("rollout.gpu_memory_utilization")
        capacity = estimate.capacity_bytes
        if not share or not capacity:
            return ""
        return word("chat.sum-rollout", language, share=f"{share:g}", capacity_bytes=capacity, **values)
    if name == "kv cache" and estimate.served is not None:
        served = estimate.served
        cached = f"{served.at_once * served.length:,}"
        return word("chat.sum-cache", language, tokens=cached, token_kib=f"{served.token_bytes / KIB:.4g}", **values)
    setting = resolve_setting(priced.job, priced.shape)
    tokens = setting.tokens
    if name == "logits and loss":
        each = size / (tokens * priced.shape.dims.vocab)
        counts = {"tokens": f"{tokens:,.0f}", "vocabulary": f"{priced.shape.dims.vocab:,}", "each": f"{each:.2g}"}
        return word("chat.sum-logits", language, one_bytes=4 * tokens * priced.shape.dims.vocab, **counts, **values)
    if name in _ACTIVE:
        layers = 1 if name == "recomputed layer" else priced.shape.layer_count
        each = size / (tokens * priced.shape.dims.hidden * layers)
        counts = {"tokens": f"{tokens:,.0f}", "hidden": f"{priced.shape.dims.hidden:,}", "layers": f"{layers}"}
        return word("chat.sum-activations", language, each=f"{each:.2g}", **counts, **values)
    return _of_parameters(name, size, priced, setting, language)


def cache_per_token(priced: Priced, language: str) -> list[str]:
    """What one token keeps in one layer, by the model's heads, and which layers keep every token."""
    shape, d, layers = priced.shape, priced.shape.dims, priced.shape.caching
    if not layers.whole + layers.windowed:
        return []
    each = element_bytes(resolve_setting(priced.job, shape), priced.job.get("serving.kv_dtype"))
    values = {"bytes": f"{each:.3g}", "kib": f"{d.kv_elements_per_token * each / KIB:.4g}", "heads": d.heads}
    if d.kv_lora_rank:
        said = [word("chat.cache-latent", language, rank=d.kv_lora_rank, rope=d.qk_rope_dim, **values)]
    else:
        key = "chat.cache-grouped" if d.kv_heads < d.heads else "chat.cache-heads"
        said = [word(key, language, kv_heads=d.kv_heads, head=d.head_dim, **values)]
    said.append(word("chat.cache-layers", language, whole=layers.whole, layers=shape.layer_count))
    if layers.windowed:
        said.append(word("chat.cache-window", language, windowed=layers.windowed, window=f"{layers.window:,}"))
    if layers.recurrent:
        said.append(word("chat.cache-recurrent", language, recurrent=layers.recurrent))
    return said


def _of_parameters(name: str, size: float, priced: Priced, setting: Setting, language: str) -> str:
    if name not in (*_PARAMETERS, *_TRAINED):
        return ""
    count = priced.estimate.trainable if name in _TRAINED else priced.estimate.params
    if not count:
        return ""
    ways = _split(name, setting)
    values = {"term": parts.term(name, language), "size_bytes": size, "params": f"{count / 1e9:.3g}", "cards": ways}
    each = f"{size * ways / count:.2g}"
    said = word("chat.sum-shared" if ways > 1 else "chat.sum-parameters", language, each=each, **values)
    why = f"chat.sum-why-{name.replace(' ', '-')}"
    return parts.together([said, word(why, language)], language) if has(why, language) else said


def _split(name: str, s: Setting) -> int:
    """Over how many cards the term is shared."""
    sharded = s.sharding in _WHOLE and name != "gathered weights"
    sharded |= s.sharding in ("zero2", "shard-grad-op") and name in _STATES_2
    sharded |= name in _STATES.get(s.sharding, ())
    return (s.shards if sharded else 1) * s.tp * s.pp


def moved_terms(before: Estimate, after: Estimate, language: str) -> str:
    """Which terms of the fullest phase a change moved, and which it left."""
    old, new = held_by(before), held_by(after)
    shown: dict[str, list[str]] = {"down": [], "up": [], "same": []}
    for name in sorted({*old, *new}, key=lambda n: -max(old.get(n, 0.0), new.get(n, 0.0))):
        was, now = old.get(name, 0.0), new.get(name, 0.0)
        way = "same" if abs(now - was) < _MOVED else "down" if now < was else "up"
        if way != "same" or now >= _STAYS:
            key = "chat.term-same" if way == "same" else "chat.term-moved"
            sizes = {"before_bytes": was, "after_bytes": now}
            shown[way].append(word(key, language, term=parts.term(name, language), **sizes))
    comma = word("chat.comma", language)
    said = (word(f"chat.terms-{way}", language, terms=comma.join(rows[:4])) for way, rows in shown.items() if rows)
    return parts.together(said, language)


def reasons(text_terms: list[str], priced: Priced, language: str) -> Iterator[str]:
    """The sums of the terms that are named, else of the largest."""
    held, least = held_by(priced.estimate), _LEAST * needed_of(priced.estimate)
    largest = [name for name in sorted(held, key=lambda n: -held[n])[:1] if held[name] >= least]
    for name in text_terms or largest:
        if said := sum_of(name, priced, language):
            yield said
        if name == "kv cache":
            yield from cache_per_token(priced, language)
