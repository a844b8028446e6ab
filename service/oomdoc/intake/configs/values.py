"""Scalars as people write them in configs and commands, both ways."""

from __future__ import annotations

from typing import Any, Final

from oomkb.kept import compiled

_INT: Final = compiled(r"[+-]?[0-9](?:_?[0-9]){0,24}\Z")
_FLOAT: Final = compiled(
    r"[+-]?(?:[0-9]{1,24}\.[0-9]{0,24}|\.[0-9]{1,24}|[0-9]{1,24}(?=[eE]))(?:[eE][+-]?[0-9]{1,3})?\Z"
)
_TRUE: Final = frozenset({"true", "yes", "on"})
_FALSE: Final = frozenset({"false", "no", "off"})
_NULL: Final = frozenset({"null", "~", "none", ""})


def as_scalar(text: str) -> Any:
    """An unquoted scalar: whole number, float, true/false, nothing, or the text itself."""
    text = text.strip()
    if len(text) <= 40:
        if _INT.match(text):
            return int(text.replace("_", ""))
        if _FLOAT.match(text):
            return float(text)
        low = text.lower()
        if low in _TRUE:
            return True
        if low in _FALSE:
            return False
        if low in _NULL:
            return None
    return text


def unquote(text: str) -> tuple[str, str]:
    """The text without its quotes, and the quote."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1], text[0]
    return text, ""


def whole(value: Any) -> int | None:
    """A whole number, written in any way (``4``, ``"4"``, ``4.0``, ``2**12``, ``8k``), or ``None``."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, list | tuple) and len(value) == 1:
        return whole(value[0])
    if isinstance(value, str):
        value = _from_text(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= 1e15 or int(value) != value:
            return None
        return int(value)
    return None


_BEGINS: Final = "+-.0123456789"
"""What a number begins with."""
_POWER: Final = compiled(r"([0-9]{1,6})\s?(\*\*|\*)\s?([0-9]{1,6})\Z")
_THOUSANDS: Final = compiled(r"([0-9]{1,4})[kK]\Z")


def _from_text(text: str) -> Any:
    """The number that a text is; ``None`` for what is none."""
    text = text.strip().strip("\"'")
    if text.lstrip()[:1] not in _BEGINS:
        return None
    match = _POWER.match(text)
    if match:
        a, b = int(match[1]), int(match[3])
        return a * b if match[2] == "*" else a**b if b <= 40 and a <= 16 else None
    match = _THOUSANDS.match(text)
    if match:
        return int(match[1]) * 1024
    value = as_scalar(text)
    return None if isinstance(value, str) else value


def number(value: Any) -> float | None:
    """A number, or ``None``."""
    if isinstance(value, str):
        value = _from_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e18 else None


def flag(value: Any) -> bool | None:
    """A truth value written in any way (``true``, ``"True"``, ``1``, a bare flag), or ``None``."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        low = value.strip().lower()
        if low in _TRUE | {"1"}:
            return True
        if low in _FALSE | {"0"}:
            return False
    return None


def spell(value: Any) -> str:
    """A number or word as text: no exponent for whole numbers, the shortest form for others."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15 and abs(value) >= 2:
        return str(int(value))
    return str(value)
