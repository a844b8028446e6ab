"""The defaults of a framework that decide memory, and the settings it has keys for."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.memory.job import Job

PLAIN: Final = "transformers"
"""What a run is taken to be written on where nothing says otherwise."""
ENGINE: Final = "vllm"
"""What serves a model where nothing says otherwise."""


@lru_cache(maxsize=512)
def _parsed(versions: str, version: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(versions, prereleases=True).contains(Version(version))
    except (InvalidSpecifier, InvalidVersion):
        return False


def in_range(versions: str, version: str | None) -> bool:
    """Whether ``version`` lies in ``versions`` (PEP 440, ``">=0.22,<1.0"``; empty: any).

    An unknown version counts as the newest: it satisfies a range without an upper end.
    """
    if not versions:
        return True
    if version is None:
        return "<" not in versions and "==" not in versions
    return _parsed(versions, version)


@dataclass(frozen=True, slots=True)
class Default:
    """The value a framework takes for a job field when nobody says anything.

    :param value: the value, or a function of the job as known so far.
    :param source: file and version, or document, in which the default was read.
    :param versions: releases of the framework that it holds for (PEP 440).
    :param when: the circumstances it holds in; ``None`` for all.
    """

    field: str
    value: Any
    why: str
    source: str
    versions: str = ""
    when: Callable[[Job], bool] | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """A job field the framework has a key for; ``values`` limits what it may be set to (``None``: anything)."""

    field: str
    values: frozenset[Any] | None = None
    versions: str = ""
