"""Replies to claims, claims to a reading: each held against the text, and dropped where it does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args

from oomdoc.evidence import Fact, ModelReading, NamedCause, Outcome, Span, Statement, Withheld
from oomdoc.intake.statements import statements
from oomdoc.language_model.reader.passage import Passage
from oomdoc.language_model.reader.values import value_of
from oomdoc.language_model.reader.vocabulary import causes, fact_keys, outcomes

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
