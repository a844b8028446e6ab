"""What Python reads in a text from outside: its tree within bounds, and the value of a literal. Nothing is executed."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any, Final

from oomdoc.intake.configs.entry import FormError

_MAX_NESTING: Final = 80
_MAX_CHARS: Final = 400_000


class _Unknown:
    pass


UNKNOWN: Final = _Unknown()
"""In place of a value that is no literal."""


def literal_value(node: ast.expr | None, depth: int = 0) -> Any:
    """A literal's value, sums and products of numbers included, or :data:`UNKNOWN`."""
    if node is None or depth > 12:
        return UNKNOWN
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        items = [literal_value(e, depth + 1) for e in node.elts[:200]]
        return UNKNOWN if any(i is UNKNOWN for i in items) else items
    if isinstance(node, ast.Dict):
        keys = [literal_value(k, depth + 1) for k in node.keys[:200]]
        values = [literal_value(v, depth + 1) for v in node.values[:200]]
        if any(not isinstance(k, str | int) for k in keys):
            return UNKNOWN
        return {k: (None if v is UNKNOWN else v) for k, v in zip(keys, values, strict=True)}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = literal_value(node.operand, depth + 1)
        return -inner if isinstance(inner, int | float) else UNKNOWN
    if isinstance(node, ast.BinOp):
        return _sum(node, depth)
    return UNKNOWN


def _sum(node: ast.BinOp, depth: int) -> Any:
    a, b = literal_value(node.left, depth + 1), literal_value(node.right, depth + 1)
    if not (isinstance(a, int | float) and isinstance(b, int | float)) or isinstance(a, bool) or isinstance(b, bool):
        return UNKNOWN
    if isinstance(node.op, ast.Mult):
        return a * b
    if isinstance(node.op, ast.Add):
        return a + b
    if isinstance(node.op, ast.Sub):
        return a - b
    if isinstance(node.op, ast.FloorDiv) and b:
        return a // b
    if isinstance(node.op, ast.Pow) and abs(a) <= 16 and abs(b) <= 40:
        return a**b
    return UNKNOWN


def syntax_tree(text: str) -> ast.Module:
    """What Python reads in a text from outside.

    :raises FormError: when it is not Python, or large or nested beyond reason.
    """
    if len(text) > _MAX_CHARS or _nesting(text) > _MAX_NESTING:
        raise FormError("too large or nested too deeply")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FormError("not Python") from error


def _nesting(text: str) -> int:
    depth = most = 0
    for char in re.findall(r"[()\[\]{}]", text):
        depth += 1 if char in "([{" else -1
        most = max(most, depth)
    return most
