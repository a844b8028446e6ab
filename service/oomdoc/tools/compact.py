"""The contract's documents without what agents skip: a few thousand characters in place of thirty thousand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oomdoc.diagnosis.forms import host_is_short, job_fits
from oomdoc.planner import Compared
from oomdoc.report.estimates import served_document, without_cache
from oomkb.frameworks.circumstances import own_context
from oomkb.memory.device import Device
from oomkb.memory.setting import resolve_setting
from oomkb.pricing import Priced
from oomkb.units import GIB

_CAUSES: Final = 3
_PLANS: Final = 3
_KNOBS: Final = 6
_TERMS: Final = 6
_ROW_TERMS: Final = 4
_REASONS: Final = 2
_LINE_CHARS: Final = 240
_DECIDING: Final = frozenset(
    {
        *(
            "framework",
            "method",
            "quant",
            "micro_batch",
            "seq_len",
            "grad_ckpt",
            "optimizer",
            "param_dtype",
            "autocast",
        ),
        *("attention", "fused_ce", "sharding", "gpus", "offload", "lora.r", "serving.max_model_len", "packing"),
        *("serving.gpu_memory_utilization", "serving.max_num_seqs", "rollout.gpu_memory_utilization", "params_b"),
        *("autocast", "completion_len", "prompt_len", "generations", "max_pixels"),
    }
)
"""Assumed fields that can decide whether a job fits."""


def estimate(document: Mapping[str, Any], detail: str) -> dict[str, Any]:
    """Of ``oomdoc.estimate/1``: the peak, its phase and terms, the verdict, the assumptions that matter."""
    phase = document["phases"].get(document["peak_phase"], {"terms": {}})
    terms = sorted(phase["terms"].items(), key=lambda t: -t[1])
    largest = {name: round(size, 2) for name, size in terms[:_TERMS] if size > 0}
    if detail == "full":
        return {**document, "terms_gib": largest}
    interval = document["interval_gib"]
    return {
        **{k: document[k] for k in ("peak_gib", "peak_phase", "host_gib", "capacity_gib", "needed_gib", "fits")},
        **{k: document[k] for k in ("nvme_gib", "sequence_tokens", "image_tokens") if document[k]},
        "spare_gib": _spare(
            document["capacity_gib"],
            document["peak_gib"]["process"] if document.get("serving") else document["needed_gib"],
        ),
        "fits_probability": document["fits_probability"],
        "interval_gib": {k: interval[k] for k in ("process", "level") if k in interval},
        "terms_gib": largest,
        **({"states_gib": held} if (held := _states(document)) else {}),
        "phases_gib": {name: round(one["total_gib"], 2) for name, one in document["phases"].items()},
        "assumed": {name: one for name, one in document["assumed"].items() if name in _DECIDING},
        "serving": document.get("serving"),
        "warnings": document.get("warnings") or [],
    }


_STATES: Final = ("weights", "adapters", "gradients", "optimizer states", "fp32 masters")


def _states(document: Mapping[str, Any]) -> dict[str, float]:
    """What training keeps on each GPU between its passes, sharded as it rests, with its sum."""
    terms = document["phases"].get("optimizer-step", {"terms": {}})["terms"]
    held = {name: round(terms[name], 2) for name in _STATES if terms.get(name)}
    return held | ({"together": round(sum(held.values()), 2)} if len(held) > 1 else {})


_FORMATS: Final = ("bf16", "fp8", "fp4")
_KERNELS: Final = ("flash2", "flash3", "bnb", "triton")


def card(device: Device | None) -> dict[str, Any]:
    """What a GPU computes in (a format that it lacks can be stored in at most), and what its kernels may take."""
    if device is None:
        return {}
    found = {
        "name": device.name,
        "computes_in": ["fp32", "fp16", *(name for name in _FORMATS if device.can(name))],
        "cannot_compute_in": [name for name in _FORMATS if not device.can(name)],
        "lacks": [name for name in _KERNELS if not device.can(name)],
        "shared_memory_per_block_kib": device.shared_memory_per_block_kib,
    }
    return {name: value for name, value in found.items() if value}


def model(priced: Priced) -> dict[str, Any]:
    """What the terms are products of: the model's sizes, and the tokens of a step on each GPU."""
    shape, d = priced.shape, priced.shape.dims
    layers = shape.caching
    found: dict[str, Any] = {
        "parameters_millions": round(priced.estimate.params / 1e6),
        "trainable_millions": round(priced.estimate.trainable / 1e6, 1),
        "layers": shape.layer_count,
        "hidden": d.hidden,
        "vocabulary": d.vocab,
        "own_context": own_context(priced.job) or 0,
        "attention_heads": d.heads,
        **({"latent_kv_width": d.kv_lora_rank + d.qk_rope_dim} if d.kv_lora_rank else {"kv_heads": d.kv_heads}),
        "head_size": d.head_dim if not d.kv_lora_rank else 0,
        "experts": d.experts,
        "experts_per_token": d.top_k if d.experts else 0,
    }
    if d.experts:
        found["active_parameters_millions"] = round(shape.active_params / 1e6)
    if layers.whole < shape.layer_count:
        found |= {"layers_with_full_attention": layers.whole, "layers_with_window": layers.windowed}
        found |= {"window_tokens": layers.window, "recurrent_layers": layers.recurrent}
    if shape.vision is not None:
        side = shape.vision.patch * shape.vision.merge
        fixed = shape.vision.tokens_per_image
        found |= {"tokens_per_image_or_tile": fixed} if fixed else {"pixels_per_image_token": f"{side} x {side}"}
    setting = resolve_setting(priced.job, shape)
    if setting.training:
        found |= {"sequences_per_step": int(setting.batch), "tokens_per_step": int(setting.batch * setting.seq)}
    return {name: size for name, size in found.items() if size}


