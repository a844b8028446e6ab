"""A played step in bytes: the fullest instant of each phase, for any batch size and length.

A form's units reduce to three numbers for given dimensions: bytes, bytes per token, bytes per token and length. The
first prices of a shape and mode are read straight off the forms, one number a unit; only a step that is priced again
and again has its instants reduced to those that can be the fullest, so that each later price costs microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from operator import attrgetter, itemgetter, mul
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.memory.forms import Form, Segment, Triple, Units, add, plus
from oomkb.memory.program import Program

Extra = Callable[[str, str, str], Mapping[str, float]]
"""(phase, part, share) -> terms."""
Key = tuple[str, str]
_NONE: Final[Mapping[str, float]] = {}
_ALL: Final[frozenset[str]] = frozenset()
_SIZES_KEPT: Final = 8
_REDUCE_AFTER: Final = 2
"""Prices of a step after which reducing its instants pays."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One instant reduced: (bytes, per token, per token and length), and the forms that it adds up."""

    total: Triple
    base: Form
    form: Form


@dataclass(frozen=True, slots=True)
class _Plan:
    """A program's instants by phase, then by part and share of other layers."""

    units: tuple[str, ...]
    groups: Mapping[str, Mapping[Key, tuple[tuple[Form, Segment], ...]]]
    shares: Mapping[str, Mapping[str, Form]]


@lru_cache(maxsize=4096)
def _planned(played: Program) -> _Plan:
    groups: dict[str, dict[Key, list[tuple[Form, Segment]]]] = {}
    units: dict[str, None] = {}
    for phase, base, segment, share, part in played.instants:
        groups.setdefault(phase, {}).setdefault((part, share), []).append((base, segment))
        units.update(dict.fromkeys(base))
        units.update(dict.fromkeys(segment.units))
    shares = {"none": {}, "saved": played.saved, "kept": played.kept, "grads": played.grads}
    for forms in shares.values():
        for form in forms.values():
            units.update(dict.fromkeys(form))
    frozen = {phase: {key: tuple(found) for key, found in parts.items()} for phase, parts in groups.items()}
    return _Plan(tuple(units), frozen, shares)


class _AtSize:
    """What was found of a step at one size: by phase the fullest instant of each part, and the terms of those."""

    __slots__ = ("instants", "square", "terms", "tokens")

    def __init__(self, tokens: float, square: float) -> None:
        self.tokens, self.square = tokens, square
        self.instants: dict[str, dict[Key, tuple[float, Instant]]] = {}
        self.terms: dict[tuple[int, Key], dict[str, Triple]] = {}


