"""Whole-number arithmetic in text, evaluated without executing anything."""

from __future__ import annotations

import ast

__all__ = ["sum_of"]


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
