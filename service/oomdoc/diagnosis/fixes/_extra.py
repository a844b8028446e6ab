"""Extra models as plain documents, the way ``Job.with_fields`` takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oomkb.memory.job import ExtraModel, Job

__all__ = ["find", "rewritten", "without"]


def find(job: Job, *roles: str) -> tuple[ExtraModel, ...]:
    """The extra models that play one of these roles."""
    return tuple(m for m in job.extra_models or () if m.role in roles)


def _plain(model: ExtraModel) -> dict[str, Any]:
    named = {"role": model.role, "model": model.model, "sharding": model.sharding, "offload": model.offload}
    return {k: v for k, v in named.items() if v is not None}


def without(job: Job, role: str) -> list[dict[str, Any]]:
    """All extra models but those of a role."""
    return [_plain(m) for m in job.extra_models or () if m.role != role]


def rewritten(job: Job, roles: tuple[str, ...], **changes: Any) -> list[dict[str, Any]]:
    """All extra models, those of the roles with fields changed."""
    return [_plain(replace(m, **changes) if m.role in roles else m) for m in job.extra_models or ()]
