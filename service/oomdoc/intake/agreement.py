"""Whether two values of one fact can both be meant: what is merely spelt differently is no conflict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from oomdoc.evidence import SIZES, Conflict, Fact
from oomkb.catalog import gpus
from oomkb.memory.mode import VOCABULARY
from oomkb.units import GIB

_SPECIFIC: Final[Mapping[str, int]] = {
    "option": 0,
    "config": 1,
    "command": 1,
    "env": 1,
    "log": 2,
    "code": 2,
    "prose": 3,
}
_MAX_VALUES: Final = 4
"""Further values kept for one fact."""


def merge(facts: Iterable[Fact]) -> tuple[dict[str, Fact], tuple[Conflict, ...]]:
    """The kept fact of every name, and the conflicts.

    Surest first; of equals the more specific origin (an option, a setting, a log, prose), of those the first read.
    """
    kept: dict[str, Fact] = {}
    rivals: dict[str, list[Fact]] = {}
    for fact in facts:
        rivals.setdefault(fact.name, []).append(fact)
    conflicts: list[Conflict] = []
    for name, several in rivals.items():
        ranked = sorted(several, key=lambda f: (f.origin != "option", -f.confidence, _SPECIFIC[f.origin]))
        best = ranked[0]
        kept[name] = best
        seen: list[Any] = []
        for other in ranked[1:]:
            found = conflict(best, other)
            if found is not None and len(seen) < _MAX_VALUES and all(differ(name, other.value, v) for v in seen):
                seen.append(other.value)
                conflicts.append(found)
    if not _is_of_card(kept.get("capacity_gib"), kept.get("gpu")):
        del kept["capacity_gib"]
    return kept, tuple(conflicts)


def _is_of_card(capacity: Fact | None, gpu: Fact | None) -> bool:
    """Whether a capacity in prose can be that of the card that is named; some are sold with twice as much."""
    if capacity is None or gpu is None or capacity.origin != "prose":
        return True
    sizes = [device.capacity_bytes for device in gpus.variants(str(gpu.value))]
    return not sizes or float(capacity.value) * GIB <= _MAX_TIMES_OF_CARD * max(sizes)


_MAX_TIMES_OF_CARD: Final = 2.2
_SEVERAL: Final = frozenset({"extra.eval_samples"})
"""What one run has several of: sets that it is evaluated on."""
_MIN_CONFIDENCE: Final = 0.6
"""Below this a reading is a guess from context: it may fill a gap, it is no witness against another one."""

_DTYPES: Final = {
    "".join(filter(str.isalnum, spelling)): word
    for word, spellings in VOCABULARY["param_dtype"].items()
    for spelling in spellings.split()
}
"""How a type is written, letters and digits alone -> the job's word for it."""


def conflict(kept: Fact, other: Fact) -> Conflict | None:
    """The conflict of two readings of one fact, where both are stated and cannot both be meant."""
    unsure = kept.name in _SEVERAL or min(kept.confidence, other.confidence) < _MIN_CONFIDENCE
    if unsure or not differ(kept.name, kept.value, other.value):
        return None
    return Conflict(kept, other)


def differ(name: str, a: Any, b: Any) -> bool:
    """Whether two values cannot both be meant: "80 GB" on the box and 79.33 GiB in the log can."""
    if isinstance(a, bool) or isinstance(b, bool):
        return bool(a) != bool(b)
    if isinstance(a, int | float) and isinstance(b, int | float):
        room = 0.09 if name in SIZES else 0.0
        return abs(a - b) > room * max(abs(a), abs(b))
    if isinstance(a, str) and isinstance(b, str):
        return _words_differ(name, a, b)
    if isinstance(a, list | tuple | set | frozenset) and isinstance(b, list | tuple | set | frozenset):
        return {str(v) for v in a} != {str(v) for v in b}
    return str(a) != str(b)


def _words_differ(name: str, a: str, b: str) -> bool:
    x, y = _plain(a), _plain(b)
    if x in y or y in x:
        return False
    if name == "model":
        x, y = (_plain(text.rstrip("/").rsplit("/", 1)[-1]) for text in (a, b))
        if x and y and (x in y or y in x):
            return False
    return not _same_entry(name, a, b)


def _plain(text: str) -> str:
    joined = "".join(c for c in text.lower() if c.isalnum())
    return _DTYPES.get(joined, joined)


def _same_entry(name: str, a: str, b: str) -> bool:
    """Whether the catalogues know both as one thing: ``A100-SXM4-80GB`` and ``A100 80G``."""
    from oomkb.catalog import gpus, models

    if name not in ("gpu", "model"):
        return False
    find: Callable[[str], Any] = gpus.find if name == "gpu" else models.find
    one, other = find(a), find(b)
    return one is not None and other is not None and one.name == other.name
