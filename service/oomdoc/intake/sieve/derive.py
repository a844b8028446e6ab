"""The literals that every match of an expression must hold one of, read from the expression itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final

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
