"""Tensor against pipeline parallelism, as a question sets them against each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from oomdoc.intake.patterns import patterns
from oomdoc.intake.worded import Alternative, Mention

_RE: Final = patterns(__file__)


def layouts_in(text: str, cards: Iterable[Mention]) -> tuple[Alternative, ...]:
    """One model split within its layers or between them, over as many cards as the words count.

    None where nothing counts the cards.
    """
    found, order = _RE["tensor_first"].search(text), ("tp", "pp")
    if found is None:
        found, order = _RE["pipeline_first"].search(text), ("pp", "tp")
    if found is None:
        return ()
    counted = [int(n) for n in found.groups() if n] or [m[2].fields["gpus"] for m in cards if "gpus" in m[2].fields]
    degree = max(counted, default=1)
    sides = {
        "tp": Alternative(f"TP {degree}", {"tp": degree, "pp": 1, "gpus": degree, "nodes": 1}),
        "pp": Alternative(f"PP {degree}", {"tp": 1, "pp": degree, "gpus": degree, "nodes": 1}),
    }
    return tuple(sides[name] for name in order) if degree > 1 else ()
