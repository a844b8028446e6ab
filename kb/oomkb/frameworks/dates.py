"""Releases nobody states, from those that are stated: what is installed together is of one time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path

from oomkb.memory.job import version
from oomkb.tables import read_toml


@cache
def _released() -> dict[str, list[tuple[tuple[int, ...], str, str]]]:
    """By package, oldest first: the release as numbers and as it is written, and its month."""
    table = read_toml(Path(__file__).with_name("dates.toml"))["released"]
    pairs = {name: [item.split() for item in text.split(", ")] for name, text in table.items()}
    return {name: [(version(said), said, month) for said, month in found] for name, found in pairs.items()}


@lru_cache(maxsize=512)
def timely(stated: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """The versions, and for packages of which none is stated the newest before the youngest of them had a successor."""
    known = {name: version(said)[:2] for name, said in stated if version(said)}
    ends = [min((m for n, _, m in _released().get(name, ()) if n > said), default="") for name, said in known.items()]
    before = {name: [r[1] for r in rows if r[2] < max(ends, default="")] for name, rows in _released().items()}
    return {**{name: found[-1] for name, found in before.items() if found}, **dict(stated)}
