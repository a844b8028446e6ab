"""Replies to claims, claims to a reading: each held against the text, and dropped where it does not hold."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, get_args

from oomdoc.evidence import Fact, ModelReading, NamedCause, Outcome, Span, Statement, Withheld
from oomdoc.intake import read_text
from oomdoc.intake.numbers import NUMBER, SIZE, read_number, to_bytes
from oomdoc.intake.outcomes.rows import rows
from oomdoc.intake.statements import statements
from oomdoc.language_model.reader.passage import Passage
from oomkb.catalog.gpus import find_all
from oomkb.dataclass import dataclass
from oomkb.records.taxonomy import CAUSES
from oomkb.units import to_gib

__all__ = ["MEMORY", "NOTHING", "Causes", "FactKey", "causes", "fact_keys", "outcomes", "statements"]

FactKind = Literal["size", "fraction", "billions", "whole", "name", "choice", "flag", "list"]
_FIELDS: Final = frozenset({"kind", "means", "values", "cues"})
MEMORY: Final[Mapping[str, str]] = {
    "device-memory": "the card's memory ran out (unified memory of Apple, GB10, Jetson too); also cuBLAS or cuDNN "
    "ALLOC_FAILED or NOT_INITIALIZED where no other failure is shown",
    "host-memory": "the machine's memory (RAM) ran out, or the process was killed for it",
    "shared-memory": "/dev/shm ran out",
    "engine-refuses": "a server refuses to start: its cache or context does not fit",
    "memory-use": "nothing failed yet, but too much memory in use is the complaint",
}
NOTHING: Final[Mapping[str, str]] = {
    "question": "nothing failed: a question or a plan",
    "healthy": "nothing failed: work that goes on or ended well",
}
OTHER: Final[Mapping[str, str]] = {
    "illegal-access": "illegal memory access, CUDA illegal instruction, misaligned address",
    "segmentation-fault": "SIGSEGV or SIGILL (exit -11, 139, -4)",
}
"""Of other failures, those whose name does not say all that they stand for."""


@dataclass(frozen=True, slots=True)
class FactKey:
    """A fact that may be stated."""

    name: str
    kind: FactKind
    means: str
    values: tuple[str, ...] = ()
    cues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Causes:
    """The causes with the rules to choose by."""

    rules: tuple[str, ...]
    means: Mapping[str, str]


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


@cache
def fact_keys() -> Mapping[str, FactKey]:
    """Every fact by name.

    :raises ValueError: where ``facts.toml`` breaks the schema; says where.
    """
    found = {}
    for name, row in _table("facts.toml").items():
        if not {"kind", "means"} <= row.keys() <= _FIELDS or row["kind"] not in get_args(FactKind):
            raise ValueError(f"facts.toml: {name}: {sorted(row)}")
        if (row["kind"] in ("choice", "list")) != bool(row.get("values")):
            raise ValueError(f"facts.toml: {name}: values go with choice and list")
        values, cues = tuple(row.get("values", ())), tuple(row.get("cues", ()))
        found[name] = FactKey(name, row["kind"], row["means"], values, cues)
    return found


@cache
def causes() -> Causes:
    """The causes and rules.

    :raises ValueError: where ``causes.toml`` does not define exactly the taxonomy's causes.
    """
    table = _table("causes.toml")
    if table["causes"].keys() != CAUSES.keys():
        raise ValueError(f"causes.toml: {sorted(table['causes'].keys() ^ CAUSES.keys())}")
    return Causes(tuple(table["rules"]), table["causes"])


@cache
def outcomes() -> Mapping[str, str]:
    """What may have happened -> in words; empty words where the name says it."""
    other = {row.id: OTHER.get(row.id, "") for row in rows() if row.kind == "other"}
    return {**MEMORY, **NOTHING, **other, "trouble": "something fails, and the text does not say what"}


_SIZE: Final = re.compile(SIZE, re.IGNORECASE)
_NUMBER: Final = re.compile(NUMBER)
_DECIMAL: Final = re.compile(r"(?<![\w.])\d{0,4}\.?\d{1,6}(?:\s{0,2}%)?")
_DIGITS: Final = re.compile(r"\d{1,12}")
_BILLIONS: Final = re.compile(
    r"(?<![\d.])(\d{1,5}(?:\.\d{1,3})?)\s?(B(?![A-Za-z])|b(?![A-Za-z])|billion|M(?![A-Za-z])|million|亿)"
)
_PRODUCT: Final = re.compile(r"(\d{1,4})\D{1,24}?(\d{1,4})")
_VISIBLE: Final = re.compile(r"VISIBLE_DEVICES[=: \"']{1,4}(\d{1,3}(?:\s?,\s?\d{1,3}){0,127})")
_ONE: Final = re.compile(r"(?<![a-z])(?:an?|one|single|my|the)(?![a-z])|单|一", re.IGNORECASE)
_SEVERAL: Final = re.compile(r"\d\s?[x×*]|[x×*]\s?\d|(?:gpu|card|node|server|machine)s|\d\s?[张块卡台]", re.IGNORECASE)
"""Of a quote that names a card without any of these, one card is meant."""
_SAME: Final = 0.08
"""How far a claimed size may lie from the one in the quote: GB and GiB are often taken for each other."""
_LONGEST_NAME: Final = 160
_ALIKE: Final = frozenset(
    {("seq_len", "max_model_len"), ("max_model_len", "seq_len"), ("gpu_count", "tp"), ("tp", "gpu_count")}
)
"""(claimed, read) facts that one number may state."""


def value_of(key: FactKey, claimed: str, quote: str) -> Any:
    """The value, or ``None`` where the quote does not hold it, or where oomdoc's readers see another fact in it.

    :param quote: as it stands in the text.
    """
    claimed = claimed.strip()
    if not _speaks_of(key, quote):
        return None
    if key.kind in ("size", "fraction", "billions", "whole"):
        return _number(key, claimed, quote)
    if key.kind == "name":
        return _name(claimed, quote)
    plain = claimed.lower()
    if key.kind == "choice":
        return plain if plain in key.values else None
    if key.kind == "flag":
        return {"true": True, "false": False}.get(plain)
    named = [part.strip(" []\"'") for part in plain.split(",")]
    return sorted(set(named)) if named and set(named) <= set(key.values) else None


def _speaks_of(key: FactKey, quote: str) -> bool:
    """Whether one of the key's cues stands in the quote; a count of cards may stand beside a card's name too."""
    low = quote.lower()
    named = any(re.search(rf"(?<![a-z]){re.escape(cue)}", low) for cue in key.cues)
    return named or not key.cues or (key.name == "gpu_count" and bool(find_all(quote)))


def _name(claimed: str, quote: str) -> str | None:
    name = " ".join(claimed.split())
    whole = " ".join(quote.split())
    if not 1 < len(name) <= _LONGEST_NAME or not any(c.isalnum() for c in name):
        return None
    at = whole.lower().find(name.lower())
    return whole[at : at + len(name)] if at >= 0 else None


def _number(key: FactKey, claimed: str, quote: str) -> float | int | None:
    wanted = _claimed(key, claimed)
    if wanted is None:
        return None
    own = _own(quote)
    parsed = [own[key.name]] if key.name in own else []
    for found in (_held(key, quote), parsed):
        best = min(found, key=lambda n: abs(n - wanted), default=None)
        near = best is not None and abs(best - wanted) <= (_SAME * abs(wanted) + 0.02 if key.kind == "size" else 1e-6)
        if best is None or not near or best < 0:
            continue
        if key.name not in own and any(best == value for name, value in own.items() if (key.name, name) not in _ALIKE):
            return None
        return int(best) if key.kind == "whole" else round(float(best), 5)
    return None


def _claimed(key: FactKey, claimed: str) -> float | None:
    """What the model says it is; only used to choose."""
    size = _SIZE.fullmatch(claimed)
    if key.kind == "size" and size is not None:
        return to_gib(to_bytes(size[1], size[2]))
    try:
        text = claimed.replace(",", "")
        if key.kind == "billions":
            text = text.rstrip("bB ")
        elif key.kind == "fraction" and text.endswith("%"):
            return float(text[:-1]) / 100
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e15 and (key.kind != "whole" or value == int(value)) else None


def _held(key: FactKey, quote: str) -> list[float]:
    """Every number in the quote that may be meant."""
    if key.kind == "size":
        sizes = [to_gib(to_bytes(number, unit)) for number, unit in _SIZE.findall(quote)]
        return [*sizes, sum(sizes)] if len(sizes) > 1 and key.name == "other_process_gib" else sizes
    if key.kind == "billions":
        scale = {"m": 1e-3, "亿": 0.1}
        return [float(number) * scale.get(unit[:1].lower(), 1.0) for number, unit in _BILLIONS.findall(quote)]
    if key.kind == "fraction":
        texts = [found[0].replace(" ", "") for found in _DECIMAL.finditer(quote)]
        values = [float(t[:-1]) / 100 if t.endswith("%") else float(t) for t in texts if t not in (".", "%")]
        return [v for v in values if 0 < v <= 1]
    return list(_wholes(key, quote))


def _wholes(key: FactKey, quote: str) -> Iterator[float]:
    plain = quote.replace(",", "") if re.search(r"\d,\d{3}(?!\d)", quote) else quote
    for found in _DIGITS.finditer(plain):
        yield float(found[0])
    for found in _NUMBER.finditer(quote):
        try:
            yield read_number(found[0])
        except ValueError:
            continue
        if found[0][-1] in "kK":  # 64k is 65,536 to one person and 64,000 to another
            yield 1000 * read_number(found[0][:-1].strip())
    if key.name == "gpu_count":
        for first, second in _PRODUCT.findall(quote):
            yield float(first) * float(second)
        for listed in _VISIBLE.findall(quote):
            yield float(listed.count(",") + 1)
        if _ONE.search(quote) or (find_all(quote) and not _SEVERAL.search(quote)):
            yield 1.0


def _own(quote: str) -> dict[str, float]:
    """The numbers that oomdoc's own readers see in the quote, by what they are of."""
    facts = read_text(quote).facts.values()
    return {f.name: float(f.value) for f in facts if isinstance(f.value, int | float) and not isinstance(f.value, bool)}


