"""What kind of line a line is: prose, log, command, config or code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from oomdoc.evidence import Source
from oomdoc.intake.configs.segments import form_of
from oomdoc.intake.lines import Line
from oomdoc.intake.patterns import patterns

Kind = Literal["prose", "log", "command", "config", "code", "blank"]

_RE: Final = patterns(__file__)
_SEEN: Final = 800
"""Characters of a line that tell its kind."""


_COMMENT: Final = ("#", "//", ";")
_CONFIGS: Final = frozenset({"yaml", "json", "toml", "shell", "python"})


def is_config_file(source: Source) -> bool:
    """Whether a source is a configuration, a launch script or code by its name, with no program's output in it.

    What it says in comments, keys and labels is no evidence of what happened.
    """
    return form_of(source.name) in _CONFIGS and _RE["output"].search(source.text) is None


def is_comment(line: Line) -> bool:
    """Whether a line of a configuration is a comment."""
    return line.text.lstrip().startswith(_COMMENT)


def kinds_of(lines: Sequence[Line]) -> list[Kind]:
    """One kind per line; continuation lines of a command belong to it."""
    out: list[Kind] = []
    continued = False
    for line in lines:
        kind = "command" if continued and line.text.strip() else _kind(line)
        continued = line.text.rstrip().endswith("\\") and kind in ("command", "prose", "config")
        if continued and kind != "command" and _RE["flag"].search(line.text):
            kind = "command"
        out.append(kind)
    return out


def _told_of(text: str) -> bool:
    """A sentence that begins with a program's name: "megatron 开了 recompute 反向反而 OOM"."""
    return _RE["chinese"].search(text) is not None and _RE["flag"].search(text) is None and "#" not in text


def _kind(line: Line) -> Kind:
    text = line.text[:_SEEN]
    if not text.strip() or _RE["template"].fullmatch(text) is not None:
        return "blank"
    if line.logged or _RE["log"].match(text):
        return "log"
    if (_RE["command"].match(text) and not _told_of(text)) or (
        text.count("-") >= 3 and len(_RE["flag"].findall(text[:600])) >= 3
    ):
        return "command"
    if (":" in text or "=" in text) and _RE["config"].match(text) and not _RE["chinese_sentence"].search(text):
        return "config"
    if _RE["code"].match(text):
        return "code"
    if _RE["log_anywhere"].search(text) or len(line.text) > 3000:
        return "log" if not (_RE["sentence"].search(text) and len(text) < 300 and _RE["said"].match(text)) else "prose"
    return "prose"
