"""Installed versions against affected ranges (in the manner of OSV's ``ECOSYSTEM`` ranges, PEP 440 order)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from oomkb.records.case import Affected, Range

__all__ = ["Hit", "affects", "covers", "package_name"]


@dataclass(frozen=True, slots=True)
class Hit:
    """An installed version that lies in an affected range."""

    package: str
    version: str
    range: Range
    needs: str = ""

    @property
    def fixed(self) -> str | None:
        """The first version with the fix, where one exists."""
        return self.range.fixed


_ALIASES: Final[Mapping[str, str]] = {"pytorch": "torch", "llama-factory": "llamafactory", "swift": "ms-swift"}


def package_name(name: str) -> str:
    """A package's name as PyPI normalises it, with the spellings people use folded in."""
    plain = re.sub(r"[-_.]+", "-", name.strip().lower())
    return _ALIASES.get(plain, plain)


def covers(range_: Range, version: str) -> bool:
    """Whether a version lies in a range. A version that cannot be read lies in none.

    Local parts (``+cu121``) are ignored; a pre-release of the fixed version is still affected.
    """
    from packaging.version import InvalidVersion, Version

    try:
        installed = Version(version.strip().lstrip("v=")).public
        here = Version(installed)
        if range_.introduced != "0" and here < Version(range_.introduced):
            return False
        if range_.fixed is not None:
            return here < Version(range_.fixed)
        return range_.last_affected is None or here <= Version(range_.last_affected)
    except InvalidVersion:
        return False


def affects(affected: Iterable[Affected], versions: Mapping[str, str]) -> Hit | None:
    """The first installed package that is affected, or ``None``. Names are compared as PyPI does."""
    installed = {package_name(name): version for name, version in versions.items()}
    for item in affected:
        version = installed.get(package_name(item.package))
        if version is None:
            continue
        for range_ in item.ranges:
            if covers(range_, version):
                return Hit(item.package, version, range_, item.needs)
    return None
