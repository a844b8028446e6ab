"""What stands behind a ``$``: variables, their defaults and sums, as far as the text itself says."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Final

from oomdoc.intake.configs.forms.words import Variable


def _value(node: ast.expr, depth: int = 0) -> int | None:
    if depth > 20:
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if not isinstance(node, ast.BinOp):
        return None
    a, b = _value(node.left, depth + 1), _value(node.right, depth + 1)
    if a is None or b is None or abs(a) > 10**12 or abs(b) > 10**12:
        return None
    if isinstance(node.op, ast.Add):
        return a + b
    if isinstance(node.op, ast.Sub):
        return a - b
    if isinstance(node.op, ast.Mult):
        return a * b
    if isinstance(node.op, ast.Div | ast.FloorDiv) and b:
        return a // b
    return None


def sum_of(text: str) -> int | None:
    """The value of ``(2048 + 8192) * 3``; division is whole, as the shell's. ``None`` for anything else."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _value(tree.body)


DEFAULT: Final = re.compile(r":?[-=](.*)\Z", re.S)
"""After a name in braces: the value where the variable is not set; behind ``=`` it is set to it."""

_SUM: Final = re.compile(r"[\w\s+*/()${}-]{1,200}")
_TERM: Final = re.compile(r"\$?\{?([A-Za-z_]\w{0,80})\}?")
_VARIABLE: Final = re.compile(
    r"\$(?:([A-Za-z_]\w{0,80})|\{([A-Za-z_]\w{0,80}|[0-9])((?:[^{}\n]|\{[^{}\n]{0,120}\}){0,200})\})"
)


_ARGUMENT: Final = re.compile(r"\$[0-9@*#?]")
"""What the script itself was given."""
_PAREN: Final = re.compile(r"[()]")


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
    """After the parenthesis that closes the one at ``at``."""
    depth = 0
    for match in _PAREN.finditer(text, at, min(end, at + 2000)):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.end()
    return at + 1


def expand(raw: str, variables: Mapping[str, Variable]) -> tuple[str, bool]:
    """A piece with its variables replaced by what is known; whether all were."""
    if "$" not in raw:
        return raw, True
    resolved = True

    def one(match: re.Match[str]) -> str:
        nonlocal resolved
        known = variables.get(match[1] or match[2])
        default = DEFAULT.match(match[3] or "")
        if known is not None and known.word.resolved and (default or not match[3]):
            return known.word.text[:4000]
        if default:
            plain = default[1].strip("\"'")
            inner, whole = expand(plain, variables) if "$" in match[3] else (plain, True)
            resolved = resolved and whole
            return inner
        resolved = False
        # What is known of it may still end in a telling name: $HOME_DIR/Qwen3-30B-A3B.
        return known.word.text[:300] if known is not None and not match[3] else match[0]

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
