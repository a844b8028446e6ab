"""What Python starts and writes: lists of arguments, and strings that are commands or whole configurations."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from oomdoc.intake.configs.entry import SpanPair
from oomdoc.intake.configs.forms.words import Word
from oomdoc.intake.configs.scripts.program import Module, Program, chain

_FLAGS: Final = 2
"""Options of a list that is a command."""
_MIN_TEXT_CHARS: Final = 30
_ADDS: Final = frozenset({"append", "extend"})
_STARTS: Final = frozenset({"run", "Popen", "call", "check_call", "check_output", "system", "popen", "split"})


def argument_lists(text: str, module: Module) -> list[list[Word]]:
    """The words of each list that holds a command, those that statements beside it add included."""
    found: list[list[ast.expr]] = []
    taken: set[int] = set()
    for body in _bodies(module.tree):
        named: dict[str, list[ast.expr]] = {}
        for statement in body:
            name, added, fresh = _added(statement)
            if fresh and added:
                named[name] = list(added[0].elts) if isinstance(added[0], ast.List) else []
                found.append(named[name])
                taken.add(id(added[0]))
            elif name in named:
                for one in added:
                    named[name].extend(one.elts if isinstance(one, ast.List) else [one])
                    taken.add(id(one))
    found += [list(n.elts) for n in ast.walk(module.tree) if isinstance(n, ast.List) and id(n) not in taken]
    commands = [items for items in found if sum(map(_is_flag, items)) >= _FLAGS]
    program = Program([module]) if commands else None
    return [[_word(text, module, program, item) for item in items] for items in commands if program is not None]


def _bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for part in ("body", "orelse", "finalbody"):
            body = getattr(node, part, None)
            if isinstance(body, list):
                yield body


def _added(statement: ast.stmt) -> tuple[str, list[ast.expr], bool]:
    """The list that a statement makes or adds to, what it adds, and whether the list is new."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.value, ast.List):
        return chain(statement.targets[0]), [statement.value], True
    if isinstance(statement, ast.AugAssign) and isinstance(statement.value, ast.List):
        return chain(statement.target), [statement.value], False
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _ADDS:
        return chain(call.func.value), call.args[:1], False
    return "", [], False


def _is_flag(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value[:2] == "--" != node.value


def _word(text: str, module: Module, program: Program, node: ast.expr) -> Word:
    """An element as a word; what a variable holds is written where that is set."""
    while isinstance(node, ast.Call) and chain(node.func) == "str" and node.args:
        node = node.args[0]
    low, high = module.places.of(node)
    bound = program.bindings.get(chain(node), [])
    held = bound[0] if len(bound) == 1 else None
    stated = held if isinstance(held, ast.Constant) else node
    if isinstance(stated, ast.Constant) and isinstance(stated.value, str | int | float):
        inner = _inside(text, module.places.of(stated)) if isinstance(stated.value, str) else module.places.of(stated)
        if inner is not None:
            start, stop = inner if stated is node else (low, high)
            return Word(str(stated.value), start, stop, value_span=inner, shared=stated is not node)
    return Word(text[low:high], low, high, value_span=(low, high), resolved=False)


def _inside(text: str, span: SpanPair) -> SpanPair | None:
    """Within the quotes of a string; ``None`` for one of several pieces, or with escapes."""
    low, high = span
    low += len(text[low : low + 3]) - len(text[low : low + 3].lstrip("rRfFbBuU"))
    quote = text[low : low + 3] if text[low : low + 3] in ('"""', "'''") else text[low : low + 1]
    inner = text[low + len(quote) : high - len(quote)]
    if quote[:1] not in ("'", '"') or quote in inner or (len(quote) == 1 and "\\" in inner):
        return None
    return low + len(quote), high - len(quote)


def texts(text: str, module: Module) -> Iterator[SpanPair]:
    """The strings that are assigned, or handed to what starts a command."""
    for node in ast.walk(module.tree):
        given: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            given = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _STARTS:
            given = [node.func.value, *node.args[:1]]
        for one in given:
            for part in one.elts if isinstance(one, ast.List) else [one]:
                whole = isinstance(part, ast.JoinedStr) or (
                    isinstance(part, ast.Constant) and isinstance(part.value, str)
                )
                span = _inside(text, module.places.of(part)) if whole else None
                if span is not None and span[1] - span[0] >= _MIN_TEXT_CHARS:
                    yield span
