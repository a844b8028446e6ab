"""A played step in bytes: the fullest instant of each phase, for any batch size and length.

A form's units reduce to three numbers for given dimensions: bytes, bytes per token, bytes per token and length. Of the
instants of a step those are kept that can be the fullest, so that each price costs microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.forms import Form, Triple, Units, add, plus
from oomkb.memory.program import Instants, Key, Program

Extra = Callable[[str, str, str], Mapping[str, float]]
"""(phase, part, share) -> terms."""
_NONE: Final[Mapping[str, float]] = {}
_ALL: Final[frozenset[str]] = frozenset()
_SIZES_KEPT: Final = 8
_ALIKE_BYTES: Final = 0.5
"""Sizes that differ by less differ by rounding."""
_NOTHING: Final[Triple] = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Instant:
    """One instant reduced: (bytes, per token, per token and length), and the forms that it adds up."""

    total: Triple
    base: Form
    form: Form


class Step:
    """All instants of one step for one shape and mode."""

    def __init__(self, played: Program, kinds: tuple[str, ...], values: Mapping[str, float], *, ckpt: bool) -> None:
        self._played = played
        self._own = Units(values, "recomputed layer" if ckpt else "activations")
        self._others = Units(values, "activations")
        self._counts = Counter(kinds)
        self._counts.subtract(played.kinds)
        self._fronts: dict[tuple[str, Key], tuple[Sequence[Instant], Sequence[Triple]]] = {}
        self._segments: dict[int, Sequence[Instant]] = {}
        self._termed: dict[tuple[int, Key], dict[str, Triple]] = {}
        self._sizes: dict[tuple[float, float], dict[str, dict[Key, tuple[float, Instant]]]] = {}

    @property
    def phases(self) -> Mapping[str, object]:
        """The phases that have instants."""
        return self._played.instants

    @cached_property
    def saved(self) -> Triple:
        """What the layers keep for one micro-batch, the loss left out."""
        own = self._others.total({u: v for u, v in self._played.after_forward.items() if "V" not in u})
        return add(own, *self._further["kept"].values())

    def saved_bytes(self, tokens: float, square: float) -> float:
        """The same for ``tokens`` and the sum of squared lengths."""
        c, t, q = self.saved
        return c + t * tokens + q * square

    def peak(
        self,
        phase: str,
        tokens: float,
        square: float,
        extra: Extra | None = None,
        without: frozenset[str] = _ALL,
    ) -> tuple[float, Mapping[str, float]]:
        """Bytes and terms at the fullest instant of ``phase`` for ``tokens`` and the sum of squared lengths.

        :param extra: what a sharding wrapper holds while a part of the model runs.
        :param without: parts of the model that this GPU does not have.
        """
        best, fullest = float("-inf"), None
        for key, (own, chosen) in self._at(phase, tokens, square).items():
            if key[0] in without:
                continue
            more = extra(phase, *key) if extra else _NONE
            size = own + sum(more.values()) if more else own
            if size > best + _ALIKE_BYTES:
                best, fullest = size, (chosen, key, more)
        return best, ({} if fullest is None else self._terms(*fullest, tokens, square))

    def at_part(
        self, phase: str, part: str, share: str, tokens: float, square: float, extra: Extra
    ) -> Mapping[str, float]:
        """Terms at the fullest instant while one part of the model runs; none where it has no instants."""
        found = self._at(phase, tokens, square).get((part, share))
        return {} if found is None else self._terms(found[1], (part, share), extra(phase, part, share), tokens, square)

    def _at(self, phase: str, tokens: float, square: float) -> dict[Key, tuple[float, Instant]]:
        """The fullest instant of each part; optimizers, cards and numbers of ranks are compared at one size."""
        known = self._sizes.get((tokens, square))
        if known is None:
            if len(self._sizes) >= _SIZES_KEPT:
                self._sizes.clear()
            known = self._sizes[tokens, square] = {}
        if phase not in known:
            known[phase] = {key: self._fullest(phase, key, tokens, square) for key in self._played.instants[phase]}
        return known[phase]

    def _fullest(self, phase: str, key: Key, tokens: float, square: float) -> tuple[float, Instant]:
        found = self._fronts.get((phase, key))
        if found is None:
            front = self._front(phase, key)
            found = self._fronts[phase, key] = front, [instant.total for instant in front]
        front, totals = found
        sizes = [c + t * tokens + q * square for c, t, q in totals]
        size = max(sizes)
        if len(front) == 1:
            return size, front[0]
        alike = [instant for instant, its in zip(front, sizes, strict=True) if its > size - _ALIKE_BYTES]
        return size, max(alike, key=lambda instant: instant.total[1:])

    def _front(self, phase: str, key: Key) -> Sequence[Instant]:
        """Those instants that no other one exceeds in all three numbers."""
        whole, found = add(*self._further[key[1]].values()), []
        for base, segment in self._played.instants[phase][key]:
            below = add(self._own.total(base), whole)
            found += [Instant(add(below, top.total), base, top.form) for top in self._front_of(segment)]
        return _highest(found)

    def _front_of(self, segment: Instants) -> Sequence[Instant]:
        """The same of one segment by itself."""
        found = self._segments.get(id(segment))
        if found is None:
            found = _highest([Instant(self._own.total(form), _NONE, form) for form in segment])
            self._segments[id(segment)] = found
        return found

    @cached_property
    def _further(self) -> Mapping[str, Mapping[str, Triple]]:
        """By share: what all other layers hold, by term."""
        played, out = self._played, dict[str, dict[str, Triple]](none={})
        for share, forms in (("saved", played.saved), ("kept", played.kept), ("grads", played.grads)):
            terms = out[share] = {}
            for kind, form in forms.items():
                n = self._counts[kind]
                for name, (c, t, q) in self._others.terms(form).items():
                    terms[name] = add(terms.get(name, _NOTHING), (c * n, t * n, q * n))
        return out

    def _terms(
        self, chosen: Instant, key: Key, more: Mapping[str, float], tokens: float, square: float
    ) -> dict[str, float]:
        found = self._termed.get((id(chosen), key))
        if found is None:
            found = self._own.terms(plus(chosen.base, chosen.form))
            for name, triple in self._further[key[1]].items():
                found[name] = add(found.get(name, _NOTHING), triple)
            self._termed[id(chosen), key] = found
        terms = dict(more)
        for name, (c, t, q) in found.items():
            terms[name] = terms.get(name, 0.0) + c + t * tokens + q * square
        return terms


def _highest(found: Sequence[Instant]) -> Sequence[Instant]:
    kept: list[Instant] = []
    for one in sorted(found, key=lambda one: -sum(one.total)):
        c, t, q = one.total
        if not any(k[0] >= c and k[1] >= t and k[2] >= q for k in [other.total for other in kept]):
            kept.append(one)
    return kept
