"""Words that state a fact by themselves: the method, what the job is for, precision, attention, sharding, offload.

The words are rows of ``words.toml``; a negation before one, or a denial behind it, takes it back. What a job is for is
weighed over the whole text; what nobody says of the method follows from what is said (:func:`implied_method`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.numbers import typed
from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import denied, doubt, is_need_asked, negated
from oomdoc.intake.sieve import Expression, Sieve, Vocabulary, candidates
from oomkb.dataclass import dataclass
from oomkb.tables import read_toml

_RE: Final = patterns(__file__)
_LANGUAGE: Final = frozenset(
    ("sft", "pretrain", "dpo", "kto", "simpo", "orpo", "rm", "ppo", "grpo", "rloo", "distill", "embedding")
)
_IMPLIED: Final = 0.52
_NAMED_AIM: Final = 0.6
"""Confidence of an aim from which a loop that trains, seen beside it, does not refute it."""


class _Spelling(Expression):
    """One word as an expression, whose longest part is the literal that is looked for first."""

    __slots__ = ()

    def __init__(self, word: str) -> None:
        self.pattern = _pattern(word)
        self.flags = int(re.IGNORECASE | re.ASCII)
        self.literals = (max(re.split(r"\.{3}|-", word.strip("=*")), key=_weight).lower(),)
        self._compiled = None


def _weight(part: str) -> int:
    return sum(1 if c < "\x80" else 2 for c in part)


def _pattern(word: str) -> str:
    if word[0] == "=":
        return rf"(?<![\w-]){_loose(word[1:])}(?![\w-])"
    body, star = word.removesuffix("*"), word.endswith("*")
    left = r"(?<![a-z])(?<!ctx_)" if body[0].isascii() and body[0].isalnum() else ""
    right = r"(?![a-z])" if not star and body[-1].isascii() and body[-1].isalnum() else ""
    right += r"(?!\d|\.\d)" if body[-1].isdigit() else ""
    first, *further = (_loose(part) for part in body.split("..."))
    parts = [first, *(f"({part})" for part in further)]
    return left + r"(?:[^.。\n]|\.(?=\d)){0,30}?".join(parts) + (r"\w{0,20}" if star else right)


def _loose(word: str) -> str:
    return re.escape(word).replace(r"\-", r"[-_ ]?")


@dataclass(frozen=True, slots=True)
class _Word:
    fact: str
    value: Any
    sure: float
    where: str
    spelling: _Spelling


@cache
def _words() -> tuple[_Word, ...]:
    data = read_toml(Path(__file__).with_name("words.toml"))
    return tuple(
        _Word(fact, typed(value), sure, where, _Spelling(word))
        for where, facts in data.items()
        for fact, values in facts.items()
        for value, rows in values.items()
        for sure, *listed in rows
        for word in " | ".join(listed).split(" | ")
    )


@cache
def _sieve(kind: str) -> Sieve[_Word]:
    """The words for prose, for logs, for what a job is for (any line), or for the method that nobody names."""
    alone = kind in ("any", "method")
    kept = [w for w in _words() if (w.where == kind if alone else w.where in ("log", kind))]
    return Sieve((word.spelling.literals, word) for word in kept)


def read_words(lines: Sequence[Line], words: Vocabulary) -> Iterator[Fact]:
    """Facts from prose."""
    for _, line, rows in _sieve("prose").over(lines, words):
        for row in rows:
            for found in row.spelling.finditer(line.text):
                yield from _stated(line, row.fact, row.value, row.sure, found)
    for line in candidates(_RE["offloads"], lines, words):
        for found in _RE["offloads"].finditer(line.text):
            what, begin = _offloaded(line.text, *found.span())
            if line.text[found.end() : found.end() + 1] != "=" and not negated(line.text, begin):
                yield from _stated(line, "offload", what or ("optimizer", "param"), 0.72 if what else 0.55, found)


def _offloaded(text: str, start: int, end: int) -> tuple[tuple[str, ...], int]:
    """What the clause around words for offloading says is offloaded, nothing where it does not say; and its begin."""
    before = _RE["pause"].split(text[max(0, start - _CLAUSE) : start])[-1]
    behind = _RE["pause"].split(text[end : end + _CLAUSE])[0]
    named, begin = list[str](), start
    for name, noun in _RE.group("offloaded").items():
        if (found := noun.search(before)) is not None:
            begin = min(begin, start - len(before) + found.start())
        if found is not None or noun.search(behind) is not None:
            named.append(name)
    return tuple(named), begin


_CLAUSE: Final = 48
"""Characters around words for offloading in which it stands what is offloaded."""


def read_traces(lines: Sequence[Line], words: Vocabulary) -> Iterator[Fact]:
    """What logs and tracebacks show: a frame inside ``_composable/fsdp`` is FSDP at work."""
    for _, line, rows in _sieve("log").over(lines, words):
        for row in rows:
            shown = (f for f in row.spelling.finditer(line.text) if not denied(line.text, f.end()))
            if (found := next(shown, None)) is not None:
                yield Fact(row.fact, row.value, line.span(found.start() + 1), "log", row.sure - 0.1)


def _stated(line: Line, fact: str, value: Any, sure: float, found: re.Match[str]) -> Iterator[Fact]:
    text, span = line.text, line.span(found.start() + 1)
    if any(negated(text, found.start(n)) for n in range(1, 1 + (found.lastindex or 0))):
        return  # "LoRA, not in 4-bit": neither the one nor its opposite
    if fact == "dtype" and (
        _RE["cache_before"].search(text[max(0, found.start() - 40) : found.start()])
        or _RE["cache_behind"].match(text, found.end())
    ):
        return  # the KV cache's
    off = negated(text, found.start()) or denied(text, found.end())
    sure -= min(0.12, doubt(text, found.start(), found.end()))
    needed = fact != "dtype" and is_need_asked(text, found.start())
    if _RE["listed"].match(text, found.end()) or needed:
        return
    if not off:
        yield Fact(fact, value, span, "prose", max(0.5, sure))
        if fact == "dtype" and value in _SIXTEEN_BITS and _RE["mixed"].search(text[:_READ]):
            yield Fact("autocast", value, span, "prose", max(0.5, sure))
    elif fact == "grad_ckpt":
        yield Fact("grad_ckpt", False, span, "prose", sure + 0.02)
    elif fact == "method" and value in ("lora", "qlora"):
        yield Fact("method", "full", span, "prose", 0.66)


_SIXTEEN_BITS: Final = ("bf16", "fp16", "bfloat16", "float16")
_READ: Final = 2_000
"""Characters of a line in which training is said to be in mixed precision."""
_MIN_AIM: Final = 0.47
"""Below it a word that goes with inference says nothing where training is spoken of: every trainer has requests."""


def read_objective(lines: Sequence[Line], words: Vocabulary) -> Iterator[Fact]:
    """Facts ``objective``, of every line that tells; serving engines count for little where training is spoken of."""
    hits: dict[tuple[str, Any], tuple[float, Line, int]] = {}
    for literals, row in _sieve("any").alive(words):
        held = hits.get((row.fact, row.value))
        if held is None or held[0] < row.sure:
            place = _first(row, literals[0], lines)
            if place is not None:
                hits[row.fact, row.value] = row.sure, *place
    trains, loops = ("_trains", True) in hits, ("_loops", True) in hits
    aims = {value: hit for (fact, value), hit in hits.items() if fact == "objective"}
    if loops and aims.get("inference", (1.0,))[0] < _NAMED_AIM:
        del aims["inference"]
    for value, (sure, line, at) in aims.items():
        weight = sure - (0.05 if sure > 0.56 else 0.08) if value == "inference" and trains else sure
        if weight < _MIN_AIM:
            continue
        yield Fact("objective", value, line.span(max(at, 1)), "prose", weight)
    if not aims.keys() - {"inference"}:
        for fact, sure in (("_adapts", 0.53), *((n, 0.0 if aims else 0.51) for n in ("_steps", "_loops"))):
            if sure and (hit := hits.get((fact, True))) is not None and not _RE["listed"].match(hit[1].raw, hit[2]):
                yield Fact("objective", "sft", hit[1].span(), "prose", sure)
                break


def _first(row: _Word, literal: str, lines: Sequence[Line]) -> tuple[Line, int] | None:
    """Where a word first says what the job is for."""
    for line in lines:
        if literal in line.low:
            for found in row.spelling.finditer(line.raw):
                if _is_aim(line.raw, row, found):
                    return line, found.end()
    return None


def _is_aim(text: str, row: _Word, found: re.Match[str]) -> bool:
    before = text[max(0, found.start() - 48) : found.start()]
    noun = row.value == "sft" and row.sure < 0.7 and not found[0].lower().endswith(("e", "ing"))
    return not (noun and _RE["embeddings"].search(before)) and not negated(text, found.start())


def implied_method(facts: Sequence[Fact], lines: Sequence[Line], words: Vocabulary) -> Fact | None:
    """A fact ``method``: ``qlora`` where a 4-bit base is trained, ``full`` where no part of the model is spoken of.

    A trainer's command says what is trained by what it leaves out; 4-bit weights take no gradient, so that what is
    tuned over them are adapters. Both are inferred, and count less than any word on the method.
    """
    if any(f.name == "method" for f in facts):
        return None
    aims = [f for f in facts if f.name == "objective"]
    if not aims or max(aims, key=lambda f: f.confidence).value not in _LANGUAGE:
        return None
    seen: dict[str, Line] = {}
    for _, line, rows in _sieve("method").over(lines, words):
        for row in rows:
            if row.fact not in seen and next(row.spelling.finditer(line.raw), None) is not None:
                seen[row.fact] = line
    if "_four_bit" in seen:
        return Fact("method", "qlora", seen["_four_bit"].span(), "prose", _IMPLIED)
    if "_partial" in seen or "_trainer_told" not in seen:
        return None
    return Fact("method", "full", seen["_trainer_told"].span(), "prose", _IMPLIED)
