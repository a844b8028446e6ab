"""Releases nobody states, from those that are stated: what is installed together is of one time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from oomkb.memory.releases import version
from oomkb.toml_files import read_toml


@cache
def _released() -> dict[str, list[tuple[tuple[int, ...], str, str]]]:
    """By package, oldest first: the release as numbers and as it is written, and its month."""
    table = read_toml(Path(__file__).with_name("dates.toml"))["released"]
    pairs = {name: [item.split() for item in text.split(", ")] for name, text in table.items()}
    return {name: [(version(said), said, month) for said, month in found] for name, found in pairs.items()}


def _until(package: str, installed: str) -> str:
    """The month in which the release after this one came out; empty for the newest, and where nothing is known."""
    later = [month for number, _, month in _released().get(package, ()) if number > version(installed)[:2]]
    return later[0] if version(installed) and later else ""


def timely(versions: Mapping[str, str]) -> Mapping[str, str]:
    """The versions, with the newest release of the time of the youngest for packages of which none is stated."""
    month = max(
        (_until(package, installed) for package, installed in versions.items() if package in _released()), default=""
    )
    open_ = {name: [r for r in rows if r[2] < month] for name, rows in _released().items() if name not in versions}
    return {**{name: rows[-1][1] for name, rows in open_.items() if rows}, **versions}
