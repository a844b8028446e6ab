"""The settings that a program keeps in one place: constants of its module, dictionaries written out, fields of classes.

Local variables and arguments are none of them, and neither is what the program sets a second time, in whatever way:
which of the values counts is for it to decide.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from oomdoc.intake.configs.entry import Entry, Style
from oomdoc.intake.configs.forms.syntax import UNKNOWN, literal_value

Emit = Callable[[str, ast.AST, ast.expr, Style], Entry]
"""Makes a setting of its key, the node that names it, its value and its style."""
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_CHANGES: Final = frozenset({"update", "pop", "setdefault", "clear", "popitem"})
_REPLACES: Final = frozenset({"exec", "globals", "vars"})
"""Calls by which a program may give its constants other values that stand elsewhere."""
_MAX_DEPTH: Final = 8


def own_settings(tree: ast.Module, emit: Emit) -> list[Entry]:
    """The settings of a program that stand in one place of it, nested ones as paths from their constant or class."""
    facts = Uses(tree)
    if facts.replaced:
        return []
    found = [pair for node in tree.body for pair in _stated(node, facts, emit)]
    used = any(name in facts.read for name, _ in found)
    # What nothing in a program reads has no effect; a module that reads none of its constants keeps them for others.
    return [entry for name, entry in found if name in facts.read or not used]


def _stated(node: ast.stmt, facts: Uses, emit: Emit) -> Iterator[tuple[str, Entry]]:
    """(constant or class, setting) of a statement of the module."""
    if isinstance(node, ast.ClassDef):
        yield from ((node.name, entry) for entry in _fields(node, facts, emit))
        return
    target = _target(node)
    if target is None or facts.bound[target.id] != 1 or target.id in facts.changed:
        return
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if isinstance(value, ast.Dict):
        yield from ((target.id, entry) for entry in _members(value, target.id, emit))
    elif value is not None:
        yield target.id, emit(target.id, target, value, "assign")


def _target(node: ast.stmt) -> ast.Name | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return node.targets[0] if isinstance(node.targets[0], ast.Name) else None
    return node.target if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else None


def _members(node: ast.Dict, path: str, emit: Emit, depth: int = 0) -> Iterator[Entry]:
    keys = Counter(literal_value(key) for key in node.keys if isinstance(key, ast.Constant))
    for key_node, value in zip(node.keys, node.values, strict=True):
        key = literal_value(key_node)
        if key_node is None or key is UNKNOWN or not isinstance(key, str) or keys[key] != 1 or depth > _MAX_DEPTH:
            continue
        if isinstance(value, ast.Dict):
            yield from _members(value, f"{path}.{key}", emit, depth + 1)
        else:
            yield emit(f"{path}.{key}", key_node, value, "pair")


def _fields(node: ast.ClassDef, facts: Uses, emit: Emit) -> Iterator[Entry]:
    """Defaults of a class that holds settings and nothing else, unless the program says otherwise of one."""
    marked = any("dataclass" in ast.unparse(mark) for mark in node.decorator_list)
    if not marked and (node.bases or node.decorator_list or any(isinstance(n, _SCOPES) for n in node.body)):
        return
    names = Counter(target.id for line in node.body if (target := _target(line)) is not None)
    for line in node.body:
        target = _target(line)
        value = line.value if isinstance(line, ast.Assign | ast.AnnAssign) else None
        if target is None or value is None or names[target.id] != 1:
            continue
        if target.id not in facts.set_later and (node.name, target.id) not in facts.given:
            yield emit(f"{node.name}.{target.id}", target, value, "assign")


class Uses:
    """What a program does with its names."""

    def __init__(self, tree: ast.Module) -> None:
        self.bound: Counter[str] = Counter()
        """How often each name is given a value in the module, or from a function that calls it its own."""
        self.changed: set[str] = set()
        """Names whose members are set."""
        self.read: set[str] = set()
        self.set_later: set[str] = set()
        """Attributes that are set on some object."""
        self.given: set[tuple[str, str]] = set()
        """(call, argument) of arguments that are named."""
        self.replaced = False
        for node in _outside_functions(tree):
            self.bind(node)
        for node in ast.walk(tree):
            self.use(node)

    def bind(self, node: ast.AST) -> None:
        """Count what a node of the module names."""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            self.bound[node.id] += 1
        elif isinstance(node, ast.alias):
            self.bound[(node.asname or node.name).partition(".")[0]] += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.bound[node.name] += 1

    def use(self, node: ast.AST) -> None:
        """Note what a node of the program reads, sets or calls."""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self.read.add(node.id)
        elif isinstance(node, ast.Global):
            self.bound.update(node.names)
        elif isinstance(node, ast.AugAssign):
            self.bound.update(n.id for n in ast.walk(node.target) if isinstance(n, ast.Name))
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            self.changed.add(_root(node))
            if isinstance(node, ast.Attribute):
                self.set_later.add(node.attr)
        elif isinstance(node, ast.Call):
            self.call(node)

    def call(self, node: ast.Call) -> None:
        """Note what a call is given, and what it may change."""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else _root(node.func)
        self.given.update((called, keyword.arg) for keyword in node.keywords if keyword.arg)
        if isinstance(node.func, ast.Attribute) and called in _CHANGES:
            self.changed.add(_root(node.func))
        self.set_later.update(
            str(literal_value(a)) for a in node.args[1:2] if called in ("setattr", "replace") and _is_text(a)
        )
        self.replaced = self.replaced or (isinstance(node.func, ast.Name) and called in _REPLACES)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _root(node: ast.expr) -> str:
    """The name that an attribute or a member is reached from."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, _SCOPES):
            stack.extend(ast.iter_child_nodes(node))
