"""Who vouches for a claim of a case, and what may be said of a fix because of it.

The status of a fix is never written down: it follows from its witnesses. "Confirmed" is said only where somebody tried
it and it worked, or where the code was merged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from oomkb.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Witness:
    """One witness of one claim; what does not belong to its kind is empty.

    ``by``: somebody in the thread tried it (``reporter-tried``); a maintainer or a user says so; it is in the code
    (``merged-code``); it follows from a sum (``arithmetic``); this project ``reproduced`` it with a command; it is the
    reasoning of the case's author (``inference``).
    """

    by: str
    ref: str = ""
    """The page, one of the case's references."""
    result: str = ""
    """Of a trial: ``worked``, ``partly`` or ``in-vain``."""
    pull: str = ""
    """Of merged code: ``owner/name#number``; or ``commit``."""
    commit: str = ""
    release: str = ""
    """The first release that has the merged code."""
    sum: str = ""
    """Of arithmetic: ``expression = value``."""
    command: str = ""
    """Of what this project reproduced: the command that prints it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What may be said of a fix: ``kind``, and the ``detail`` (a release, a pull request or a sum) where it has one."""

    kind: str
    detail: str = ""
    ref: str = ""
    unseen: str = ""
    """The day on which ``ref`` could not be opened, so that nobody could compare."""


_KIND: Final = {
    "maintainer-said": "maintainer",
    "user-said": "user",
    "arithmetic": "arithmetic",
    "reproduced": "reproduced",
    "inference": "reasoning",
}
_STATUS: Final = {
    "worked": "confirmed-by-reporter",
    "elsewhere": "confirmed-by-reporter",
    "released": "confirmed-by-maintainer",
    "merged": "confirmed-by-maintainer",
    "reproduced": "arithmetic",
    "arithmetic": "arithmetic",
    "in-vain": "unknown",
    "unknown": "unknown",
}
"""Kind of standing -> status of the JSON documents; every other kind is ``suggested``."""


def standing_of(witnesses: Sequence[Witness], reports: Collection[str] = ()) -> Standing:
    """The strongest thing that the witnesses bear out; one who tried it in vain outweighs who only says so.

    :param reports: the pages of the failure itself. What worked only on another page is ``elsewhere``, with that page
        (``owner/name#number``) as detail, and code that was merged outweighs it.
    """
    tried = {w.result: w for w in reversed(witnesses) if w.by == "reporter-tried"}
    here = [w for w in witnesses if w.result == "worked" and (not reports or w.ref in reports)]
    if here:
        return Standing("mixed" if "in-vain" in tried else "worked", ref=here[0].ref)
    for w in sorted(witnesses, key=lambda w: not w.release):
        if w.by == "merged-code":
            return Standing("released" if w.release else "merged", w.release or w.pull or w.commit, w.ref)
    if "worked" in tried:
        return Standing("mixed" if "in-vain" in tried else "elsewhere", _page(tried["worked"].ref), tried["worked"].ref)
    for result in ("partly", "in-vain"):
        if result in tried:
            return Standing(result, ref=tried[result].ref)
    for by in ("reproduced", "maintainer-said", "user-said", "arithmetic", "inference"):
        for w in witnesses:
            if w.by == by:
                return Standing(_KIND[by], w.sum or w.command, w.ref)
    return Standing("unknown")


def _page(url: str) -> str:
    """``owner/name#number`` of a thread on GitHub; of any other page its address."""
    return re.sub(r"^https://github\.com/([\w.-]+/[\w.-]+)/\w+/(\d+).*$", r"\1#\2", url)


def status_of(witnesses: Sequence[Witness]) -> str:
    """One of :data:`~oomkb.records.taxonomy.STATUSES`."""
    return _STATUS.get(standing_of(witnesses).kind, "suggested")
