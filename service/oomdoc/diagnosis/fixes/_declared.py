"""Remedies that are a row of ``settings.toml``: conditions on the job, and what is set or said where they hold.

Conditions stand in a remedy, for all of its offers, and in an offer:

- ``needs``: what the framework must have a setting for, all of it;
- ``where``, ``unless``: fields with the values that they must, or must not, have. ``unset`` is no value or an empty
  list; of a list one member counts;
- ``least``, ``most``: fields with their bounds, an unset one counts as 0;
- ``card``: what the GPU must do. ``bitsandbytes`` and ``cuda`` are trusted on a card that is not known, the rest not.

A field is one of a job's, ``context.NAME`` one of :class:`Context`'s, ``fact.NAME`` a fact that instructions quote, or
one of :data:`_ASKED`. An offer is one of

- ``set``: job fields with their values;
- ``lower``: a number to lower, to ``values`` or to what is left when it is divided by ``divide`` (not below ``to``),
  each costing ``more`` than the one before;
- ``step``: an instruction (``fixes.<remedy>.<step>``) that quotes the framework's ``line`` of that name, else
  ``arguments`` in the form of its training arguments, else the text ``otherwise``; and the fact ``quotes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant, arguments_line, data_parallel, is_rl
from oomdoc.diagnosis.fixes.hardware import has_bitsandbytes, has_cuda
from oomdoc.evidence import say
from oomkb.errors import CatalogError
from oomkb.frameworks import ENGINES
from oomkb.frameworks import line as line_of
from oomkb.memory.job import FIELD_NAMES, Job
from oomkb.memory.ranks import model_parallel
from oomkb.tables import read_table

_FILE: Final = Path(__file__).with_name("settings.toml")
_ASKED: Final[Mapping[str, Callable[[Job, Context], Any]]] = {
    "data_parallel": lambda job, context: data_parallel(job),
    "model_parallel": lambda job, context: model_parallel(job),
    "rl": lambda job, context: is_rl(job),
    "engine": lambda job, context: context.framework in ENGINES,
    "context.cause": lambda job, context: next(iter(context.causes), None),
}
_CONDITIONS: Final[Mapping[str, type]] = {
    "needs": list,
    "where": dict,
    "unless": dict,
    "least": dict,
    "most": dict,
    "card": list,
}
_OFFERS: Final[Mapping[str, Mapping[str, type]]] = {
    "set": {"set": dict},
    "lower": {"lower": str, "values": list, "divide": list, "to": int, "more": float},
    "step": {"step": str, "line": str, "arguments": dict, "otherwise": str, "quotes": str},
}
_OWN: Final = {"safety": str, "kinds": list, "reduces": list, "causes": list, "offers": list}


def declared() -> Iterator[Remedy]:
    """The remedies of the table.

    :raises CatalogError: for a row with a key that is not known, a value of another type or no offer.
    """
    for name, row in read_table(_FILE).items():
        _check(name, row, {**_OWN, **_CONDITIONS})
        common = {key: row[key] for key in _CONDITIONS if key in row}
        for offer in row["offers"]:
            kind = next((kind for kind in _OFFERS if kind in offer), "set")
            _check(name, offer, {**_OFFERS[kind], **_CONDITIONS, "effort": float})
        yield Remedy(
            name=name,
            safety=row["safety"],
            kinds=frozenset(row["kinds"]),
            variants=partial(_variants, name, common, row["offers"]),
            reduces=tuple(row.get("reduces", ())),
            causes=frozenset(row.get("causes", ())),
        )


def _check(name: str, row: Mapping[str, Any], known: Mapping[str, type]) -> None:
    wrong = [key for key, value in row.items() if key not in known or not isinstance(value, known[key])]
    lacking = {"effort", "safety", "kinds", "offers"} & set(known) - set(row)
    if wrong or lacking:
        raise CatalogError(f"{name}: not known, not of its type or lacking: {[*wrong, *lacking]}", where=str(_FILE))
    for field in (field for key in ("where", "unless", "least", "most") for field in row.get(key, ())):
        group, _, part = field.partition(".")
        if field not in _ASKED and group not in (*FIELD_NAMES, "fact") and not hasattr(Context(), part):
            raise CatalogError(f"{name}: no field {field}", where=str(_FILE))


def _variants(
    name: str, common: Mapping[str, Any], offers: list[Mapping[str, Any]], job: Job, context: Context
) -> Iterator[Variant]:
    if not _holds(common, job, context):
        return
    for offer in (offer for offer in offers if _holds(offer, job, context)):
        if "set" in offer:
            yield Variant(fields=offer["set"], effort=offer["effort"])
        elif "lower" in offer:
            yield from _lower(offer, job.get(offer["lower"]))
        elif (line := _line(offer, context.framework)) is not None:
            quoted = {"quote": context.facts.get(offer["quotes"])} if "quotes" in offer else {}
            yield Variant(instruction=say(f"fixes.{name}.{offer['step']}", line=line, **quoted), effort=offer["effort"])


def _holds(row: Mapping[str, Any], job: Job, context: Context) -> bool:
    return all(test(row[name], job, context) for name, test in _TESTS if name in row)


_TESTS: Final[tuple[tuple[str, Callable[[Any, Job, Context], bool]], ...]] = (
    ("needs", lambda needs, job, context: all(map(context.has, needs))),
    ("where", lambda where, job, context: all(_among(f, v, job, context) for f, v in where.items())),
    ("unless", lambda unless, job, context: not any(_among(f, v, job, context) for f, v in unless.items())),
    ("least", lambda least, job, context: all((_value(f, job, context) or 0) >= n for f, n in least.items())),
    ("most", lambda most, job, context: all((_value(f, job, context) or 0) <= n for f, n in most.items())),
    ("card", lambda card, job, context: all(_card_can(feature, context) for feature in card)),
)
"""The conditions, in the order in which they are looked at."""


def _value(field: str, job: Job, context: Context) -> Any:
    if (asked := _ASKED.get(field)) is not None:
        return asked(job, context)
    group, _, name = field.partition(".")
    if group == "context":
        return getattr(context, name)
    return context.facts.get(name) if group == "fact" else job.get(field)


def _among(field: str, values: list[Any], job: Job, context: Context) -> bool:
    value = _value(field, job, context)
    if value is None or value == ():
        return "unset" in values
    return any(one in values for one in value) if isinstance(value, tuple) else value in values


def _card_can(feature: str, context: Context) -> bool:
    if feature in ("bitsandbytes", "cuda"):
        return (has_cuda if feature == "cuda" else has_bitsandbytes)(context.device)
    return context.device is not None and context.can(feature)


def _lower(offer: Mapping[str, Any], now: Any) -> Iterator[Variant]:
    if now is None:
        return
    for rank, value in enumerate(offer.get("values") or [now // divisor for divisor in offer["divide"]]):
        if offer.get("to", 0) <= value < now:
            yield Variant(fields={offer["lower"]: value}, effort=offer["effort"] + offer["more"] * rank)


def _line(offer: Mapping[str, Any], framework: str | None) -> str | None:
    own = line_of(framework, offer["line"]) if "line" in offer else None
    if own is None and "arguments" in offer:
        return arguments_line(framework, offer["arguments"])
    return own if own is not None else offer.get("otherwise")
