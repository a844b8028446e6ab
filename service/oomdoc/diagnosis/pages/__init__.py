"""The page of each cause, in English and Chinese: ``oomdoc explain logits``.

``en.toml`` and ``zh.toml`` hold a table per cause with ``title sign mechanism confirm fix cost``.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final

from oomkb.errors import InputError
from oomkb.records.taxonomy import CAUSES

__all__ = ["page"]

_HEADINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {"sign": "Sign", "mechanism": "Mechanism", "confirm": "Confirm", "fix": "Fix", "cost": "Cost"},
    "zh": {"sign": "现象", "mechanism": "机理", "confirm": "确认", "fix": "解决", "cost": "代价"},
}
_WIDTH: Final = 112


def page(cause: str, language: str = "en") -> str:
    """The page of a cause: sign, mechanism, how to confirm it, how to fix it, what that costs.

    :raises InputError: for a cause that is not known.
    """
    if cause not in CAUSES:
        raise InputError(f"{cause!r} is not a cause", where="cause", hint=f"one of {', '.join(sorted(CAUSES))}")
    language = language if language in _HEADINGS else "en"
    parts = _pages(language)[cause]
    body = "\n".join(f"{heading}\n{_indented(parts[key])}" for key, heading in _HEADINGS[language].items())
    return f"{parts['title']}\n\n{body}"


def _indented(text: str) -> str:
    plain = " ".join(text.split())
    return textwrap.fill(plain, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


@cache
def _pages(language: str) -> Mapping[str, Mapping[str, str]]:
    source = resources.files(__package__).joinpath(f"{language}.toml").read_text(encoding="utf-8")
    return tomllib.loads(source)
