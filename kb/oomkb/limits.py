"""Caps on what comes from outside, in one place. :mod:`oomkb.untrusted` reads YAML and JSON within them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from oomkb.errors import InputError, OomdocError

DEPTH: Final = 64
"""Mappings and lists within each other."""
NODES: Final = 50_000
"""Values of one document, those that aliases repeat counted each time."""
TEXT_CHARS: Final = 1 << 20
"""Characters of one YAML or JSON document."""
SCALAR_CHARS: Final = 1 << 16
_KEY_CHARS: Final = 200
_MAX_INTEGER: Final = 1 << 63
_SHOWN: Final = 80


def shown(value: Any) -> str:
    """A value as an error quotes it: at most 80 characters, however large it is."""
    if isinstance(value, str):
        text = repr(value[:_SHOWN])
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _MAX_INTEGER:
        text = f"a whole number of {value.bit_length()} bits"
    elif isinstance(value, Mapping | list | tuple | set | frozenset):
        text = f"a {'mapping' if isinstance(value, Mapping) else 'list'} of {len(value)}"
    else:
        text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def check_tree(
    value: Any,
    *,
    where: str,
    depth: int = DEPTH,
    nodes: int = NODES,
    text_chars: int | None = SCALAR_CHARS,
    finite: bool = True,
    error: type[OomdocError] = InputError,
) -> None:
    """Refuse values that are nested too deeply, too many, too long, or no finite numbers. Never recurses.

    :param finite: whether infinity and NaN are refused; configurations of models hold them (``time_step_limit``).
    :param text_chars: characters that one text may have; ``None`` where the whole was bounded before.
    :raises OomdocError: an ``error`` that names the place of the first.
    """
    waiting: list[tuple[Any, int, str]] = [(value, 0, where)]
    count = 0
    while waiting:
        item, level, place = waiting.pop()
        count += 1
        if count > nodes:
            raise error(f"more than {nodes:,} values", where=where, hint="give the part that matters")
        if level > depth:
            raise error(f"nested more than {depth} deep", where=where, hint="give the part that matters")
        if isinstance(item, Mapping):
            for key, inner in item.items():
                name = str(key) if isinstance(key, str | int | float | bool | None) else "?"
                _check_characters(name, place, error)
                if len(name) > _KEY_CHARS:
                    raise error(f"a key of more than {_KEY_CHARS} characters", where=place)
                waiting.append((inner, level + 1, f"{place}.{name}" if level < 4 else place))
        elif isinstance(item, list | tuple | set | frozenset):
            waiting.extend((inner, level + 1, place) for inner in item)
        else:
            _check_scalar(item, place, text_chars, error, finite=finite)


def finite_only(value: Any) -> Any:
    """The same tree of lists and mappings with ``None`` for infinity and NaN, which JSON has no words for."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {k: finite_only(v) for k, v in value.items()}
    return [finite_only(v) for v in value] if isinstance(value, list | tuple) else value


def _check_scalar(value: Any, where: str, text_chars: int | None, error: type[OomdocError], *, finite: bool) -> None:
    if finite and isinstance(value, float) and not math.isfinite(value):
        raise error(f"{value} is not a finite number", where=where)
    if isinstance(value, int) and abs(value) >= _MAX_INTEGER:
        raise error(f"{shown(value)} is too large", where=where)
    if text_chars is not None and isinstance(value, str | bytes) and len(value) > text_chars:
        raise error(f"a text of more than {text_chars:,} characters", where=where)
    if isinstance(value, str):
        _check_characters(value, where, error)


def _check_characters(text: str, where: str, error: type[OomdocError]) -> None:
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise error("half of a character (a lone surrogate)", where=where)
