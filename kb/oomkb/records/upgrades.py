"""Older record formats: one function per step, from version n to n + 1, applied in order when a file is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from oomkb.errors import RecordError
from oomkb.records.case import SCHEMA

__all__ = ["UPGRADES", "upgraded"]

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


def _with_witnesses(document: dict[str, Any]) -> dict[str, Any]:
    """Version 1 named no witnesses: what a reporter confirmed was tried, everything else is its author's reasoning."""
    ours = [{"by": "inference"}]
    links = [r for r in _mappings(document.get("references")) if isinstance(r.get("url"), str)]
    report = next((r["url"] for r in sorted(links, key=lambda r: r.get("role") != "report")), None)
    tried = [{"by": "reporter-tried", "result": "worked", "ref": report}] if report else ours
    fixes = [
        {k: v for k, v in fix.items() if k != "status"}
        | {"witness": tried if fix.get("status") == "confirmed-by-reporter" else ours}
        for fix in _mappings(document.get("fixes"))
    ]
    changed: dict[str, Any] = {"cause": {"witness": ours}, "fixes": fixes}
    if isinstance(document.get("why"), dict):
        changed["why"] = {**document["why"], "witness": ours}
    if document.get("affected"):
        changed["affected"] = [{**item, "witness": ours} for item in _mappings(document["affected"])]
    if isinstance(document.get("outcome"), dict) and document["outcome"]:
        changed["outcome"] = {**document["outcome"], "witness": ours}
    return {**document, **changed}


def _mappings(found: Any) -> list[dict[str, Any]]:
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


UPGRADES: Final[Mapping[int, Upgrade]] = MappingProxyType({1: _with_witnesses})
"""Version -> what turns a record of it into one of the next."""


def upgraded(
    document: Mapping[str, Any], *, upgrades: Mapping[int, Upgrade] = UPGRADES, current: int = SCHEMA
) -> dict[str, Any]:
    """The document in the current format.

    :raises RecordError: for a record that a newer program wrote, or one whose version no step leads on from.
    """
    version = document.get("schema", 1)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise RecordError(f"{version!r} is no schema version", where="schema", hint=f"write schema: {current}")
    if version > current:
        raise RecordError(
            f"written for schema {version}; this program reads up to {current}", where="schema", hint="update oomdoc"
        )
    result = dict(document)
    for step in range(version, current):
        if step not in upgrades:
            raise RecordError(f"no upgrade from schema {step}", where="schema")
        result = {**upgrades[step](result), "schema": step + 1}
    return result
