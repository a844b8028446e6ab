"""Records (dataclasses) from plain values, as JSON or a checked file gives them: the classes alone name the fields."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Read = Callable[[Any], Any]


def from_plain(kind: type[T], plain: dict[str, Any]) -> T:
    """``kind`` (a dataclass) with the values of ``plain``: lists become tuples, mappings the records they stand for.

    Mappings of free keys stay as they are.

    :raises TypeError: for a key that is no field, or a field without a value or default.
    """
    values = dict(plain)
    for name, read in _readers(kind):  # type: ignore[arg-type]  # a class is hashable
        if name in values:
            values[name] = read(values[name])
    return kind(**values)


@lru_cache(maxsize=32)
def _readers(kind: type[Any]) -> tuple[tuple[str, Read], ...]:
    """The fields that are not taken as they are."""
    hints = get_type_hints(kind)
    found = ((field.name, _reader(hints[field.name])) for field in dataclasses.fields(kind))
    return tuple((name, read) for name, read in found if read is not None)


def _reader(hint: Any) -> Read | None:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        record: type[Any] = hint
        return lambda value: from_plain(record, value)
    arguments = get_args(hint)
    if get_origin(hint) is tuple:
        each = _reader(arguments[0])
        return tuple if each is None else lambda values: tuple(each(value) for value in values)
    if get_origin(hint) in (Union, types.UnionType):
        inner = next((read for read in map(_reader, arguments) if read is not None), None)
        return None if inner is None else lambda value: None if value is None else inner(value)
    return None
