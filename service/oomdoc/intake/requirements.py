"""Installed versions, from requirements files and from this environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["installed_versions", "parse_requirements"]

_REQUIREMENT: Final = re.compile(
    r"^\s{0,20}(?:- )?([A-Za-z0-9][A-Za-z0-9._-]{0,80})(?:\[[^\]]{0,200}\])?"  # name, extras
    r"(?:\s{0,40}={2,3}\s{0,10}|\s{1,40}|=)v?(\d[0-9A-Za-z.+!_-]{0,40})(?=[\s=;,#]|$)"  # the version it is pinned to
)


def parse_requirements(text: str) -> dict[str, str]:
    """Package -> exact version, of a requirements file, ``pip freeze``, ``pip list``, or a conda environment.

    Lines that pin nothing (ranges, paths, URLs, options) are left out.
    """
    return dict(_pins(text))


def _pins(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        found = _REQUIREMENT.match(line)
        if found and "@" not in line.partition("#")[0]:
            yield re.sub(r"[-_.]+", "-", found[1].lower()), found[2]


def installed_versions() -> dict[str, str]:
    """Package -> version of this Python environment."""
    from importlib.metadata import distributions

    names = ((d.metadata["Name"], d.version) for d in distributions())
    return {re.sub(r"[-_.]+", "-", name.lower()): version for name, version in names if name}
