"""Looking for known words in a text: one pass in C for the words, then a search for each that is known."""

from __future__ import annotations

import re
from collections.abc import Callable

_FEW = 24
"""Up to so many different words, a search for each beats another walk over all."""


def words(text: str) -> frozenset[str]:
    """The words of ``text``, which blanks keep apart."""
    return frozenset(text.split())


def lowered(text: str) -> str:
    """``text`` in lower case, character for character (``İ`` is the one letter that would become two)."""
    low = text.lower()
    return low if len(low) == len(text) else text.replace("İ", "i").lower()


def occurrences(low: str, word: re.Pattern[str], known: Callable[[str], bool]) -> list[tuple[int, int, str]]:
    """Where the words that ``known`` accepts stand in ``low``, in order of place.

    :param word: matches one word; its neighbours are characters that it cannot hold.
    """
    accepted = {found for found in set(word.findall(low)) if known(found)}
    if len(accepted) > _FEW:
        return [(m.start(), m.end(), m[0]) for m in word.finditer(low) if m[0] in accepted]
    return sorted(place for found in accepted for place in _places(low, found, word))


def _places(low: str, found: str, word: re.Pattern[str]) -> list[tuple[int, int, str]]:
    places: list[tuple[int, int, str]] = []
    at = low.find(found)
    while at >= 0:
        end = at + len(found)
        # The word is whole where the pattern, started one character earlier or here, finds just it.
        before = word.match(low, at - 1) if at else None
        whole = word.match(low, at)
        if (before is None or before.end() <= at) and whole is not None and whole.end() == end:
            places.append((at, end, found))
        at = low.find(found, end)
    return places
