"""Numbers of a question that nothing in its answer rests on: what was not understood is named, never passed over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from oomdoc.diagnosis.result import Diagnosis
from oomdoc.evidence import Message, say
from oomdoc.intake.asked import PARTS
from oomdoc.intake.numbers import numbers_in
from oomdoc.intake.worded import WrittenNumber
from oomkb.catalog import gpus
from oomkb.errors import OomdocError
from oomkb.memory.families.dimensions import Dims
from oomkb.memory.job import Job
from oomkb.pricing import shape_of
from oomkb.units import GIB

_MAX_NAMED: Final = 4
_MAX_DEPTH: Final = 8
_TOLERANCE: Final = 1e-3
_SOLD: Final = (4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 72, 80, 94, 96, 128, 141, 144, 180, 192, 256, 288)
"""Sizes of cards as they are sold, in GB: a card of 80 holds 79.15 GiB."""
_FROM_BYTES: Final = 1 << 27
"""What signals hold from so much on are bytes, which people write in GiB."""


def unused_numbers(found: Diagnosis) -> Iterator[Message]:
    """The numbers that are no value of a fact, a setting or a compared run."""
    asked = found.asked
    if asked is None or not asked.numbers or not found.careful or found.evidence.documents:
        return
    evidence = found.evidence
    read = [fact.value for fact in evidence.facts.values()], [signal.data for signal in evidence.signals]
    words = [getattr(asked, part) for part in PARTS if part != "numbers"]
    card = gpus.find(str(found.job.gpu)) if found.job.gpu else None
    nominal = [] if card is None else [number for number in _SOLD if 0.9 < card.capacity_bytes / GIB / number <= 1.0]
    if left := unused(asked.numbers, *read, found.job, evidence.versions, words, nominal, _dimensions(found.job)):
        yield say("answer.unused", phrases=list(left[:_MAX_NAMED]))


def _dimensions(job: Job) -> Dims | None:
    """Those of the model: what a person says of them, and what is known, are one."""
    try:
        return shape_of(job).dims
    except OomdocError:
        return None


def unused(numbers: Iterable[WrittenNumber], *things: Any) -> tuple[str, ...]:
    """The numbers that stand in none of the things, as they are written."""
    used = set(_values(things))
    used |= {100 * value for value in used if value < 1}  # a share, written in percent
    used |= {value / GIB for value in used if value >= _FROM_BYTES}
    return tuple(dict.fromkeys(one.phrase for one in numbers if not _is_used(one, used)))


def _is_used(number: WrittenNumber, used: set[float]) -> bool:
    return any(abs(value - known) <= _TOLERANCE * value for value in number.values for known in used)


def _values(thing: Any, depth: int = 0) -> Iterator[float]:
    """Every number in a value, those inside its words included."""
    if isinstance(thing, bool) or thing is None or depth > _MAX_DEPTH:
        return
    if isinstance(thing, int | float):
        yield float(thing)
    elif isinstance(thing, str):
        yield from numbers_in(thing)
    elif isinstance(thing, Mapping):
        for value in thing.values():
            yield from _values(value, depth + 1)
    elif isinstance(thing, list | tuple | set | frozenset):
        for value in thing:
            yield from _values(value, depth + 1)
    elif is_dataclass(thing):
        for field in fields(thing):
            yield from _values(getattr(thing, field.name), depth + 1)
