"""Caps on what comes from outside, in one place, and reading YAML and JSON within them.

A parser in C follows brackets with its own stack and ends the process where they go deep, and aliases stand for
exponentially many values: text is first looked through as a stream of events, which needs neither, and only then read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from oomkb.errors import ODD, InputError

__all__ = [
    "DEPTH",
    "NODES",
    "TEXT_CHARS",
    "check_tree",
    "json_document",
    "shown",
    "yaml_document",
]

DEPTH: Final = 64
"""Mappings and lists within each other."""
NODES: Final = 50_000
"""Values of one document, those that aliases repeat counted each time."""
TEXT_CHARS: Final = 1 << 20
"""Characters of one YAML or JSON document."""
_PLAIN_CHARS: Final = 4_096
"""Characters of a YAML scalar without quotes: longer ones are no numbers, and would be tried as such."""
_SCALAR_CHARS: Final = 1 << 16
_KEY_CHARS: Final = 200
_LARGEST: Final = 1 << 63
_SHOWN: Final = 80
# Whatever building plain values out of well-formed YAML may raise: a date without such a day, a list as a key.
_UNREADABLE: Final = (*ODD, RecursionError)


def shown(value: Any) -> str:
    """A value as an error quotes it: at most 80 characters, however large it is."""
    if isinstance(value, str):
        text = repr(value[:_SHOWN])
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _LARGEST:
        text = f"a whole number of {value.bit_length()} bits"
    elif isinstance(value, Mapping | list | tuple | set | frozenset):
        text = f"a {'mapping' if isinstance(value, Mapping) else 'list'} of {len(value)}"
    else:
        text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def check_tree(
    value: Any, *, where: str, depth: int = DEPTH, nodes: int = NODES, text_chars: int | None = _SCALAR_CHARS
) -> None:
    """Refuse values that are nested too deeply, too many, too long, or no finite numbers. Never recurses.

    :param text_chars: characters that one text may have; ``None`` where the whole was bounded before.
    :raises InputError: naming the place of the first.
    """
    waiting: list[tuple[Any, int, str]] = [(value, 0, where)]
    count = 0
    while waiting:
        item, level, place = waiting.pop()
        count += 1
        if count > nodes:
            raise InputError(f"more than {nodes:,} values", where=where, hint="give the part that matters")
        if level > depth:
            raise InputError(f"nested more than {depth} deep", where=where, hint="give the part that matters")
        if isinstance(item, Mapping):
            for key, inner in item.items():
                name = str(key) if isinstance(key, str | int | float | bool | None) else "?"
                if len(name) > _KEY_CHARS:
                    raise InputError(f"a key of more than {_KEY_CHARS} characters", where=place)
                waiting.append((inner, level + 1, f"{place}.{name}" if level < 4 else place))
        elif isinstance(item, list | tuple | set | frozenset):
            waiting.extend((inner, level + 1, place) for inner in item)
        else:
            _check_scalar(item, place, text_chars)


def _check_scalar(value: Any, where: str, text_chars: int | None) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{value} is not a finite number", where=where)
    if isinstance(value, int) and abs(value) >= _LARGEST:
        raise InputError(f"{shown(value)} is too large", where=where)
    if text_chars is not None and isinstance(value, str | bytes) and len(value) > text_chars:
        raise InputError(f"a text of more than {text_chars:,} characters", where=where)


def json_document(text: str, *, where: str, chars: int = TEXT_CHARS) -> Any:
    """A JSON document of plain, finite values.

    :raises InputError: for what is none, or goes beyond the caps.
    """
    if len(text) > chars:
        raise InputError(f"longer than {chars:,} characters", where=where, hint="give the part that matters")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {str(error)[:200]}", where=where, hint="mend it at this place") from error
    check_tree(found, where=where)
    return found


def yaml_document(text: str, *, where: str, loader: Any = None, aliases: bool = True) -> Any:
    """A YAML document of plain, finite values.

    :param loader: a safe loader class of another kind.
    :param aliases: whether ``*name`` may repeat a value at all.
    :raises InputError: for broken YAML (``where`` with line and column), or what goes beyond the caps.
    """
    import yaml

    safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(text) > TEXT_CHARS:
        raise InputError(f"longer than {TEXT_CHARS:,} characters", where=where, hint="give the part that matters")
    try:
        _look_through(text, safe, where, aliases=aliases)
        found = yaml.load(text, Loader=loader or safe)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        raise InputError(f"broken YAML: {str(error.problem or 'no document')[:200]}", where=place, hint="mend the file at this place") from error
    except yaml.YAMLError as error:
        raise InputError(f"broken YAML: {str(error)[:200]}", where=where, hint="mend the file") from error
    except _UNREADABLE as error:
        raise InputError(f"broken YAML: {str(error)[:200]}", where=where) from error
    check_tree(found, where=where)
    return found


def _look_through(text: str, loader: Any, where: str, *, aliases: bool) -> None:
    """Refuse what is too deep or too much before anything is built.

    Each open collection counts its values; a finished one with an anchor is worth that many wherever it is repeated.
    """
    import yaml

    worth: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            if not aliases:
                raise InputError("aliases are not allowed", where=where, hint="write the value out")
            total += worth.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if len(event.value) > (_PLAIN_CHARS if event.style is None else _SCALAR_CHARS):
                raise InputError("a text that is too long", where=f"{where}:{event.start_mark.line + 1}")
        elif isinstance(event, yaml.CollectionStartEvent):
            total += 1
            opened.append((event.anchor, total))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                worth[anchor] = total - before + 1
        if len(opened) > DEPTH:
            raise InputError(f"nested more than {DEPTH} deep", where=where, hint="give the part that matters")
        if total > NODES:
            raise InputError(f"more than {NODES:,} values", where=where, hint="give the part that matters")
