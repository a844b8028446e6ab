"""Expressions that are compiled when first used: a cold start needs few of the hundreds that modules define."""

from __future__ import annotations

import re
from typing import Any, cast

__all__ = ["lazy"]


class _Lazy:
    """Stands for a compiled expression, and becomes one when anything is asked of it."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._given = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(*self._given)
        self.__dict__ |= {each: getattr(compiled, each) for each in dir(compiled) if not each.startswith("_")}
        return self.__dict__[name]


def lazy(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """As ``re.compile``, but compiled at the first search.

    :raises re.error: at that search, where the pattern is none; tests search with every one.
    """
    return cast("re.Pattern[str]", _Lazy(pattern, flags))
