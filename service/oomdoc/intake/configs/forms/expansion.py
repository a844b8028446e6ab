"""What stands behind a ``$``: variables, their defaults and sums, as far as the text itself says."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Final

from oomdoc.intake.configs.forms.syntax import literal_value
from oomdoc.intake.configs.forms.words import Variable, Word
from oomkb.kept import lazy


def sum_of(text: str) -> int | None:
    """The value of ``(2048 + 8192) * 3``; division is whole, as the shell's. ``None`` for anything else."""
    try:
        tree = ast.parse(text.strip().replace("/", "//"), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = literal_value(tree.body)
    return found if type(found) is int else None


DEFAULT: Final = lazy(r":?[-=](.*)\Z", re.S)
"""After a name in braces: the value where the variable is not set; behind ``=`` it is set to it."""

_SUM: Final = lazy(r"[\w\s+*/()${}-]{1,200}")
_TERM: Final = lazy(r"\$?\{?([A-Za-z_]\w{0,80})\}?")
_VARIABLE: Final = lazy(
    r"\$(?:([A-Za-z_]\w{0,80})|\{([A-Za-z_]\w{0,80}|[0-9])((?:[^{}\n]|\{[^{}\n]{0,120}\}){0,200})\})"
)


_ARGUMENT: Final = lazy(r"\$[0-9@*#?]")
"""What the script itself was given."""
_PAREN: Final = lazy(r"[()\[\]]")


def braces(text: str, at: int, end: int) -> int:
    """After the brace that closes the one at ``at``; defaults may hold braces of their own."""
    depth = 0
    for index in range(at, min(end, at + 400)):
        char = text[index]
        if char == "\n":
            break
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return index + 1
    return at + 1


def balanced(text: str, at: int, end: int) -> int:
    """After the parenthesis or bracket that closes the one at ``at``."""
    depth = 0
    for match in _PAREN.finditer(text, at, min(end, at + 2000)):
        depth += (match[0] == text[at]) - (match[0] == ("]" if text[at] == "[" else ")"))
        if depth == 0:
            return match.end()
    return at + 1


_BASE: Final = lazy(r"[A-Za-z_]\w{0,80}|\d{1,2}(?=:?[-=])")


def write_through(word: Word, raw: str, text: str, variables: Mapping[str, Variable]) -> Variable | None:
    """A word that is nothing but a variable is written where that is set, or where its default stands.

    Returned is the variable that ``${NAME:=value}`` sets.
    """
    name = raw.strip("${}")
    base = _BASE.match(name) if raw.startswith("$") else None
    if base is None:
        return None
    rest = name[base.end() :]
    known = variables.get(base[0])
    if known is not None and not rest:
        word.value_span, word.shared, word.quote = known.word.value_span, True, known.word.quote
        return None
    default = DEFAULT.match(rest)
    where = text.find(default[1], word.start) if default is not None and default[1] else -1
    if default is None or where < 0:
        return None
    word.value_span, word.shared = (where, where + len(default[1])), True
    if not default[0].lstrip(":").startswith("=") or "$" in default[1]:
        return None
    value = Word(default[1].strip("\"'"), where, word.value_span[1], value_span=word.value_span)
    return Variable(base[0], value, word.value_span)


def expand(raw: str, variables: Mapping[str, Variable]) -> tuple[str, bool]:
    """A piece with its variables replaced by what is known; whether all were."""
    if "$" not in raw:
        return raw, True
    resolved = True

    def one(match: re.Match[str]) -> str:
        nonlocal resolved
        rest = match[3] or ""
        known = variables.get(match[1] or match[2])
        default = DEFAULT.match(rest)
        if known is not None and known.word.resolved and (default or not rest):
            return known.word.text[:4000]
        if default:
            plain = default[1].strip("\"'")
            inner, whole = expand(plain, variables) if "$" in rest else (plain, True)
            resolved = resolved and whole
            return inner
        resolved = False
        # What is known of it may still end in a telling name: $HOME_DIR/Qwen3-30B-A3B.
        return known.word.text[:300] if known is not None and not rest else match[0]

    return _VARIABLE.sub(one, raw), resolved and "$(" not in raw and _ARGUMENT.search(raw) is None


def arithmetic(raw: str, variables: Mapping[str, Variable]) -> int | None:
    """``1024 * 2`` or ``(max_prompt + max_response) * 2`` with what the variables hold."""
    if len(raw) > 200 or not _SUM.fullmatch(raw):
        return None

    def one(match: re.Match[str]) -> str:
        known = variables.get(match[1])
        text = known.word.text if known is not None and known.word.resolved else ""
        return text if text.isdigit() and len(text) < 13 else "x"

    return sum_of(_TERM.sub(one, raw))
