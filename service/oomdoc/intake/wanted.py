"""What a question asks for: the nearest pair of a word that asks for an amount or an extreme and a quantity.

``how many`` + ``users``, ``max`` + ``ctx len``, ``最多`` + ``几个请求``: any word of the one kind with any of the other
in either order, a few words apart in one sentence. A quantity that has its value beside it is stated, not asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final, Literal, cast

from oomdoc.intake.patterns import patterns
from oomdoc.intake.quantities import quantities_in
from oomdoc.intake.quantities.fields import SURE
from oomdoc.intake.several import sentences_in, several_questions
from oomdoc.intake.wanted_words import wanted_by_words

Wanted = Literal[
    "fit", "amount", "batch", "length", "cards", "requests", "reserved", "cache", "host", "share", "model", "layers"
]
"""``requests``: how many at once; ``reserved``: why an engine that runs holds as much as it does; ``cache``: how large
the KV cache alone is; ``host``: how much of the machine's own memory; ``share``: what one term takes; ``model``: the
largest that a card holds; ``layers``: how many of them go on the card.
"""
_RE: Final = patterns(__file__)
_MAX_WORDS: Final = {"least": 7, "extreme": 7, "smallest": 7, "count": 7, "which": 2}
"""Words between a word that asks and the quantity that it asks for."""
_BEFORE: Final = {True: 1.5, False: 0.5}
"""Words of distance that a quantity before the word that asks for it counts more, in English and in Chinese."""
_OF_A_CARD: Final = frozenset([("smallest", "cards"), ("which", "cards")])
"""Questions for a card are for what it must hold."""
_COUNTED: Final = frozenset({"requests", "cards"})
"""Quantities whose number stands before them."""
_MAX_TO_PART: Final = 3
"""The same of one part of the memory, which is named for many other reasons."""
_PARTS: Final = frozenset({"share", "cache"})
_NO_PAIRS: Final = frozenset(
    [
        *(("extreme", what) for what in ("amount", "host", "cards")),
        *((how, what) for how in _MAX_WORDS if how != "count" for what in _PARTS),
        *((how, "model") for how in _MAX_WORDS if how != "extreme"),
        *((how, "layers") for how in _MAX_WORDS if how != "count"),
    ]
)
"""A limit of memory is no question for it."""


def wanted_in(text: str) -> Wanted:
    """What a question wants, the first one that wants a quantity; ``fit`` where none is asked for."""
    several = several_questions(text)
    first = _wanted(several.first) if several is not None and not several.numbered else "fit"
    return _wanted(text) if first == "fit" else first


def _wanted(text: str) -> Wanted:
    rule = by_rules(text)
    return rule if _stands(rule, text) else agreed(rule, text, *wanted_by_words(text))


_ROLES: Final = {
    "batch": ("micro_batch", "batch", "global_batch"),
    "length": ("length",),
    "requests": ("users",),
    "cards": ("gpu_count", "gpus_per_node"),
    "layers": ("layers_on_card",),
}
"""Of what a number is that is a value of the quantity: one that has a value is seldom asked for."""


def _asks(text: str) -> bool:
    """Whether a text asks, with a question mark or without."""
    rows = (_RE["puts"], *_RE.group("asks").values())
    return "?" in text or "？" in text or any(row.search(text) for row in rows)


def _stands(rule: Wanted, text: str) -> bool:
    """Whether what a rule names stands, whatever else the words may ask for.

    Words count only in a text that asks, and that names a model, a card or a size.
    """
    return rule in _PARTS or not (_RE["digit"].search(text) and _asks(text))


def agreed(rule: Wanted, text: str, word: str, probability: float) -> Wanted:
    """A quantity that a rule names; the one that the words ask for where no rule does, or they all but surely do."""
    if word == "fit" or _stands(rule, text):
        return rule
    sure = {q.role for q in quantities_in(text) if q.probability >= SURE}
    has_value = "used_memory" not in sure and not sure.isdisjoint(_ROLES.get(word, ()))
    least = _ALL_BUT_SURE if rule not in _SUMS else _HAS_VALUE if has_value else _SURE
    return rule if probability < least else cast("Wanted", word)


_SUMS: Final = frozenset({"fit", "amount"})
"""Answers that give no further quantity than the memory that a run needs."""
_ALL_BUT_SURE: Final = 0.9
_HAS_VALUE: Final = 0.85
"""The same where the text has a value of the quantity, and nothing that was measured at it."""
_SURE: Final = 0.5
"""Probability from which the words of a question say what it wants."""


def by_rules(text: str) -> Wanted:
    """The quantity that a pair of words names; ``fit`` for none."""
    sentences = list(sentences_in(text))
    for some in ([one for one in sentences if one.rstrip()[-1:] in ("?", "？") or _RE["puts"].search(one)], sentences):
        if pairs := [(cost, n, kind) for n, sentence in enumerate(some) for cost, kind in _pairs(sentence)]:
            return cast("Wanted", min(pairs, key=lambda pair: pair[:2])[2])
    alone = (name for name, pattern in _RE.group("alone").items() if pattern.search(text))
    return cast("Wanted", next(alone, "fit"))


def _pairs(text: str) -> Iterator[tuple[float, str]]:
    """The pairs of a sentence and what each costs, in words of distance."""
    yield from ((0.0, kind) for kind in _named(text))
    groups = _RE.group("asks").items()
    asking = [(kind, *found.span()) for kind, pattern in groups for found in pattern.finditer(text)]
    quantities = list(_quantities(text)) if asking else []
    for (how, start, end), (what, first, last) in product(asking, quantities):
        ahead = last <= start
        between = text[last:start] if ahead else text[end:first]
        words = len(_RE["word"].findall(between))
        most = min(_MAX_WORDS[how], _MAX_TO_PART) if what in _PARTS else _MAX_WORDS[how]
        if words > most or (how, what) in _NO_PAIRS or (how == "which" and ahead) or _RE["parts"].search(between):
            continue
        order = ahead * _BEFORE[text[last - 1].isascii()]
        kind = "amount" if (how, what) in _OF_A_CARD else what
        yield words + order, kind


def _named(text: str) -> Iterator[str]:
    """The quantity by which a question begins, or a Chinese one ends, that has no verb."""
    for what, first, last in _quantities(text):
        begins = _RE["names"].match(text[:first]) is not None
        if (begins or not text[first:last].isascii() or "的" in text[max(0, first - 3) : first]) and _RE[
            "names_behind"
        ].match(text, last):
            yield what


def _quantities(text: str) -> Iterator[tuple[str, int, int]]:
    """Quantities without a value, each place once; of two names of one place that of the earlier row counts."""
    taken: list[tuple[int, int]] = []
    for kind, pattern in _RE.group("quantity").items():
        for found in pattern.finditer(text):
            first, last = found.span()
            if any(first < stop and begin < last for begin, stop in taken):
                continue
            taken.append((first, last))
            before, behind = ("count_before", "count_behind") if kind in _COUNTED else ("value_before", "value_behind")
            if not _RE[behind].match(text, last) and not _RE[before].search(text, max(0, first - 24), first):
                yield kind, first, last
