"""No expression of the two packages takes exponential time: each is tried on repetitions of what its own repeats match.

``(?:a|a?b?)*`` has as many ways through a text as the text has characters squared, cubed, or doubled for each further
one. For every repeat of every expression, texts are drawn that the repeat matches; forty of them after each other, with
something behind that the expression does not go on with, must be looked through at once.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
import random
import re
import signal
import zlib
from collections.abc import Iterator
from re import _parser as sre  # type: ignore[attr-defined]
from typing import Any

import oomdoc
import oomkb
from oomdoc.intake.patterns import Patterns

TIMES = 40
DRAWS = 80
LIMIT_S = 1.0
_CLASSES = {"CATEGORY_DIGIT": "17", "CATEGORY_SPACE": " \t\r", "CATEGORY_WORD": "aZ3_"}
_OUTSIDE = {"CATEGORY_NOT_DIGIT": "a -_", "CATEGORY_NOT_SPACE": "a1.-_", "CATEGORY_NOT_WORD": " -./"}
_SOME = "\ra1 -._/=\"':,A\t(#\\q"


def expressions() -> dict[tuple[str, int], str]:
    """Every compiled expression that a module of the packages holds, and every row of the tables, with its place."""
    found: dict[tuple[str, int], str] = {}
    for package in (oomkb, oomdoc):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("__main__") or ".migrations" in module.name:
                continue
            loaded = importlib.import_module(module.name)
            for name, value in vars(loaded).items():
                for pattern in _compiled(value):
                    found.setdefault((pattern.pattern, pattern.flags), f"{module.name}.{name}")
    for table in (o for o in gc.get_objects() if type(o) is Patterns):
        for row in table.rows.values():
            found.setdefault((row.pattern, row.flags), f"{table._path.name}: {row.name}")
    return found


def _compiled(value: Any) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield value
    elif isinstance(value, tuple | list | dict) and len(value) < 200:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _compiled(inner)


def drawn(tree: Any, rng: random.Random) -> str:
    """A text that a parsed expression matches, as far as looking around does not forbid it."""
    out = ""
    for code, given in tree:
        kind = str(code)
        if kind == "LITERAL":
            out += chr(given)
        elif kind == "NOT_LITERAL":
            out += rng.choice([letter for letter in _SOME if ord(letter) != given])
        elif kind == "ANY":
            out += rng.choice(_SOME)
        elif kind == "IN":
            out += _one_of(given, rng)
        elif kind == "BRANCH":
            out += drawn(rng.choice(given[1]), rng)
        elif kind in ("SUBPATTERN", "ATOMIC_GROUP"):
            out += drawn(given[-1] if kind == "SUBPATTERN" else given, rng)
        elif kind.endswith("_REPEAT"):
            least, most, inner = given
            out += "".join(drawn(inner, rng) for _ in range(min(most, least + rng.randrange(3), least + 20, 60)))
    return out


def _one_of(given: Any, rng: random.Random) -> str:
    letters, negated = "", False
    for code, value in given:
        kind = str(code)
        negated = negated or kind == "NEGATE"
        letters += chr(value) if kind == "LITERAL" else ""
        letters += "".join(map(chr, value)) if kind == "RANGE" else ""
        letters += {**_CLASSES, **_OUTSIDE}.get(str(value), "") if kind == "CATEGORY" else ""
    return (
        rng.choice([letter for letter in _SOME if letter not in letters] or ["é"]) if negated else rng.choice(letters)
    )


def pumped(tree: Any, rng: random.Random, before: str = "") -> Iterator[str]:
    """For each repeat in an expression: what stands before it, and forty times what it repeats."""
    for code, given in tree:
        kind = str(code)
        if kind.endswith("_REPEAT") and given[1] > 8:
            unit = drawn(given[2], rng)
            yield before + unit * TIMES
            yield before + (unit + drawn(given[2], rng)) * (TIMES // 2)
        parts = given[1] if kind == "BRANCH" else [given[-1]] if kind in ("SUBPATTERN", "ASSERT") else []
        for part in [given[2]] if kind.endswith("_REPEAT") else parts:
            yield from pumped(part, rng, before)
        before += drawn([(code, given)], rng)


class _TooLong(Exception):
    pass


def _alarm(*_: Any) -> None:
    raise _TooLong


def test_no_expression_takes_exponential_time() -> None:
    slow: dict[str, str] = {}
    before = signal.signal(signal.SIGALRM, _alarm)
    try:
        for (pattern, flags), place in expressions().items():
            compiled, rng = re.compile(pattern, flags), random.Random(zlib.crc32(pattern.encode()))
            tree = sre.parse(pattern, flags)
            texts = {text + end for _ in range(DRAWS) for text in pumped(tree, rng) for end in ("\x00", "!")}
            for text in sorted(texts):
                signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
                try:
                    compiled.search(text)
                except _TooLong:
                    slow[place] = text[:120]
                    break
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not slow
