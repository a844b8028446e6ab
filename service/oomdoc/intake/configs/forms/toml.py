"""TOML and ini files line by line: ``[section]`` and ``key = value``."""

from __future__ import annotations

import re
from typing import Final

from oomdoc.intake.configs.entry import Entry, FormError
from oomdoc.intake.configs.forms.flow import parse_flow
from oomdoc.intake.configs.values import as_scalar, unquote
from oomkb.kept import lazy

_LINE: Final = lazy(r"[ \t]*(?:\[{1,2}([^\]\n]{1,200})\]{1,2}|(\"?[A-Za-z_][\w.\-]{0,100}\"?)[ \t]*=[ \t]*([^\n]*))")
_QUOTED: Final = lazy(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'')


def parse_toml(text: str, start: int = 0, end: int | None = None) -> list[Entry]:
    """The settings of a TOML or ini text; keys are dotted with their section."""
    end = len(text) if end is None else end
    section, out, at = "", [], start
    while at < end:
        stop = text.find("\n", at, end)
        stop = end if stop < 0 else stop
        match = _LINE.match(text, at, stop)
        following = stop + 1
        if match and match[1] is not None:
            section = match[1].strip()
        elif match and match[2] is not None:
            entry, close = _pair(text, match, section, end)
            out.append(entry)
            if close > stop:
                line = text.find("\n", close, end)
                following = end if line < 0 else line + 1
        at = following
    return out


def _pair(text: str, match: re.Match[str], section: str, end: int) -> tuple[Entry, int]:
    name = match[2].strip('"')
    key = f"{section}.{name}" if section else name
    at = match.start(3)
    raw = match[3].rstrip()
    if raw[:1] in ("[", "{") and raw:
        try:
            value, close, _ = parse_flow(text, at, min(end, at + 100_000), key)
            return Entry(key=key, value=value, key_span=match.span(2), value_span=(at, close), style="pair"), close
        except FormError:
            pass
    quoted = _QUOTED.match(raw)
    if quoted:
        inner, quote = unquote(quoted[0])
        span = (at, at + quoted.end())
        return Entry(key=key, value=inner, key_span=match.span(2), value_span=span, style="pair", quote=quote), span[1]
    comment = re.search(r"[ \t][#;]|^[#;]", raw)
    raw = raw[: comment.start()].rstrip() if comment else raw
    span = (at, at + len(raw))
    return Entry(key=key, value=as_scalar(raw), key_span=match.span(2), value_span=span, style="pair"), span[1]
