"""Installed versions against affected ranges (in the manner of OSV's ``ECOSYSTEM`` ranges, PEP 440 order)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from oomkb.dataclass import dataclass
from oomkb.records.case import Affected, Case, Range

if TYPE_CHECKING:
    from packaging.version import Version

_ALIASES: Final[Mapping[str, str]] = {"pytorch": "torch", "llama-factory": "llamafactory", "swift": "ms-swift"}
_TRIED: Final = frozenset({"worked", "elsewhere", "released", "merged"})
_NEAR_SERIES: Final = 6
"""Release series (minor versions) that it is still reasonable to go back by: about half a year to a year."""


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


@lru_cache(maxsize=4096)
def package_name(name: str) -> str:
    """A package's name as PyPI normalises it, with the spellings people use folded in."""
    plain = re.sub(r"[-_.]+", "-", name.strip().lower())
    return _ALIASES.get(plain, plain)


@lru_cache(maxsize=4096)
def version_of(text: str) -> Version | None:
    """A version as PEP 440 reads it, without its local part (``+cu121``); ``None`` for what is none, such as b5558."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(Version(text.strip().lstrip("v=")).public)
    except InvalidVersion:
        return None


def covers(range_: Range, version: str) -> bool:
    """Whether a version lies in a range. A version that cannot be read lies in none.

    Local parts (``+cu121``) are ignored; a pre-release of the fixed version is still affected.
    """
    bounds = (range_.introduced, range_.fixed or range_.last_affected or range_.introduced)
    here, first, end = version_of(version), *map(version_of, bounds)
    if here is None or first is None or end is None or (range_.introduced != "0" and here < first):
        return False
    return here < end if range_.fixed else here <= end if range_.last_affected else True


def affects(affected: Iterable[Affected], versions: Mapping[str, str]) -> Hit | None:
    """The first installed package that is affected, or ``None``. Names are compared as PyPI does."""
    hits = (Hit(i.package, v, r, i.needs) for i, v in _installed(affected, versions) for r in i.ranges if covers(r, v))
    return next(hits, None)


def seen_with(affected: Iterable[Affected], versions: Mapping[str, str]) -> Hit | None:
    """The first installed version that a reporter had, outside every known range, or ``None``."""
    for item, version in _installed(affected, versions):
        if any(_same(version, seen) for seen in item.seen):
            return Hit(item.package, version, Range(version, last_affected=version), item.needs)
    return None


def _installed(affected: Iterable[Affected], versions: Mapping[str, str]) -> Iterator[tuple[Affected, str]]:
    installed = {package_name(name): version for name, version in versions.items()}
    return ((item, installed[name]) for item in affected if (name := package_name(item.package)) in installed)


def _same(one: str, other: str) -> bool:
    here, there = version_of(one), version_of(other)
    return one.strip() == other if here is None or there is None else here == there


def last_good(case: Case, package: str, range_: Range) -> str | None:
    """The release before the range that a fix of the case goes back to, where somebody tried that or merged it.

    It is of the release series right before the range, never an old one that merely happened to be in use.
    """
    for fix in case.fixes:
        chosen = str((fix.changes.get("versions") or {}).get(package) or "")
        if chosen and case.standing(fix).kind in _TRIED and _right_before(chosen, range_.introduced):
            return chosen
    return None


def is_near(installed: str | None, older: str) -> bool:
    """Whether going back from an installed release to an older one is a small step; unknown versions are not."""
    here, there = version_of(installed or ""), version_of(older)
    if here is None or there is None:
        return False
    return here.major == there.major and 0 <= here.minor - there.minor <= _NEAR_SERIES


def _right_before(version: str, introduced: str) -> bool:
    good, bad = version_of(version), version_of(introduced)
    if good is None or bad is None or introduced == "0" or good >= bad:
        return False
    if good.major == bad.major:
        return bad.minor - good.minor <= 1
    return bad.major - good.major == 1 and bad.minor == 0
