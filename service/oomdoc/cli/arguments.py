"""Plain arguments taken as they are: typer 0.29 builds a pydantic validator for each, a tenth of a cold start."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command whose texts, paths and choices are validated only where they are not plainly right."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As any command, with those validators."""
        return _eased(super().get_params(ctx))


class Group(TyperGroup):
    """The same of a command with subcommands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As any group, with those validators."""
        return _eased(super().get_params(ctx))


def _eased(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "_runtime_param", param) is None:
            param._runtime_param = _Plain()
    return params


class _Plain:
    """In place of typer's validator, which it hands everything on to that it does not know to be right."""

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        """The value as the command takes it.

        :raises typer.BadParameter: where typer's own validator refuses it.
        """
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        kind = param.type_descriptor.annotation
        if get_origin(kind) is list and several:
            found = [_taken(one, get_args(kind)[0]) for one in value]
            plain = None not in found
        else:
            found = _taken(value, kind)
            plain = found is not None
        if plain:
            return found
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _taken(value: Any, kind: Any) -> Any:
    """A text, a word of a choice, a path that is not there yet or can be read; ``None`` for anything else."""
    if kind is str:
        return value if isinstance(value, str) else None
    if kind is Path and isinstance(value, str):
        path = Path(value)
        return path if not path.exists() or (path.is_file() and os.access(path, os.R_OK)) else None
    if isinstance(kind, type) and issubclass(kind, Enum):
        return value if isinstance(value, kind) else next((one for one in kind if one.value == value), None)
    return None
