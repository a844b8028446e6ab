"""Compiled cases: the parsed records of a set of files kept as one JSON file, so that a cold start reads no YAML.

The key is a hash over every file's path, size and time of change and over the format, so a stale file is never used;
where the state folder cannot be written, nothing is kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from oomkb.records.case import Affected, Case, Fix, Hardware, Outcome, Range, Reference, Signature
from oomkb.records.files import Listed

__all__ = ["fingerprint", "keep", "kept"]

_FORMAT: Final = 1
"""Raise it when :class:`Case` changes its fields."""


def _folder() -> Path:
    asked = os.environ.get("OOMDOC_STATE")
    if asked:
        return Path(asked).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path(os.path.expanduser("~")) / ".cache") / "oomdoc"  # noqa: PTH111


def fingerprint(files: Sequence[Listed]) -> str:
    """What changes whenever one of the files does."""
    digest = hashlib.sha256(f"oomkb.records {_FORMAT}".encode())
    for path, size_bytes, changed_ns in files:
        digest.update(f"\0{path}\0{size_bytes}\0{changed_ns}".encode())
    return digest.hexdigest()


def _path(folders_key: str) -> Path:
    return _folder() / f"cases-{folders_key[:12]}.json"


def keep(folders_key: str, mark: str, cases: Sequence[Case], problems: Sequence[Mapping[str, str]]) -> None:
    """Write the compiled form; silently nothing where that is not possible."""
    body = {"mark": mark, "cases": [dataclasses.asdict(c) for c in cases], "problems": list(problems)}
    with contextlib.suppress(OSError):
        path = _path(folders_key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".cases-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(body, file, ensure_ascii=False, separators=(",", ":"))
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def kept(folders_key: str, mark: str) -> tuple[tuple[Case, ...], list[dict[str, str]]] | None:
    """The compiled cases and the problems found with the others; ``None`` where there are none for this mark."""
    try:
        body = json.loads(_path(folders_key).read_bytes())
        if body["mark"] != mark:
            return None
        return tuple(_case(c) for c in body["cases"]), body["problems"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _case(plain: dict[str, Any]) -> Case:
    values = dict(plain)
    for name in ("symptoms", "frameworks", "also", "languages"):
        values[name] = tuple(values[name])
    values["signatures"] = tuple(Signature(**s) for s in values["signatures"])
    values["hardware"] = Hardware(**values["hardware"])
    values["outcome_before"] = Outcome(**values["outcome_before"])
    values["outcome_after"] = Outcome(**values["outcome_after"])
    values["fixes"] = tuple(Fix(**f) for f in values["fixes"])
    values["references"] = tuple(Reference(**r) for r in values["references"])
    values["affected"] = tuple(
        Affected(a["package"], tuple(Range(**r) for r in a["ranges"]), a["needs"]) for a in values["affected"]
    )
    return Case(**values)
