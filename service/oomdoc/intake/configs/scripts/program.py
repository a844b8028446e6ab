"""A Python program as far as it can be known without running it: full names, constants, what is switched off."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from oomkb.dataclass import dataclass

UNKNOWN: Final = object()
"""The value of an expression that the text does not decide."""
_MAX_NODES: Final = 60_000
_DEPTH: Final = 24
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class Module:
    """One piece of Python: its tree, and where it lies in the whole text."""

    tree: ast.Module
    places: Any
    """``at(line, column)`` gives the offset in the whole text."""


def chain(node: ast.AST | None) -> str:
    """``self.model`` for a name with attributes; empty for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def within(root: ast.AST) -> Iterator[ast.AST]:
    """All nodes below ``root`` in the order of the text, without the bodies of functions that are defined there."""
    stack = list(reversed(list(ast.iter_child_nodes(root))))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (*_DEFINITIONS, ast.ClassDef)):
            stack.extend(reversed(list(ast.iter_child_nodes(node))))


def option(call: ast.Call) -> tuple[str, ast.expr | None] | None:
    """``batch_size`` and its default, of ``parser.add_argument("--batch-size", default=4)``."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "add_argument":
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    long = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
    name = str(getattr(given.get("dest"), "value", "") or long.lstrip("-").replace("-", "_"))
    switch = getattr(given.get("action"), "value", "") == "store_true"
    return name, given.get("default") or (ast.copy_location(ast.Constant(value=False), call) if switch else None)


class Program:
    """Pieces of one program (a file, the cells of a notebook), in order."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = []
        self.calls: list[ast.Call] = []
        self.bindings: dict[str, list[ast.expr | None]] = defaultdict(list)
        """Every expression that a name or ``self.name`` is bound to; ``None``: something else binds it."""
        self.functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = defaultdict(list)
        self._imports: dict[str, str] = {}
        self._fields: dict[str, list[ast.expr | None]] = defaultdict(list)
        self._options: dict[str, ast.expr | None] = {}
        self._module: dict[ast.AST, Module] = {}
        self._order: dict[ast.AST, int] = {}
        self.modules = [module.tree for module in modules]
        for module in modules:
            self._take(module)
        for node in self.nodes:
            self._bind(node)
        called = {chain(call.func).rpartition(".")[2] for call in self.calls if call.args or call.keywords}
        for found in self.functions.values():
            for function in found:
                self._parameters(function, called=function.name in called)

    def _take(self, module: Module) -> None:
        self._module[module.tree] = module
        stack: list[ast.AST] = [module.tree]
        while stack and len(self.nodes) < _MAX_NODES:
            node = stack.pop()
            self._order[node] = len(self.nodes)
            self.nodes.append(node)
            children = list(ast.iter_child_nodes(node))
            for child in children:
                if not isinstance(child, ast.expr_context | ast.operator):  # these are shared between parents
                    self.parents[child] = node
            stack.extend(reversed(children))

    # -- names -------------------------------------------------------------------------------------------------------
    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for one in node.names:
                self._imports[one.asname or one.name.split(".")[0]] = one.name if one.asname else one.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            for one in node.names:
                self._imports[one.asname or one.name] = f"{node.module or ''}.{one.name}"
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._target(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            self._target(node.target, None if isinstance(node, ast.AugAssign) else node.value)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self._target(node.target, None)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._target(node.optional_vars, None)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.functions[node.name].append(node)
        elif isinstance(node, ast.Call):
            self.calls.append(node)
            self._option(node)

    def _parameters(self, function: ast.FunctionDef | ast.AsyncFunctionDef, *, called: bool) -> None:
        """A parameter is its default where the program itself hands nothing in."""
        given = [*function.args.posonlyargs, *function.args.args]
        defaults: list[ast.expr | None] = [
            *[None] * (len(given) - len(function.args.defaults)),
            *function.args.defaults,
        ]
        pairs = [
            *zip(given, defaults, strict=True),
            *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
        ]
        for argument, default in pairs:
            self.bindings[argument.arg].append(None if called else default)

    def _target(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            for i, one in enumerate(target.elts):
                self._target(one, value.elts[i] if same and isinstance(value, ast.Tuple | ast.List) else None)
            return
        name = chain(target)
        if name:
            self.bindings[name].append(value)
            in_class = isinstance(self.parents.get(self.parents.get(target, target)), ast.ClassDef)
            if in_class or name.startswith("self."):
                self._fields[name.rpartition(".")[2]].append(value)

    def _option(self, call: ast.Call) -> None:
        found = option(call)
        if found is not None:
            self._options[found[0]] = None if found[0] in self._options else found[1]

    def path(self, node: ast.AST | None) -> str:
        """The full name of what an expression names, imports resolved: ``torch.optim.AdamW``."""
        first, _, rest = chain(node).partition(".")
        full = self._imports.get(first, first)
        return f"{full}.{rest}" if rest else full

    def imported(self, name: str) -> bool:
        """Whether the first part of a name is imported."""
        return name.partition(".")[0] in self._imports

    # -- values ------------------------------------------------------------------------------------------------------
    @staticmethod
    def keyword(call: ast.Call, *names: str) -> ast.expr | None:
        """The argument with one of these names."""
        return next((k.value for k in call.keywords if k.arg in names), None)

    def value(self, node: ast.expr | None, depth: int = 0) -> Any:
        """What an expression is, or ``UNKNOWN``: a literal, a name or field that is bound once to one."""
        if node is None or depth > _DEPTH:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._once(self.bindings.get(node.id), depth)
        if isinstance(node, ast.Attribute):
            return self._field(node, depth)
        if isinstance(node, ast.Subscript):
            return self._item(node, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.FloorDiv):
            a, b = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
            if type(a) is int and type(b) is int and 0 < b < 1 << 40 and 0 <= a < 1 << 40:
                return a * b if isinstance(node.op, ast.Mult) else a // b
        return UNKNOWN

    def _once(self, bound: list[ast.expr | None] | None, depth: int) -> Any:
        if not bound or len(bound) > 4:
            return UNKNOWN
        found = [self.value(one, depth + 1) for one in bound]
        return found[0] if all(one is not UNKNOWN and one == found[0] for one in found) else UNKNOWN

    def _field(self, node: ast.Attribute, depth: int) -> Any:
        if self.imported(chain(node)):
            return UNKNOWN
        if node.attr in self._fields:
            return self._once(self._fields[node.attr], depth)
        return self.value(self._options.get(node.attr), depth + 1)

    def _item(self, node: ast.Subscript, depth: int) -> Any:
        """An entry of a dictionary that is written out."""
        bound = self.bindings.get(chain(node.value), [])
        if len(bound) != 1 or not isinstance(bound[0], ast.Dict) or not isinstance(node.slice, ast.Constant):
            return UNKNOWN
        for key, item in zip(bound[0].keys, bound[0].values, strict=True):
            if isinstance(key, ast.Constant) and key.value == node.slice.value:
                return self.value(item, depth + 1)
        return UNKNOWN

    def is_option(self, node: ast.expr | None) -> bool:
        """Whether a value is the default of an option of the command line."""
        return isinstance(node, ast.Attribute) and node.attr in self._options and node.attr not in self._fields

    # -- places ------------------------------------------------------------------------------------------------------
    def above(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """(ancestor, its child on the way), from the nearest to the module."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent, node
            node, parent = parent, self.parents.get(parent)

    def offset(self, node: ast.AST) -> int:
        """Where a node stands in the whole text."""
        module = next((a for a, _ in self.above(node) if isinstance(a, ast.Module)), None)
        at: int = self._module[module].places.at(node.lineno, node.col_offset) if module is not None else 0  # type: ignore[attr-defined]
        return at

    def order(self, node: ast.AST) -> int:
        """A number that grows along the text."""
        return self._order.get(node, 0)

    def function(self, node: ast.AST) -> ast.AST:
        """The function that a node is in, or the module."""
        return next((a for a, _ in self.above(node) if isinstance(a, (*_DEFINITIONS, ast.Module))), node)

    def loop(self, node: ast.AST) -> ast.For | ast.While | None:
        """The innermost loop of the same function that a node is in the body of."""
        for parent, child in self.above(node):
            if isinstance(parent, _DEFINITIONS):
                return None
            if isinstance(parent, ast.For | ast.While) and child in parent.body:
                return parent
        return None

    def happens(self, node: ast.AST) -> bool:
        """Whether nothing that the text leaves open decides if a node is reached; loops and functions are entered."""
        return all(self._taken(p, c) for p, c in self.above(node) if isinstance(p, ast.If | ast.IfExp))

    def _taken(self, parent: ast.If | ast.IfExp, child: ast.AST) -> bool:
        if child is parent.test:
            return True
        first = child is parent.body if isinstance(parent, ast.IfExp) else child in parent.body
        truth = self._truth(parent.test)
        return truth is not UNKNOWN and bool(truth) is first

    def _truth(self, test: ast.expr) -> Any:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._truth(test.operand)
            return UNKNOWN if inner is UNKNOWN else not inner
        if isinstance(test, ast.Compare) and chain(test.left) == "__name__":
            return True
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) and chain(test.left).startswith("self."):
            beside = test.comparators[0]
            if isinstance(beside, ast.Constant) and beside.value is None:
                return True  # what is made when it is first wanted
        if isinstance(test, ast.Call) and self.path(test.func) == "torch.cuda.is_available":
            return True
        return self.value(test)
