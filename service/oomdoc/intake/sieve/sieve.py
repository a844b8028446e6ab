"""Many expressions over many lines, each tried only where it could match."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from oomkb.kept import compiled

if TYPE_CHECKING:
    import re

    from oomdoc.intake.lines import Line


_MIN_CHARS: Final = 2
"""Characters that a literal of ASCII must have to be worth looking for."""
_MAX_LITERALS: Final = 256
"""Literals of one expression: with more of them, the search for one is no cheaper than the expression."""
_MAX_RUNS: Final = 16
"""Spellings of one stretch that are told apart (``grad accum``, ``grad_accum``, ``gradient accum``...)."""
_REPEATS: Final = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_NOTHING: Final[frozenset[str]] = frozenset()
_NOTHING_YET: Final = frozenset({""})


def literals_of(pattern: str, flags: int) -> tuple[str, ...]:
    """Literals in lower case, one of which every matching text holds in lower case; empty where none can be named.

    The expression is taken apart by the parser of the standard library; should that be missing, nothing is named.
    """
    try:
        parser = import_module("re._parser")
    except ImportError:
        return ()
    found = _of_sequence(parser.parse(pattern, flags))
    searchable = (
        bool(found) and len(found) <= _MAX_LITERALS and all(_weight(literal) >= _MIN_CHARS for literal in found)
    )
    return tuple(sorted(found)) if searchable else ()


def _weight(literal: str) -> int:
    """How telling a literal is: a Chinese character counts as much as two letters."""
    return sum(1 if c < "\x80" else 2 for c in literal.strip())


def _value(literals: frozenset[str]) -> int:
    """Telling ones are good, and so are few."""
    least = min(min(_weight(literal), 5) for literal in literals)
    return 8 * least - len(literals) - (1000 if least < _MIN_CHARS else 0)


def _fewest(literals: frozenset[str]) -> frozenset[str]:
    """Without those that contain another one."""
    return frozenset(a for a in literals if not any(b in a and b != a for b in literals))


def _best(candidates: Iterable[frozenset[str]]) -> frozenset[str]:
    return max((_fewest(c) for c in candidates), key=_value, default=_NOTHING)


def _of_sequence(items: Sequence[Any]) -> frozenset[str]:
    """Of everything that must be there one after the other, the most telling."""
    candidates: list[frozenset[str]] = []
    run, plain = _NOTHING_YET, ""
    for item in items:
        texts = _texts(item)
        if str(item[0]) == "ASSERT":
            candidates.append(_of_item(item))
        if texts is not None and len(texts) == 1:
            plain += next(iter(texts))
        else:
            candidates.append(frozenset({plain}))
            plain = ""
        longer = frozenset(a + b for a in run for b in texts) if texts is not None else _NOTHING
        if texts is not None and len(longer) <= _MAX_RUNS:
            run = longer
            continue
        candidates += [run, _of_item(item)]
        run = texts or _NOTHING_YET
    candidates += [run, frozenset({plain})]
    return _best(c for c in candidates if c and "" not in c)


def _texts(item: Any) -> frozenset[str] | None:
    """Everything that an item can match, in lower case, where that is a handful of texts."""
    name, value = str(item[0]), item[1]
    if name == "LITERAL":
        return frozenset({chr(value).lower()})
    if name == "IN":
        return _letters(value)
    if name in ("AT", "ASSERT_NOT", "ASSERT"):
        return frozenset({""})
    if name == "SUBPATTERN":
        return _texts_of(value[3])
    if name == "BRANCH":
        parts = [_texts_of(branch) for branch in value[1]]
        return frozenset(t for part in parts for t in part or ()) if None not in parts else None
    if name in _REPEATS and value[1] == 1:
        inner = _texts_of(value[2])
        return inner if inner is None or value[0] else inner | {""}
    return None


def _letters(members: Sequence[Any]) -> frozenset[str] | None:
    """The letters of a class, where they are few."""
    out: set[str] = set()
    for kind, value in members:
        if str(kind) == "LITERAL":
            out.add(chr(value).lower())
        elif str(kind) == "RANGE" and value[1] - value[0] < _MAX_RUNS:
            out.update(chr(code).lower() for code in range(value[0], value[1] + 1))
        else:
            return None
    return frozenset(out)


def _texts_of(items: Sequence[Any]) -> frozenset[str] | None:
    out: frozenset[str] = frozenset({""})
    for item in items:
        texts = _texts(item)
        if texts is None:
            return None
        out = frozenset(a + b for a in out for b in texts)
        if len(out) > _MAX_RUNS:
            return None
    return out


def _of_item(item: Any) -> frozenset[str]:
    name, value = str(item[0]), item[1]
    if name == "SUBPATTERN":
        return _of_sequence(value[3])
    if name == "ATOMIC_GROUP":
        return _of_sequence(value)
    if name == "ASSERT":
        return _of_sequence(value[1])
    if name in _REPEATS:
        return _of_sequence(value[2]) if value[0] else _NOTHING
    if name == "BRANCH":
        parts = [_of_sequence(branch) for branch in value[1]]
        return _fewest(frozenset().union(*parts)) if all(parts) else _NOTHING
    return _letters(value) or _NOTHING if name == "IN" else _NOTHING


_DIGITS: Final = str.maketrans("", "", "0123456789")
_GRAM: Final = 3
"""Characters of the pieces by which most literals are ruled out."""
_MAX_CHARACTERS: Final = 200_000
"""Characters of different words beyond which nothing is ruled out: that is no text that anybody wrote."""


@cache
def _probes_of(literal: str) -> tuple[str, ...]:
    """The words of a literal without digits, the longest first: what is looked for."""
    return tuple(sorted(literal.translate(_DIGITS).split(), key=len, reverse=True))


def grams_of(text: str) -> frozenset[str]:
    """Its pieces of three characters."""
    return frozenset(map("".join, zip(text, text[1:], text[2:], strict=False)))


@cache
def _grams_of_probes(literal: str) -> frozenset[str]:
    """The pieces of all words of a literal: a text that holds it has every one of them."""
    return frozenset[str]().union(*map(grams_of, _probes_of(literal)))


class Vocabulary:
    """The words of some lines, in lower case, without digits (which make every line of a log another one)."""

    __slots__ = ("all", "grams", "text")

    def __init__(self, lowered: Iterable[str]) -> None:
        joined = "\n".join(lowered).encode("utf-8", "surrogatepass").translate(None, b"0123456789")
        text = " ".join(set(joined.decode("utf-8", "surrogatepass").split()))
        self.all = len(text) > _MAX_CHARACTERS
        """Whether there are so many words that every literal may be among them."""
        self.text = "" if self.all else text
        self.grams = grams_of(self.text)

    def may_hold(self, literal: str) -> bool:
        """False only where the literal (in lower case) is in none of the lines."""
        probes, grams = _probes_of(literal), _grams_of_probes(literal)
        return self.all or (grams <= self.grams and all(map(self.text.__contains__, probes)))


TABLE: Final = Path(__file__).with_name("literals.json")
"""Expression (:func:`key_of`) -> literals, one of which each match holds (``python -m oomdoc.intake.sieve``)."""
_END: Final = 1 << 62


def key_of(pattern: str, flags: int) -> str:
    """The name of an expression in the table of literals."""
    return blake2b(f"{flags}:{pattern}".encode(), digest_size=8).hexdigest()


@cache
def _table() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(TABLE.read_bytes())
    return found


class Expression:
    """Stands for ``re.compile(pattern, flags)``.

    ``literals`` (lower case) are such that whatever matches holds one of them in lower case; empty where nothing is
    known. They stand in a table that ``python -m oomdoc.intake.sieve`` writes; what is not in it is worked out.
    """

    __slots__ = ("_compiled", "flags", "literals", "pattern")

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern = pattern
        self.flags = int(flags)
        known = _table().get(key_of(pattern, self.flags))
        self.literals: tuple[str, ...] = literals_of(pattern, self.flags) if known is None else tuple(known)
        self._compiled: re.Pattern[str] | None = None

    def compiled(self) -> re.Pattern[str]:
        """The compiled expression."""
        if self._compiled is None:
            self._compiled = compiled(self.pattern, self.flags)
        return self._compiled

    def may_match(self, lowered: str) -> bool:
        """Whether a text (given in lower case) holds one of the literals."""
        for literal in self.literals:
            if literal in lowered:
                return True
        return not self.literals

    def held_by(self, text: str) -> tuple[str, list[str]]:
        """A text in lower case, and those of the literals that it holds; of none, no line of it matches."""
        low = _lowered(text)
        return low, [literal for literal in self.literals if literal in low]

    def _is_absent(self, text: str) -> bool:
        """Whether a text, unless it is short, holds none of the literals."""
        return len(text) >= _MIN_PREFILTERED and not self.may_match(_lowered(text))

    def search(self, text: str, start: int = 0, end: int = _END) -> re.Match[str] | None:
        """As of a compiled expression; a whole text, unless it is short, is only searched if it holds a literal."""
        if end == _END and not start and self._is_absent(text):
            return None
        return (self._compiled or self.compiled()).search(text, start, end)

    def match(self, text: str, start: int = 0, end: int = _END) -> re.Match[str] | None:
        """As of a compiled expression."""
        return (self._compiled or self.compiled()).match(text, start, end)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """As of a compiled expression."""
        return (self._compiled or self.compiled()).fullmatch(text)

    def finditer(self, text: str, start: int = 0, end: int = _END) -> Iterator[re.Match[str]]:
        """As of a compiled expression."""
        if end == _END and not start and self._is_absent(text):
            return iter(())
        return (self._compiled or self.compiled()).finditer(text, start, end)

    def findall(self, text: str) -> list[Any]:
        """As of a compiled expression."""
        if self._is_absent(text):
            return []
        return (self._compiled or self.compiled()).findall(text)

    def sub(self, new: str | Callable[[re.Match[str]], str], text: str, count: int = 0) -> str:
        """As of a compiled expression."""
        if self._is_absent(text):
            return text
        return (self._compiled or self.compiled()).sub(new, text, count)

    def split(self, text: str, maxsplit: int = 0) -> list[str | Any]:
        """As of a compiled expression."""
        if self._is_absent(text):
            return [text]
        return (self._compiled or self.compiled()).split(text, maxsplit)


_MIN_PREFILTERED: Final = 40
"""Characters of a text from which looking for literals first is quicker (of 120, 80, 60, 40 and 30 on reports)."""
_MAX_REMEMBERED: Final = 1 << 16
"""Characters of a text whose lower case is kept until the next one is asked for."""
_last: tuple[str, str] = ("", "")
"""A text and its lower case: many expressions are tried on one text after the other."""

_ALSO_MATCHED: Final = (("\u017f", "s"), ("\u0131", "i"), ("i\u0307", "i"))
"""Long s and the Turkish letters i, which :mod:`re` takes for ``s`` and ``i`` where case does not count."""


def _lowered(text: str) -> str:
    global _last  # noqa: PLW0603 (one pair, swapped whole)
    known, low = _last
    if known is text:
        return low
    low = text.lower()
    if not text.isascii():
        for letter, plain in _ALSO_MATCHED:
            low = low.replace(letter, plain)
    if len(text) <= _MAX_REMEMBERED:
        _last = (text, low)
    return low


Row = TypeVar("Row")


class _Lowered(Protocol):
    @property
    def low(self) -> str: ...


Item = TypeVar("Item", bound=_Lowered)


def candidates(expression: Expression, lines: Iterable[Item], words: Vocabulary) -> Iterator[Item]:
    """The lines in which the expression could match."""
    literals = expression.literals
    if not literals:
        yield from lines
        return
    held = [literal for literal in literals if words.may_hold(literal)]
    for line in lines if held else ():
        low = line.low
        for literal in held:
            if literal in low:
                yield line
                break


def found_in(expression: Expression, lines: Iterable[Line], words: Vocabulary) -> Iterator[tuple[Line, re.Match[str]]]:
    """The lines, as they stand, that the expression matches, each with its first match."""
    for line in candidates(expression, lines, words):
        if (found := expression.compiled().search(line.raw)) is not None:
            yield line, found


class Sieve(Generic[Row]):
    """Rows, each with literals of which a line must hold one for the row to say something; their order is kept."""

    def __init__(self, rows: Iterable[tuple[Sequence[str], Row]]) -> None:
        self._rows = [(tuple(literals), row) for literals, row in rows]

    @cached_property
    def _by_gram(self) -> dict[str, list[tuple[int, str]]]:
        """First piece of a literal's longest word (``""``: none) -> the literals, each with its row."""
        found: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for at, (literals, _) in enumerate(self._rows):
            for literal in literals:
                probe = next(iter(_probes_of(literal)), "")
                found[probe[:_GRAM] if len(probe) >= _GRAM else ""].append((at, literal))
        return dict(found)

    @cached_property
    def _always(self) -> list[int]:
        return [at for at, (literals, _) in enumerate(self._rows) if not literals]

    def alive(self, words: Vocabulary) -> list[tuple[tuple[str, ...], Row]]:
        """The rows that can match somewhere in the text, each with those of its literals that can be in it.

        A row without literals can match anywhere.
        """
        if words.all:
            return self._rows
        held: dict[int, set[str]] = {at: set() for at in self._always}
        for gram in (*(self._by_gram.keys() & words.grams), ""):
            for at, literal in self._by_gram.get(gram, ()):
                if words.may_hold(literal):
                    held.setdefault(at, set()).add(literal)
        rows = ((held[at], *self._rows[at]) for at in sorted(held))
        return [(tuple(literal for literal in literals if literal in found), row) for found, literals, row in rows]

    def over(self, lines: Iterable[Item], words: Vocabulary) -> Iterator[tuple[int, Item, list[Row]]]:
        """Every line that a row could match, with its index and those rows."""
        rows = self.alive(words)
        if not rows:
            return
        for index, line in enumerate(lines):
            low = line.low
            tried = []
            for literals, row in rows:
                if not literals:
                    tried.append(row)
                    continue
                for literal in literals:
                    if literal in low:
                        tried.append(row)
                        break
            if tried:
                yield index, line, tried
