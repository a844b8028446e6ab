"""Reading YAML and JSON from outside within :mod:`oomkb.limits`.

A parser in C follows brackets with its own stack and ends the process where they go deep, and aliases stand for
exponentially many values: text is first looked through as a stream of events, which needs neither, and only then read.
"""

from __future__ import annotations

import json
from typing import Any, Final

from oomkb.errors import ARITHMETIC_ERRORS, InputError
from oomkb.limits import DEPTH, NODES, SCALAR_CHARS, TEXT_CHARS, check_tree

_PLAIN_CHARS: Final = 4_096
"""Characters of a YAML scalar without quotes: longer ones are no numbers, and would be tried as such."""
# Whatever building plain values out of well-formed YAML may raise: a date without such a day, a list as a key.
_UNREADABLE: Final = (*ARITHMETIC_ERRORS, RecursionError)


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


def yaml_document(text: str, *, where: str, loader: Any = None, aliases: bool = True, finite: bool = True) -> Any:
    """A YAML document of plain values.

    :param loader: a safe loader class of another kind.
    :param aliases: whether ``*name`` may repeat a value at all.
    :param finite: whether infinity and NaN are refused.
    :raises InputError: for broken YAML (``where`` with line and column), or what goes beyond the caps.
    """
    import yaml

    safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(text) > TEXT_CHARS:
        raise InputError(f"longer than {TEXT_CHARS:,} characters", where=where, hint="give the part that matters")
    try:
        look_through(text, safe, where, aliases=aliases)
        found = yaml.load(text, Loader=loader or safe)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        raise InputError(
            f"broken YAML: {str(error.problem or 'no document')[:200]}", where=place, hint="mend the file at this place"
        ) from error
    except yaml.YAMLError as error:
        raise InputError(f"broken YAML: {str(error)[:200]}", where=where, hint="mend the file") from error
    except _UNREADABLE as error:
        raise InputError(f"broken YAML: {str(error)[:200]}", where=where) from error
    check_tree(found, where=where, finite=finite)
    return found


def look_through(text: str, loader: Any, where: str, *, aliases: bool = True) -> None:
    """Refuse what is too deep or too much before anything is built.

    Each open collection counts its values; a finished one with an anchor counts that many wherever it is repeated.
    """
    import yaml

    counted: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            if not aliases:
                raise InputError("aliases are not allowed", where=where, hint="write the value out")
            total += counted.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if len(event.value) > (_PLAIN_CHARS if event.style is None else SCALAR_CHARS):
                raise InputError("a text that is too long", where=where)
        elif isinstance(event, yaml.CollectionStartEvent):
            total += 1
            opened.append((event.anchor, total))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                counted[anchor] = total - before + 1
        if len(opened) > DEPTH:
            raise InputError(f"nested more than {DEPTH} deep", where=where, hint="give the part that matters")
        if total > NODES:
            raise InputError(f"more than {NODES:,} values", where=where, hint="give the part that matters")
