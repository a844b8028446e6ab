"""Sums that a case states as ``arithmetic``: ``"69e9 * 18 / 8 / 2**30 = 144.6"``, computed again without ``eval``."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Final

from oomkb.errors import RecordError

__all__ = ["TOLERANCE", "check_sum", "value_of"]

TOLERANCE: Final = 0.02
"""Relative difference between the stated and the computed value that rounding may leave."""
_MAX_CHARS: Final = 300
_LARGEST_POWER: Final = 100
_BINARY: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def check_sum(text: str) -> str:
    """What is wrong with ``expression = value``; empty where it holds within :data:`TOLERANCE`."""
    left, equals, right = text.partition("=")
    if not equals or "=" in right:
        return "is not of the form `expression = value`"
    try:
        computed, stated = value_of(left), value_of(right)
    except RecordError as error:
        return error.message
    if not math.isclose(computed, stated, rel_tol=TOLERANCE):
        return f"gives {computed:.6g}, not {stated:.6g}"
    return ""


def value_of(expression: str) -> float:
    """A number, or numbers joined by ``+ - * / // **`` and brackets; no names and no calls.

    :raises RecordError: for anything else, and for what has no finite value.
    """
    if len(expression) > _MAX_CHARS:
        raise RecordError(f"is longer than {_MAX_CHARS} characters")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise RecordError(f"{expression.strip()!r} is no arithmetic") from error
    except (OverflowError, ZeroDivisionError) as error:
        raise RecordError(f"{expression.strip()!r} has no finite value") from error
    if not math.isfinite(value):
        raise RecordError(f"{expression.strip()!r} has no finite value")
    return value


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and (abs(right) > _LARGEST_POWER or left < 0):
            raise ValueError("a power that large")
        return _BINARY[type(node.op)](left, right)
    raise ValueError("not a number or an operation on numbers")
