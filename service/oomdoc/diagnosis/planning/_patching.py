"""A plan as a patch of the person's own files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oomdoc.diagnosis.planning._keys import key_of
from oomdoc.diagnosis.result import Change, Plan
from oomdoc.evidence import Document, Evidence
from oomkb.errors import OomdocError

__all__ = ["patched"]


def patched(plan: Plan, evidence: Evidence) -> Plan:
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
    changes = tuple(_placed(change, placed, evidence) for change in plan.changes)
    return replace(plan, patch="\n".join(d.rstrip("\n") for d in diffs) + "\n" if diffs else "", changes=changes)


def _placed(change: Change, placed: dict[str, str], evidence: Evidence) -> Change:
    """The change with its file, and its key as that file spells it."""
    for name in change.fields:
        if name in placed:
            document = next(d for d in evidence.documents if d.source == placed[name])
            own = name == _leading(change) and key_of(document.framework, name, [document])
            return replace(change, file=placed[name], key=own or change.key)
    return change


def _leading(change: Change) -> str:
    return next((n for n, value in change.fields.items() if value == change.new), "")


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
