"""Values as text in each form, in the manner of what stands there."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from oomdoc.intake.configs.table import Raw
from oomdoc.intake.configs.values import spell
from oomkb.kept import lazy

_PLAIN: Final = lazy(r"[A-Za-z0-9_./~][\w./+,@ ~:=-]*\Z")
_AMBIGUOUS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "~", "none"})
_SHELL_SAFE: Final = lazy(r"[\w./:,@%+=~-]*\Z")


def _truth(value: bool, like: str) -> str:
    if like[:1].isupper():
        return "True" if value else "False"
    if like in ("yes", "no"):
        return "yes" if value else "no"
    if like in ("on", "off"):
        return "on" if value else "off"
    if like in ("0", "1"):
        return "1" if value else "0"
    return "true" if value else "false"


def in_yaml(value: Any, *, like: str = "", quote: str = "") -> str:
    """A YAML scalar or flow list. ``like`` is a truth value's spelling to follow."""
    if isinstance(value, Raw):
        value = value.text.removeprefix("torch.")
    if value is None:
        return "null"
    if isinstance(value, bool):
        return _truth(value, like)
    if isinstance(value, int | float):
        return f"{quote}{spell(value)}{quote}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(in_yaml(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {in_yaml(v)}" for k, v in value.items()) + "}"
    text = str(value)
    if quote:
        return f"{quote}{text}{quote}"
    plain = _PLAIN.match(text) and ": " not in text and not text.endswith((":", " ")) and text.lower() not in _AMBIGUOUS
    numeric = re.fullmatch(r"[0-9._eE+-]{1,40}", text) is not None
    return text if plain and not numeric else json.dumps(text, ensure_ascii=False)


def json_text(value: Any) -> str:
    """JSON; whole floats as whole numbers."""
    if isinstance(value, Raw):
        return json.dumps(value.text.removeprefix("torch."))
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float):
        return spell(value)
    return json.dumps(value, ensure_ascii=False)


def in_python(value: Any, quote: str = '"') -> str:
    """A Python expression; texts in the quotes the file uses."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, str):
        quote = quote or '"'
        return quote + value.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote
    if isinstance(value, list | tuple):
        return "[" + ", ".join(in_python(v, quote) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{in_python(k, quote)}: {in_python(v, quote)}" for k, v in value.items()) + "}"
    if isinstance(value, bool) or value is None:
        return str(value)
    return spell(value)


def in_shell(value: Any, *, like: str = "", quote: str = "") -> str:
    """A word of a command; quoted only where the shell would read it otherwise."""
    if isinstance(value, Raw):
        value = value.text.removeprefix("torch.")
    if isinstance(value, bool):
        return _truth(value, like)
    if isinstance(value, list | tuple):
        return " ".join(in_shell(v) for v in value)
    text = spell(value) if isinstance(value, int | float) else "null" if value is None else str(value)
    if quote or _SHELL_SAFE.match(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"