class Step:
    """All instants of one step for one shape and mode."""

    def __init__(self, played: Program, kinds: tuple[str, ...], values: Mapping[str, float], *, ckpt: bool) -> None:
        self._played, self._plan = played, _planned(played)
        self._own = Units(values, "recomputed layer" if ckpt else "activations")
        self._others = Units(values, "activations")
        self._counts = Counter(kinds)
        for kind in played.kinds:
            self._counts[kind] -= 1
        self._prices = 0
        self._at: tuple[float, float] = (-1.0, -1.0)
        self._numbers: dict[str, float] = {}
        self._sums: dict[str, float] = {}
        self._tops: dict[int, tuple[float, Form]] = {}
        self._sizes: dict[tuple[float, float], _AtSize] = {}

    @property
    def phases(self) -> Mapping[str, object]:
        """The phases that have instants."""
        return self._plan.groups

    @cached_property
    def saved(self) -> Triple:
        """What the layers keep for one micro-batch, the loss left out."""
        own = self._others.total({u: v for u, v in self._played.after_forward.items() if "V" not in u})
        return add(own, _sum(self._further["kept"]))

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
        at = self._at_size(tokens, square)
        best: tuple[float, Any, Key, Mapping[str, float]] = (float("-inf"), None, ("", ""), _NONE)
        for key, (own, chosen) in (at.instants.get(phase) or self._found(phase, at)).items():
            if key[0] in without:
                continue
            more = extra(phase, *key) if extra else _NONE
            size = own + sum(more.values()) if more else own
            if size > best[0] + _ALIKE_BYTES:
                best = (size, chosen, key, more)
        size, chosen, key, more = best
        return size, ({} if chosen is None else self._terms(chosen, key, at, more))

    def at_part(
        self, phase: str, part: str, share: str, tokens: float, square: float, extra: Extra
    ) -> Mapping[str, float]:
        """Terms at the fullest instant while one part of the model runs; none where it has no instants."""
        key = (part, share)
        if key not in self._plan.groups[phase]:
            return {}
        at = self._at_size(tokens, square)
        chosen = (at.instants.get(phase) or self._found(phase, at))[key][1]
        return self._terms(chosen, key, at, extra(phase, part, share))

    def _at_size(self, tokens: float, square: float) -> _AtSize:
        """What is known of this size: optimizers, cards and numbers of ranks are compared at one."""
        known = self._sizes.get((tokens, square))
        if known is None:
            if len(self._sizes) >= _SIZES_KEPT:
                self._sizes.clear()
            known = self._sizes[tokens, square] = _AtSize(tokens, square)
        return known

    def _found(self, phase: str, at: _AtSize) -> dict[Key, tuple[float, Instant]]:
        ways = self._fullest if self._first(at.tokens, at.square) else self._kept
        found = {key: ways(phase, key, at.tokens, at.square) for key in self._plan.groups[phase]}
        at.instants[phase] = found
        return found

    # -- the first prices ----------------------------------------------------------------------------------------

    def _first(self, tokens: float, square: float) -> bool:
        """Whether this is still one of the first batches that are priced; reads its units."""
        if self._at == (tokens, square):
            return True
        if self._prices >= _REDUCE_AFTER:
            return False
        self._prices, self._at = self._prices + 1, (tokens, square)
        scale, read, units = (1.0, tokens, square), self._own.factor, self._plan.units
        self._numbers = {unit: f * scale[kind] for unit, (kind, f) in zip(units, map(read, units), strict=True)}
        self._tops.clear()
        for name, kinds in self._plan.shares.items():
            self._sums[name] = sum(self._counts.get(kind, 0) * self._bytes(form) for kind, form in kinds.items())
        return True

    def _bytes(self, form: Form) -> float:
        found: float = sum(map(mul, map(self._numbers.__getitem__, form), form.values()))
        return found

    def _fullest(self, phase: str, key: Key, tokens: float, square: float) -> tuple[float, Instant]:
        best, chosen = float("-inf"), _NO_INSTANT
        for base, segment in self._plan.groups[phase][key]:
            top, form = self._tops.get(id(segment)) or self._top(segment)
            size = top + self._bytes(base)
            if size > best + _ALIKE_BYTES or (
                size > best - _ALIKE_BYTES and self._grows(base, form) > self._grows(*chosen)
            ):
                best, chosen = size, (base, form)
        return best + self._sums[key[1]], Instant(_NOTHING, *chosen)

    def _grows(self, base: Form, form: Form) -> tuple[float, float]:
        """How fast an instant grows with tokens, then with squares: of two of one size the faster is meant.

        Both ways of finding the fullest instant have to mean the same one.
        """
        return add(self._own.total(base), self._own.total(form))[1:]

    def _top(self, segment: Segment) -> tuple[float, Form]:
        """The fullest of a segment's instants, which stand above the same bytes."""
        numbers = [0.0, 0.0, *map(self._numbers.__getitem__, segment.units)]
        best, chosen = float("-inf"), _NONE
        for get, sizes, form in segment.reads:
            size = sum(map(mul, get(numbers), sizes))
            if size > best + _ALIKE_BYTES or (
                size > best - _ALIKE_BYTES and self._grows(_NONE, form) > self._grows(_NONE, chosen)
            ):
                best, chosen = size, form
        found = self._tops[id(segment)] = (best, chosen)
        return found

    # -- later prices --------------------------------------------------------------------------------------------

    @cached_property
    def _further(self) -> Mapping[str, Mapping[str, Triple]]:
        """By share: what all other layers hold, by term."""
        out: dict[str, dict[str, Triple]] = {"none": {}}
        shares = (("saved", self._played.saved), ("kept", self._played.kept), ("grads", self._played.grads))
        for share, forms in shares:
            terms = out[share] = {}
            for kind, form in forms.items():
                n = self._counts.get(kind, 0)
                for name, (c, t, q) in self._others.terms(form).items():
                    terms[name] = add(terms.get(name, (0.0, 0.0, 0.0)), (c * n, t * n, q * n))
        return out

    @cached_property
    def _fronts(self) -> dict[tuple[str, Key], tuple[tuple[Triple, Instant], ...]]:
        return {}

    def _kept(self, phase: str, key: Key, tokens: float, square: float) -> tuple[float, Instant]:
        found = self._fronts.get((phase, key))
        if found is None:
            found = self._fronts[phase, key] = self._front(phase, key)
        if len(found) == 1:
            [((c, t, q), only)] = found
            return c + t * tokens + q * square, only
        sizes = [c + t * tokens + q * square for (c, t, q), _ in found]
        size = max(sizes)
        alike = [instant for (_, instant), its in zip(found, sizes, strict=True) if its > size - _ALIKE_BYTES]
        return size, alike[0] if len(alike) == 1 else max(alike, key=lambda instant: instant.total[1:])

    def _front(self, phase: str, key: Key) -> tuple[tuple[Triple, Instant], ...]:
        """Those instants that no other one exceeds in all three numbers."""
        whole, total = _sum(self._further[key[1]]), self._own.total
        found = []
        for base, segment in self._plan.groups[phase][key]:
            below = add(total(base), whole)
            found += [Instant(add(below, triple), base, form) for triple, form in self._front_of(segment)]
        return tuple((instant.total, instant) for instant in _highest(found, _total_of))

    def _front_of(self, segment: Segment) -> Sequence[tuple[Triple, Form]]:
        """The same of one segment by itself."""
        found = self._segments.get(id(segment))
        if found is None:
            total = self._own.total
            all_of = [(total(form), form) for _, _, form in segment.reads]
            found = self._segments[id(segment)] = _highest(all_of, _first_of)
        return found

    @cached_property
    def _segments(self) -> dict[int, Sequence[tuple[Triple, Form]]]:
        return {}

    def _terms(self, chosen: Instant, key: Key, at: _AtSize, more: Mapping[str, float]) -> dict[str, float]:
        # One of a front stays as long as this step, another as long as the size.
        known = at.terms if chosen.total is _NOTHING else self._termed
        found = known.get((id(chosen), key))
        if found is None:
            found = self._own.terms(plus(chosen.base, chosen.form))
            for name, triple in self._further[key[1]].items():
                found[name] = add(found.get(name, _NOTHING), triple)
            known[id(chosen), key] = found
        terms, tokens, square = dict(more), at.tokens, at.square
        for name, (c, t, q) in found.items():
            terms[name] = terms.get(name, 0.0) + c + t * tokens + q * square
        return terms

    @cached_property
    def _termed(self) -> dict[tuple[int, Key], dict[str, Triple]]:
        return {}


_ALIKE_BYTES: Final = 0.5
"""Sizes that differ by less differ by rounding."""
_NO_INSTANT: Final[tuple[Form, Form]] = (_NONE, _NONE)
_NOTHING: Final[Triple] = (0.0, 0.0, 0.0)
_total_of: Final = attrgetter("total")
_first_of: Final = itemgetter(0)


def _highest(found: Sequence[Any], triple_of: Callable[[Any], Triple]) -> list[Any]:
    kept: list[tuple[Triple, Any]] = []
    for one in sorted(found, key=lambda one: -sum(triple_of(one))):
        c, t, q = triple_of(one)
        if not any(k[0] >= c and k[1] >= t and k[2] >= q for k, _ in kept):
            kept.append(((c, t, q), one))
    return [one for _, one in kept]


def _sum(terms: Mapping[str, Triple]) -> Triple:
    total = (0.0, 0.0, 0.0)
    for triple in terms.values():
        total = add(total, triple)
    return total
