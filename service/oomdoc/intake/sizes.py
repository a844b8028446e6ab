"""Sizes as logs print them."""

from __future__ import annotations

from typing import Final

SIZE: Final = r"([0-9]{1,20}(?:\.[0-9]{1,12})?) ?((?:[KMGTPE]i?B|[KMGT]i?b|[kKMGT](?![A-Za-z])|bytes?|B)(?![A-Za-z]))"
"""Two groups: number and unit, as in ``4.64 GiB``; bounded, for a line as it stands."""

SQUEEZED_SIZE: Final = r"([0-9]{1,20}(?:\.[0-9]{1,12})?)([KMGTPE]iB|[KMGTPE]B|bytes?|B)"
"""The same in a text without any blanks, where the next word follows at once."""

_POWER: Final = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}


def to_bytes(number: str, unit: str = "") -> int:
    """Bytes of a logged size; every prefix is read as binary, which is what allocators and engines print.

    >>> to_bytes("1.50", "GiB")
    1610612736
    """
    prefix = unit[:1].lower()
    return round(float(number) * (1 << 10 * _POWER.get(prefix, 0)))
