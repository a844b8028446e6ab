"""Installed versions, from requirements files and from this environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from oomdoc.intake.patterns import patterns

_RE: Final = patterns(__file__)


def parse_requirements(text: str) -> dict[str, str]:
    """Package -> exact version, of a requirements file, ``pip freeze``, ``pip list``, or a conda environment.

    Lines that pin nothing (ranges, paths, URLs, options) are left out.
    """
    return dict(_pins(text))


def _pins(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        found = _RE["requirement"].match(line)
        if found and "@" not in line.partition("#")[0]:
            yield re.sub(r"[-_.]+", "-", found[1].lower()), found[2]


def installed_versions() -> dict[str, str]:
    """Package -> version of this Python environment."""
    from importlib.metadata import distributions

    names = ((d.metadata["Name"], d.version) for d in distributions())
    return {re.sub(r"[-_.]+", "-", name.lower()): version for name, version in names if name}
