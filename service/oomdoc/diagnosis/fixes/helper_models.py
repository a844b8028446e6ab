"""The frozen models beside the trained one: references, reward models, teachers, critics.

Extra models are written as plain documents, the way ``Job.with_fields`` takes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from oomdoc.diagnosis.fixes._remedy import Context, Variant, is_lora, remedy, world_size
from oomdoc.evidence import say
from oomkb.memory.job import ExtraModel, Job

_FROZEN: Final = ("reference", "reward", "teacher")
PRECOMPUTED: Final = "precompute_ref_log_probs=True"
"""TRL's setting, for frameworks that have none of their own."""


def find(job: Job, *roles: str) -> tuple[ExtraModel, ...]:
    """The extra models that play one of these roles."""
    return tuple(m for m in job.extra_models or () if m.role in roles)


def _plain(model: ExtraModel) -> dict[str, Any]:
    named = {"role": model.role, "model": model.model, "sharding": model.sharding, "offload": model.offload}
    return {k: v for k, v in named.items() if v is not None}


def without(job: Job, role: str) -> list[dict[str, Any]]:
    """All extra models but those of a role."""
    return [_plain(m) for m in job.extra_models or () if m.role != role]


def _rewritten(job: Job, roles: tuple[str, ...], **changes: Any) -> list[dict[str, Any]]:
    return [_plain(replace(m, **changes) if m.role in roles else m) for m in job.extra_models or ()]


@remedy("same-numbers", "preference", "rl", reduces=("reference", "extra"))
def reference_adapter(job: Job, context: Context) -> Iterator[Variant]:
    """With adapters, the base model with the adapter switched off *is* the reference: a second copy is waste."""
    reference = find(job, "reference")
    own = any(m.model is not None and m.model != job.model for m in reference)
    if is_lora(job) and reference and not own and context.has("lora"):
        line = context.line("reference-adapter", "ref_model=None, peft_config=peft_config")
        note = say("fixes.reference-adapter.how", line=line)
        yield Variant(fields={"extra_models": without(job, "reference")}, effort=0.5, notes=(note,))


@remedy("same-numbers", "preference", "rl", reduces=(*_FROZEN, "extra"))
def reference_offload(job: Job, context: Context) -> Iterator[Variant]:
    """The frozen helpers kept in host memory and brought in for their forward pass."""
    if any(not m.offload for m in find(job, *_FROZEN)) and context.has("ref.offload"):
        note = say("fixes.reference-offload.how", line="--ref_reward_offload")
        yield Variant(fields={"extra_models": _rewritten(job, _FROZEN, offload=True)}, effort=0.5, notes=(note,))


@remedy("same-numbers", "preference", reduces=("reference", "extra"))
def reference_precompute(job: Job, context: Context) -> Iterator[Variant]:
    """Reference log-probabilities computed once, before training: no reference model beside the trained one.

    The same numbers come out (the reference never changes), for one extra pass over the data.
    """
    if job.objective in ("dpo", "kto") and find(job, "reference") and context.has("precompute_ref"):
        note = say("fixes.reference-precompute.how", line=context.line("reference-precompute", PRECOMPUTED))
        yield Variant(fields={"extra_models": without(job, "reference")}, effort=0.8, notes=(note,))


@remedy("same-numbers", "preference", "rl", reduces=(*_FROZEN, "critic", "extra"))
def reference_sharding(job: Job, context: Context) -> Iterator[Variant]:
    """Helpers sharded like the trained model, where they are said not to be: by default they follow its engine."""
    if world_size(job) < 2 or job.sharding not in ("zero3", "fsdp", "fsdp2"):
        return
    roles = (*_FROZEN, "critic")
    if any(m.sharding in ("none", "ddp") for m in find(job, *roles)) and (context.has("zero") or context.has("fsdp")):
        note = say("fixes.reference-sharding.how", sharding=job.sharding)
        fields = {"extra_models": _rewritten(job, roles, sharding=job.sharding)}
        yield Variant(fields=fields, effort=0.8, notes=(note,))
