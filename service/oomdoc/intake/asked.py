"""What a plain question wants to know: whether it fits, how much it takes, how large it may be, how many cards.

Questions in the field's ordinary words, English or Chinese; a word decides only where the facts leave something open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from oomdoc.evidence import Evidence
from oomdoc.intake.patterns import patterns

__all__ = ["Asked", "Wanted", "asked_in", "asked_of", "pairs_in"]

Wanted = Literal["fit", "amount", "batch", "length", "cards", "requests", "reserved"]
"""``requests``: how many at once; ``reserved``: why an engine that runs holds as much as it does."""
_I: Final = re.IGNORECASE | re.ASCII
_MAX_CHARACTERS: Final = 4000
_RE: Final = patterns(__file__)


def _capacity(text: str) -> float | None:
    found = _RE["capacity"].search(text)
    size = float(found["a"] or found["b"] or found["c"]) if found is not None else 0.0
    return size if 2 <= size <= 512 else None


def _length(text: str) -> int | None:
    found = _RE["length"].search(text)
    if found is None:
        return None
    number = (found["a"] or found["b"]).replace(",", "").replace(" ", "").lower()
    unit = {"k": 1024, "m": 1 << 20}.get(number[-1])
    size = int(number[:-1]) * unit if unit else int(number)
    return size if 16 <= size <= 1 << 22 else None


def _concurrency(text: str) -> int | None:
    found = _RE["concurrency"].search(text)
    count = int(next(n for n in found.groups() if n)) if found is not None else 0
    return count if 1 < count <= 4096 else None


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked, and what the words say of the run that the facts may leave open."""

    wanted: Wanted = "fit"
    trains: bool = False
    serves: bool = False
    full: bool = False
    """Whether all weights are said to be trained."""
    scratch: bool = False
    engine: str | None = None
    """The engine that is named."""
    capacity_gib: float | None = None
    """What one card holds, where only that is said."""
    concurrency: int | None = None
    """Requests at once."""
    length: int | None = None
    """Tokens of context or of a sample."""
    pure: bool = False
    """Whether training is said to be in 16 bits throughout."""
    quant: str | None = None
    """How the weights are stored, in the words of a job's ``quant`` (``none``: 16 bits)."""


def _first(group: str, text: str) -> Any:
    """The first of a group's names whose words stand there."""
    low = text.lower()
    found = (name for name, pattern in _RE.group(group).items() if pattern.may_match(low) and pattern.search(text))
    return next((name.partition(":")[0] for name in found), None)


def asked_in(prose: str) -> Asked:
    """What the words of a question want; ``fit`` where nothing else is asked."""
    text = prose[:_MAX_CHARACTERS]
    wanted: Wanted = _first("wanted", text) or "fit"
    return Asked(
        wanted=wanted,
        trains=_RE["trains"].search(text) is not None,
        serves=_RE["serves"].search(text) is not None,
        capacity_gib=_capacity(text),
        length=_length(text),
        concurrency=_concurrency(text),
        full=_RE["full"].search(text) is not None,
        scratch=_RE["scratch"].search(text) is not None,
        engine=_first("engine", text),
        pure=_RE["pure"].search(text) is not None,
        quant=_first("format", text),
    )


def asked_of(evidence: Evidence, *, failed: bool = False) -> Asked:
    """What the words of an input ask for; of one without words, what its documents are about.

    :param failed: whether it tells of a failure: then the failing lines count too.
    """
    if failed:
        return asked_in(f"{evidence.prose}\n{evidence.digest}")
    return asked_in(evidence.prose or "\n".join(document.text[:2000] for document in evidence.documents))


def pairs_in(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """``field=value`` as written in the words, in order."""
    found = _RE["pair"].finditer(evidence.prose[:_MAX_CHARACTERS])
    return tuple((match[1], match[2].strip("\"'`,;，；。")) for match in found)
