"""Which framework a text comes from, and whether it is text at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import negated
from oomdoc.intake.sieve import Sieve, Vocabulary
from oomkb.errors import InputError

# (canonical name, what only it writes, what merely names it). The first kind weighs more.
_RE: Final = patterns(__file__)
_NAMED: Final = _RE.group("named")
_SIEVE: Final = Sieve(
    ((*sure.literals, *_NAMED[name].literals), (name, sure, _NAMED[name])) for name, sure in _RE.group("sure").items()
)
_BASES: Final = {"transformers": 0.3, "deepspeed": 0.3, "trl": 0.8, "vllm": 0.9}
"""Libraries that others are built on: their frames show in everybody's tracebacks."""
_ALONE, _AMONG_OTHERS = 0.8, 0.9
"""Score from which a name is the framework's, where nothing else is named and where something is."""


def framework_of(lines: Sequence[Line], words: Vocabulary) -> str | None:
    """The framework that the lines show, by the names of :mod:`oomkb.frameworks`; ``None`` where none does.

    :param words: the vocabulary of the lines, or of more than them.
    """
    score: Counter[str] = Counter()
    for _, line, marks in _SIEVE.over(lines[:20000], words):
        if "not installed" in line.raw:
            continue
        for name, sure, named in marks:
            weight = 3.0 if sure.search(line.raw) else 0.0
            if not weight and (hit := named.search(line.raw)) is not None and not negated(line.raw, hit.start()):
                weight = 1.0
            if weight:
                score[name] = max(score[name], weight * _BASES.get(name, 1.0)) + 0.01  # type: ignore[assignment]
    if not score:
        return None
    name, best = max(score.items(), key=lambda item: item[1])
    return name if best >= (_ALONE if len(score) == 1 else _AMONG_OTHERS) else None


def frameworks_named(text: str) -> tuple[str, ...]:
    """The frameworks whose names stand in a text and are not denied, in their order."""
    places = {
        name: min((m.start() for m in pattern.finditer(text) if not negated(text, m.start())), default=-1)
        for name, pattern in _NAMED.items()
    }
    return tuple(sorted((name for name, start in places.items() if start >= 0), key=lambda name: places[name]))


def check_text(text: str, name: str) -> None:
    """Refuse what is not text.

    :raises InputError: for binary content, naming the source.
    """
    head = text[:65536]
    odd = len(_RE["odd"].findall(head))
    if head and (odd > 0.1 * len(head) or (head.count("\x00") > 8 and odd > 0.02 * len(head))):
        raise InputError(
            "this is not text",
            where=name,
            hint="give a log, a config or what you would paste; .gz and .zst are unpacked",
        )
