"""A plan as a patch of the person's own files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oomdoc.diagnosis.result import Plan
from oomdoc.evidence import Document, Evidence
from oomkb.errors import OomdocError
from oomkb.memory.job import Job

__all__ = ["patched"]


def patched(plan: Plan, evidence: Evidence, before: Job) -> Plan:
    """The plan with a unified diff over the documents that were read, and each change's file named.

    Fields that find no place in any document stay as changes without a file.
    """
    wanted: dict[str, Any] = {}
    for change in plan.changes:
        wanted.update(change.fields)
    if not wanted or not evidence.documents:
        return plan
    diffs: list[str] = []
    placed: dict[str, str] = {}
    for document in evidence.documents:
        left = {name: value for name, value in wanted.items() if name not in placed}
        if left:
            diff, done = _one(document, left)
            if diff:
                diffs.append(diff)
                placed.update(dict.fromkeys(done, document.source))
    changes = tuple(
        replace(c, file=next((placed[n] for n in c.fields if n in placed), c.file)) if c.fields else c
        for c in plan.changes
    )
    return replace(plan, patch="\n".join(d.rstrip("\n") for d in diffs) + "\n" if diffs else "", changes=changes)


def _one(document: Document, changes: dict[str, Any]) -> tuple[str, list[str]]:
    from oomdoc.intake import configs

    patch = getattr(configs, "patch", None)
    if patch is None:
        return "", []
    try:
        done = patch(document.text, filename=document.source, framework=document.framework, changes=changes)
    except OomdocError:
        return "", []
    if done.error or not done.diff:
        return "", []
    return done.diff, [name for name in changes if name not in done.unplaced]