def planned(document: Mapping[str, Any], detail: str) -> dict[str, Any]:
    """Of ``oomdoc.plan/1``: the first plans and the changes that buy most."""
    plans = [_plan(p, detail) for p in document["plans"]]
    whole = {**document, "estimate": estimate(document["estimate"], detail), "plans": plans}
    if detail == "full":
        return whole
    kept = (
        "fits_probability",
        "relative_speed",
        "saves_gib",
        "peak_gib",
        "needed_gib",
        "key",
        "from",
        "to",
        "fields",
        "safety",
    )
    keep = ("job", "fits", "fits_probability", "sentences", "estimate", "largest", "nothing_fits", "notes")
    return {
        **{name: whole[name] for name in keep},
        "plans": plans[:_PLANS],
        "knobs": [{n: knob[n] for n in kept} for knob in document["knobs"][:_KNOBS]],
    }


def diagnosis(document: Mapping[str, Any], detail: str) -> dict[str, Any]:
    """Of ``oomdoc.diagnosis/1``: causes with their first reasons, sizes, plans, what to ask."""
    priced = document["estimate"]
    framework = document["framework"] or {}
    whole = {
        **document,
        "framework": framework.get("name"),
        "estimate": estimate(priced, detail) if priced else None,
        "plans": [_plan(p, detail) for p in document["plans"]],
    }
    if detail == "full":
        return whole
    keep = ("verdict", "summary", "outlook", "other_failure", "framework", "estimate", "job", "warnings")
    failure = document["failure"] or {}
    return {
        **{name: whole[name] for name in keep},
        "causes": [_cause(c) for c in document["causes"][:_CAUSES]],
        "failure": {k: v for k, v in failure.items() if v not in (None, [], "")} or None,
        "facts": {name: fact["value"] for name, fact in document["facts"].items() if fact.get("stated", True)},
        "plans": whole["plans"][:_PLANS],
        "questions": document["questions"][:_CAUSES],
        "matches": [{k: m[k] for k in ("case", "title", "url")} for m in document["matches"][:_CAUSES]],
        "topics": [{k: t[k] for k in ("id", "title", "answer", "figure", "sources")} for t in document["topics"]],
        "conflicts": [
            {k: v for k, v in c.items() if k in ("fact", "stated", "likely", "why")} for c in document["conflicts"]
        ],
        "inferred": document["inferred"],
    }


def row(compared: Compared, first: Compared) -> dict[str, Any]:
    """The figures of one job of a comparison, beside the first."""
    if compared.priced is None:
        return {}
    found = compared.priced.estimate
    short = host_is_short(compared.job, found)
    before = first.priced.estimate.process_bytes if first.priced else None
    gib = {
        "peak_gib": found.process_bytes,
        "needed_gib": found.needed_bytes,
        "capacity_gib": found.capacity_bytes,
        "host_gib": found.host_bytes,
        "spare_gib": _spare(found.capacity_bytes, without_cache(found)),
        "change_gib": None if before is None else found.process_bytes - before,
    }
    return {
        **{name: None if size is None else round(size / GIB, 2) for name, size in gib.items()},
        "fits": job_fits(compared.job, found),
        "fits_probability": 0.0 if short else found.fits_probability and round(found.fits_probability, 3),
        "peak_phase": found.peak_phase,
        "terms_gib": _largest(found.phases[found.peak_phase].terms_bytes),
        "relative_speed": None if compared.relative_speed is None else round(compared.relative_speed, 2),
        **({"serving": served_document(found.served)} if found.served else {}),
    }


def _largest(terms_bytes: Mapping[str, float]) -> dict[str, float]:
    """The largest terms of a phase, in GiB."""
    terms = sorted(terms_bytes.items(), key=lambda t: -t[1])[:_ROW_TERMS]
    return {name: round(size / GIB, 2) for name, size in terms if size > 0}


def _spare(capacity: float | None, taken: float | None) -> float | None:
    """What is left of the card; negative where it is too small."""
    return None if capacity is None or taken is None else round(capacity - taken, 4)


def named(fields: Mapping[str, Any], index: int) -> str:
    """What a job is called by what it states."""
    said = ", ".join(f"{name}={value}" for name, value in fields.items() if not isinstance(value, Mapping))
    return said[:_LINE_CHARS] or f"job {index + 1}"


def _cause(cause: Mapping[str, Any]) -> dict[str, Any]:
    lines = [e["text"][:_LINE_CHARS] for e in cause["evidence"][:_REASONS] if e.get("text")]
    return {**{k: cause[k] for k in ("cause", "probability")}, "why": cause["why"][:_REASONS], "evidence": lines}


def _plan(plan: Mapping[str, Any], detail: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for change in plan["changes"]:
        fields |= change["fields"]
    whole = {**plan, "fields": fields}
    if detail == "full":
        return whole
    kept = ("key", "from", "to", "saves_gib", "instruction")
    keep = ("fields", "peak_gib", "needed_gib", "host_gib", "fits_probability", "relative_speed", "safety", "patch")
    return {
        "changes": [{k: c[k] for k in kept if k != "instruction" or c[k]} for c in plan["changes"]],
        **{name: whole[name] for name in keep if name != "patch" or whole[name]},
    }
