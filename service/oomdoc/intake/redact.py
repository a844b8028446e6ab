"""Everything that a person would not want to be read by others, masked so that it can be put back.

A placeholder says what it stands for and which one it is (``<path-user-1>``); equal things get equal placeholders, so
that "the same host" still shows. Masking is idempotent: what is masked is not masked again. Line and column of lines
are kept (no line is added or removed). Sizes and version numbers are never taken for addresses.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Final

from oomdoc.intake.credentials import STEMS, further_values, named_values, random_runs
from oomdoc.intake.patterns import patterns
from oomdoc.intake.sieve import Expression, grams_of
from oomkb.dataclass import dataclass

_RE: Final = patterns(__file__)
_Rule = tuple[str, str, tuple[str, ...]]
"""Kind of placeholder, name of the expression, words of which a line must hold one."""
_RULES: Final[tuple[_Rule, ...]] = tuple(
    (row.name.partition(".")[0].replace("_", "-"), row.name, tuple(row.witness.split(",")))
    for row in _RE.rows.values()
    if "." in row.name and not row.name.startswith(("block.", "inside."))
)
_BLOCKS: Final[tuple[_Rule, ...]] = tuple(
    (row.name.split(".")[1].replace("_", "-"), row.name.removeprefix("block."), tuple(row.witness.split(",")))
    for row in _RE.rows.values()
    if row.name.startswith("block.")
)
_NEEDS: Final[Mapping[str, str]] = {need: need.split()[0] for _, _, needs in _RULES for need in needs}
"""What rules need in a text: one word, or several of which the first is looked for before the whole."""
_FIRSTS: Final = {first: grams_of(first) for first in _NEEDS.values()}
"""The first words, with their pieces: most are ruled out by these."""
_STEMS: Final = {stem: frozenset[str]().union(*map(grams_of, stem.split())) for stem in STEMS}
_HARMLESS: Final = frozenset({"127.0.0.1", "0.0.0.0", "255.255.255.255", "git", "ghcr.io", "github.com", "localhost"})


@dataclass(frozen=True, slots=True)
class Masked:
    """Text with placeholders, and what each of them stands for."""

    text: str
    table: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def restore(self) -> str:
        """The text with every placeholder put back."""
        return _RE["placeholder"].sub(lambda found: self.table.get(found[0], found[0]), self.text)


def mask(text: str, table: Mapping[str, str] | None = None) -> Masked:
    """Mask secrets, addresses, names of people and hosts.

    :param table: placeholders already given out (of other files of the same input), continued here.
    """
    return _masked(text, MappingProxyType(dict(table))) if table else _masked_alone(text)


@lru_cache(maxsize=2)
def _masked_alone(text: str) -> Masked:
    """A request masks what was pasted for reading it and for keeping it."""
    return _masked(text, {})


def _masked(text: str, table: Mapping[str, str]) -> Masked:
    known = dict(table)
    used = set(_RE["placeholder"].findall(text)) | known.keys()
    low = text.lower()
    unique = " ".join(set(low.split()))
    grams = grams_of(unique)
    held = {first for first, pieces in _FIRSTS.items() if pieces <= grams and first in unique}
    met = {need for need, first in _NEEDS.items() if first in held}
    names = [stem for stem, pieces in _STEMS.items() if pieces <= grams and stem in low]
    masker = _Masker(known, {value: placeholder for placeholder, value in known.items()}, used, _rules_for(met), names)
    for kind, name, needs in _BLOCKS:
        if any(need in low for need in needs):
            text = masker.block(kind, name, text)
    low = text.lower()
    if candidates := _candidate_positions(text, low, met.union(names)):
        parts, lows = text.split("\n"), low.split("\n")
        if names:
            masker.further(parts, lows, sorted(candidates))
        done: dict[str, str] = {}
        for at in sorted(candidates):
            line = parts[at]
            if line not in done:
                done[line] = masker.line(line, lows[at])
            parts[at] = done[line]
        text = "\n".join(parts)
    return Masked(masker.again(masker.random(text)), MappingProxyType(known))


def masked_text(text: str | None) -> str | None:
    """A short text masked for good; ``None`` stays ``None``."""
    return None if text is None else mask(text).text


def masked_tree(value: Any, name: str = "") -> Any:
    """Every text in a tree of plain values masked, keys too, each value as what stands beside its name."""
    if isinstance(value, str):
        return mask(f"{name}={value}").text[len(name) + 1 :] if name else mask(value).text
    if isinstance(value, Mapping):
        return {masked_tree(key): masked_tree(inner, str(key)) for key, inner in value.items()}
    return [masked_tree(inner, name) for inner in value] if isinstance(value, list | tuple) else value


def _rules_for(met: Collection[str]) -> list[_Rule]:
    """The rules that can apply to a text that meets these needs, each with those of its own that are met."""
    some = ((kind, name, tuple(n for n in needs if n in met)) for kind, name, needs in _RULES)
    return [(kind, name, needs) for kind, name, needs in some if needs or kind == "user"]


def _candidate_positions(text: str, low: str, met: Collection[str]) -> set[int]:
    """The lines (from 0) which any rule could match: that hold one of the words that rules need, or dots or colons."""
    found = {n for word in met if len(word) > 1 or word == "@" for n in _lines_with(word, low)}
    starts: list[int] = []
    for pattern in (_RE["dotted"], _RE["colons"]):
        for hit in pattern.finditer(text):
            starts = starts or [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
            found.add(bisect_right(starts, hit.start()) - 1)
    return found


def _lines_with(word: str, text: str) -> Iterator[int]:
    """The lines (from 0) that hold a word, each once."""
    line, at = 0, text.find(word)
    counted = 0
    while at >= 0:
        line, counted = line + text.count("\n", counted, at), at
        yield line
        end = text.find("\n", at)
        at = text.find(word, end) if end >= 0 else -1


@dataclass(slots=True)
class _Masker:
    """The placeholders given out so far."""

    known: dict[str, str]
    given: dict[str, str]
    used: set[str]
    rules: list[_Rule]
    names: list[str]
    counts: dict[str, int] = field(default_factory=dict)

    def line(self, text: str, low: str) -> str:
        """One line (and the same in lower case) with every rule applied that could match it."""
        if any(name in low for name in self.names):
            text = self._spans("secret", text, named_values(text))
        for kind, name, needs in self.rules:
            for need in needs:
                if need in low:
                    break
            else:
                if kind != "user" or "@<host-" not in text:
                    continue
            if (needs == (".",) and not _RE["dotted"].search(text)) or (
                needs == (":",) and not _RE["colons"].search(text)
            ):
                continue
            text = self._applied(kind, _RE[name], text)
        return text

    def further(self, parts: list[str], lows: list[str], candidates: list[int]) -> None:
        """Have lines changed that lie behind one that names a credential."""
        found: dict[int, list[tuple[int, int]]] = {}
        rows: set[int] = set()
        for at in candidates:
            if any(name in lows[at] for name in self.names):
                for number, start, end in further_values(parts, at, rows):
                    found.setdefault(number, []).append((start, end))
        for number, spans in found.items():
            parts[number] = self._spans("secret", parts[number], sorted({*spans}))
            lows[number] = parts[number].lower()

    def block(self, kind: str, name: str, text: str) -> str:
        """The text with a rule applied inside of each of its blocks."""
        inside = _RE[f"inside.{name}"]

        def swap(found: re.Match[str]) -> str:
            body = found.lastgroup or "body"
            start, end = found.start(body) - found.start(), found.end(body) - found.start()
            return f"{found[0][:start]}{self._applied(kind, inside, found[body])}{found[0][end:]}"

        return _RE[f"block.{name}"].sub(swap, text)

    def random(self, text: str) -> str:
        """The text without letters and digits that were drawn at random."""
        return self._spans("secret", text, random_runs(text))

    def again(self, text: str) -> str:
        """The text without what stands there once more that was masked as a credential in another place."""
        told = [
            re.escape(value)
            for placeholder, value in self.known.items()
            if placeholder.startswith(("<secret", "<token")) and value in text and _RE["telling"].match(value)
        ]
        told.sort(key=len, reverse=True)
        pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(told)})(?![A-Za-z0-9])")
        return self._spans("secret", text, (hit.span() for hit in pattern.finditer(text))) if told else text

    def _spans(self, kind: str, text: str, spans: Iterable[tuple[int, int]]) -> str:
        done, parts = 0, []
        for start, end in spans:
            if start >= done and _RE["placeholder"].search(text, start, end) is None:
                parts += [text[done:start], self._placeholder(kind, text[start:end])]
                done = end
        return "".join([*parts, text[done:]])

    def _applied(self, kind: str, pattern: Expression | re.Pattern[str], text: str) -> str:
        def swap(found: re.Match[str]) -> str:
            name = found.lastgroup or "v"
            value = found[name]
            if not value.strip() or value in _HARMLESS or _RE["placeholder"].search(value):
                return found[0]
            start, end = found.start(name) - found.start(), found.end(name) - found.start()
            # A key over several lines: each line for itself, so that lines keep their numbers.
            parts = (self._placeholder(kind, part) if part.strip() else part for part in value.split("\n"))
            return f"{found[0][:start]}{chr(10).join(parts)}{found[0][end:]}"

        return pattern.sub(swap, text)

    def _placeholder(self, kind: str, value: str) -> str:
        given = self.given.get(value)
        if given is not None:
            return given
        number = self.counts.get(kind, 0) + 1
        while f"<{kind}-{number}>" in self.used:
            number += 1
        placeholder = f"<{kind}-{number}>"
        self.counts[kind] = number
        self.known[placeholder] = value
        self.given[value] = placeholder
        self.used.add(placeholder)
        return placeholder
