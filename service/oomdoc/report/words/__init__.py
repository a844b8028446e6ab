"""One catalogue of user-visible words per language: ``<language>/<area>.toml``, the same keys in each.

Tables nest into dotted keys: ``[cause.logits] title = "..."`` is ``cause.logits.title``. Placeholders are
``str.format`` fields; a value whose name ends in ``_bytes`` is shown in GiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from oomdoc.evidence import Message
from oomkb.kept import compiled
from oomkb.tables import read_toml
from oomkb.units import format_gib

__all__ = ["LANGUAGES", "catalogue", "has", "inner", "render", "word", "word_or"]

LANGUAGES: Final = ("en", "zh")
_NAMED: Final = {"phase": "phase", "owner": "term"}
"""Placeholders whose value is itself a name with words."""
_BLANK_BESIDE_MARK: Final = compiled(r" +(?=[：，。、；）])|(?<=[：，。、；（]) +|(?<=[一-鿿]) +(?=[一-鿿])")
_LIST_COMMA: Final = {"en": ", ", "zh": "、"}


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """All templates of one language by dotted key."""
    folder = Path(__file__).parent / language
    words: dict[str, str] = {}
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".toml"):
            words.update(_flatten(read_toml(entry)))
    return words


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, str(value)


def has(key: str, language: str = "en") -> bool:
    """Whether the catalogue holds a key."""
    return key in catalogue(language)


def word(key: str, language: str, /, **values: Any) -> str:
    """The words of one key. A key that the language lacks falls back to English, then to the key itself."""
    template = catalogue(language).get(key) or catalogue("en").get(key)
    if template is None:
        return f"{key} {dict(values)}" if values else key
    shown = {name: _show(name, value, language) for name, value in values.items()}
    try:
        return _joined(template.format_map(shown), language)
    except (KeyError, ValueError, IndexError, TypeError):
        return template


def word_or(key: str, otherwise: str, language: str) -> str:
    """The words of a key, where the catalogue holds it."""
    return word(key, language) if has(key) else otherwise


def render(message: Message | str, language: str) -> str:
    """A message in a language."""
    return message if isinstance(message, str) else word(message.key, language, **message.values)


def _show(name: str, value: Any, language: str) -> Any:
    if isinstance(value, Message):
        return render(value, language)
    if isinstance(value, Mapping):  # a text by language
        return value.get(language) or value.get("en", "")
    if isinstance(value, list | tuple | set | frozenset):
        # A sentence inside a list ends where the list goes on.
        return _LIST_COMMA[language].join(
            str(_show("", v, language)).removesuffix(".").removesuffix("。") for v in value
        )
    if name.endswith("_bytes") and isinstance(value, int | float):
        return format_gib(value)
    if name in _NAMED and isinstance(value, str):
        return catalogue(language).get(f"{_NAMED[name]}.{value}", value)
    return value


def _joined(text: str, language: str) -> str:
    """Chinese has no blank before its marks."""
    return _BLANK_BESIDE_MARK.sub("", text) if language == "zh" else text


def inner(sentence: str) -> str:
    """A sentence as part of another: without its full stop, with its ellipsis."""
    return sentence if sentence.endswith("...") else sentence.rstrip(".。")
