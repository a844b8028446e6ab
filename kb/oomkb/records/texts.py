"""Comparing texts of two languages: words of Latin script, and single characters of Chinese."""

from __future__ import annotations

from typing import Final

from oomkb.lazy import lazy

_TOKEN: Final = lazy(r"[㐀-鿿]|[a-z0-9_]{1,200}")
_CHINESE: Final = lazy(r"[㐀-鿿]")


def tokens(text: str) -> list[str]:
    """Words in lower case; each Chinese character counts as one."""
    return _TOKEN.findall(text.lower())


def has_chinese(text: str) -> bool:
    """Whether there is a Chinese character in it."""
    return _CHINESE.search(text) is not None


def shingles(text: str, size: int = 3) -> frozenset[tuple[str, ...]]:
    """The runs of ``size`` tokens."""
    words = tokens(text)
    return frozenset(tuple(words[i : i + size]) for i in range(max(len(words) - size + 1, 0)))


def overlap(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    """Shared part of two sets of shingles, 0..1 (Jaccard)."""
    union = len(one | other)
    return len(one & other) / union if union else 0.0


def shared_run(one: str, other: str, *, words: int = 8, characters: int = 14) -> str:
    """The first run that both texts hold: ``words`` tokens, or ``characters`` where the run is Chinese; else ``""``."""
    for size, chinese in ((words, False), (characters, True)):
        common = shingles(other, size)
        for run in _runs(tokens(one), size):
            if run in common and chinese == (sum(map(has_chinese, run)) * 2 > size):
                return (" " if not chinese else "").join(run)
    return ""


def _runs(words: list[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + size]) for i in range(max(len(words) - size + 1, 0))]
