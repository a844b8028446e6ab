"""``dataclass`` of :mod:`dataclasses`, for a part of what making a class costs: a cold start makes three hundred.

The constructor is the library's own. Comparison, hash and text are shared functions over the fields instead of code
that is compiled for each class, and ``frozen`` is what the type checker holds callers to: at run time it only says that
values have a hash, so that constructors assign directly.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: Any = None, *, frozen: bool = False, eq: bool = True, repr: bool = True, **options: Any) -> Any:
        """As :func:`dataclasses.dataclass`, without ``order``."""
        if cls is None:
            return lambda given: dataclass(given, frozen=frozen, eq=eq, repr=repr, **options)
        own = vars(cls)
        if eq and "__eq__" not in own:
            cls.__eq__, cls.__hash__ = _equal, own.get("__hash__") or (_hash if frozen else None)
        if repr and "__repr__" not in own:
            cls.__repr__ = _text
        cls.__doc__ = cls.__doc__ or cls.__name__  # or the library works out a signature
        made = dataclasses.dataclass(cls, eq=False, repr=False, **options)
        compared = [field.name for field in dataclasses.fields(made) if field.compare]
        # A single one twice: it would not make a tuple.
        made.__compared__ = attrgetter(*(compared if len(compared) > 1 else compared * 2 or ["__class__"]))
        return made


def _equal(self: Any, other: object) -> bool:
    get = self.__compared__
    return bool(get(self) == get(other)) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(self.__compared__(self))


@recursive_repr()
def _text(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"