_MAX_CLAIMS: Final = {"causes": 3, "facts": 40, "statements": 16}
_MIN_QUOTE_CHARS: Final = 4
"""Characters of a quote that a cause or a statement rests on; a Chinese one counts twice."""
_CONFIDENCE: Final = 0.85
"""Confidence of a fact that a language model read and whose quote holds it."""
_SAID: Final = 0.9
_OUTCOMES: Final[Mapping[str, tuple[str, str, str | None]]] = {
    "device-memory": ("said", "said-device", "device"),
    "host-memory": ("said", "said-host", "host"),
    "shared-memory": ("said", "said-shared", "shared-memory"),
    "engine-refuses": ("engine", "engine-refuses", "device"),
    "memory-use": ("said", "said-growth", "device"),
    "question": ("question", "question", None),
    "healthy": ("healthy", "healthy", None),
}
Sure = Literal["high", "medium", "low"]


def checked(reply: Mapping[str, Any], passage: Passage) -> ModelReading:
    """What of a reply (or of several, joined) stands in the passage."""
    withheld: list[Withheld] = []
    return ModelReading(
        outcome=_outcome(reply, passage, withheld),
        causes=tuple(_causes(reply, passage, withheld)),
        facts=tuple(_facts(reply, passage, withheld)),
        statements=tuple(_statements(reply, passage, withheld)),
        withheld=tuple(withheld),
    )


def _rows(reply: Mapping[str, Any], name: str, withheld: list[Withheld]) -> Iterator[Mapping[str, str]]:
    """The rows of a list that are objects of texts (numbers and flags are taken as texts)."""
    rows = reply.get(name)
    for row in rows[: _MAX_CLAIMS[name]] if isinstance(rows, list) else []:
        if isinstance(row, Mapping) and all(isinstance(v, str | int | float) for v in row.values()):
            yield {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in row.items()}
        else:
            withheld.append(Withheld(name.removesuffix("s"), "form"))


def _outcome(reply: Mapping[str, Any], passage: Passage, withheld: list[Withheld]) -> Outcome | None:
    what, quote = reply.get("what"), reply.get("what_quote")
    if what is None:
        return None
    if not isinstance(what, str) or what not in outcomes():
        withheld.append(Withheld("what", "unknown"))
        return None
    span = passage.find(quote) if isinstance(quote, str) else None
    if span is None:
        withheld.append(Withheld("what", "quote"))
        return None
    kind, name, memory = _OUTCOMES.get(what, ("other", what, None))
    return Outcome(kind, name, span, memory, 0.8)  # type: ignore[arg-type]


def _supported(quote: str, passage: Passage) -> Span | None:
    wide = sum(1 for c in quote if ord(c) > 0x2E7F)
    return passage.find(quote) if len(quote.strip()) + wide >= _MIN_QUOTE_CHARS else None


def _causes(reply: Mapping[str, Any], passage: Passage, withheld: list[Withheld]) -> Iterator[NamedCause]:
    seen: set[str] = set()
    for row in _rows(reply, "causes", withheld):
        cause, sure = row.get("cause", ""), row.get("sure", "")
        if cause not in causes().means:
            withheld.append(Withheld("cause", "unknown"))
            continue
        span = _supported(row.get("quote", ""), passage)
        if span is None:
            withheld.append(Withheld("cause", "quote"))
        elif cause not in seen:
            seen.add(cause)
            yield NamedCause(cause, span, sure if sure in get_args(Sure) else "medium")  # type: ignore[arg-type]


def _facts(reply: Mapping[str, Any], passage: Passage, withheld: list[Withheld]) -> Iterator[Fact]:
    seen: set[str] = set()
    for row in _rows(reply, "facts", withheld):
        key = fact_keys().get(row.get("key", ""))
        if key is None:
            withheld.append(Withheld("fact", "unknown"))
            continue
        if key.name in seen:
            continue
        quote, claimed = row.get("quote", ""), row.get("value", "")
        if key.name == "phase" and claimed == "unknown":
            seen.add(key.name)
            yield Fact("phase", "unknown", Span("", 0), "language-model", _CONFIDENCE)
            continue
        span = passage.find(quote)
        if span is None:
            withheld.append(Withheld("fact", "quote"))
            continue
        value = value_of(key, claimed, quote)
        if value is None:
            numeric = key.kind in ("size", "fraction", "billions", "whole")
            withheld.append(Withheld("fact", "number" if numeric else "value"))
            continue
        seen.add(key.name)
        yield Fact(key.name, value, span, "language-model", _CONFIDENCE)


def _statements(reply: Mapping[str, Any], passage: Passage, withheld: list[Withheld]) -> Iterator[Statement]:
    seen: set[str] = set()
    for row in _rows(reply, "statements", withheld):
        name = row.get("id", "")
        if name not in statements():
            withheld.append(Withheld("statement", "unknown"))
            continue
        span = _supported(row.get("quote", ""), passage)
        if span is None:
            withheld.append(Withheld("statement", "quote"))
        elif name not in seen:
            seen.add(name)
            yield Statement(name, span, _SAID)
