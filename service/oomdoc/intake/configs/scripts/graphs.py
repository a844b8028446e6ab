"""Graphs that a loop keeps: losses and outputs that are collected with their history, evaluation that builds one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from oomdoc.intake.configs.scripts.knowledge import calls
from oomdoc.intake.configs.scripts.program import Program, chain, within
from oomdoc.intake.configs.scripts.roles import Roles

KEEPS: Final = "graph-kept"
EVALUATES: Final = "eval-with-grad"
_MAX_LOOPS: Final = 40


def graph_findings(program: Program, roles: Roles) -> Iterator[tuple[str, int]]:
    """(name, offset) of every place."""
    around = (program.loop(c) for c in program.calls if roles.is_forward(c))
    loops = list(dict.fromkeys(loop for loop in around if loop is not None))[:_MAX_LOOPS]
    trains = any(isinstance(c.func, ast.Attribute) and c.func.attr == "backward" for c in program.calls)
    seen: set[ast.AST] = set()
    for loop in loops:
        own = _Loop(program, roles, loop)
        if not trains or not own.forwards:
            continue
        for node in own.collected():
            if node not in seen:
                seen.add(node)
                yield KEEPS, program.offset(node)
        forward = own.evaluated()
        if forward is not None and forward not in seen:
            seen.add(forward)
            yield EVALUATES, program.offset(forward)


class _Loop:
    def __init__(self, program: Program, roles: Roles, loop: ast.For | ast.While) -> None:
        self.program, self.roles, self.loop = program, roles, loop
        self.nodes = [n for n in within(loop) if not roles.without_grad(n)]
        self.forwards = [n for n in self.nodes if isinstance(n, ast.Call) and roles.is_forward(n)]
        self.graph: set[str] = set()
        self.back = {chain(a) for n in within(program.function(loop)) if _is_backward(n) for a in _receivers(n)}
        for _ in range(2):
            for node in self.nodes:
                if isinstance(node, ast.Assign):
                    self._assigned(node)

    def _assigned(self, node: ast.Assign) -> None:
        for target in node.targets:
            names = [chain(t) for t in (target.elts if isinstance(target, ast.Tuple) else [target])]
            if self.has_graph(node.value):
                self.graph.update(name for name in names if name)

    def has_graph(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a tensor has the graph of a pass of the model."""
        if depth > 12:
            return False
        if chain(node) in self.graph:
            return True
        if isinstance(node, ast.Attribute):
            return node.attr in calls().outputs and self.has_graph(node.value, depth + 1)
        if isinstance(node, ast.Subscript):
            return self.has_graph(node.value, depth + 1)
        if isinstance(node, ast.BinOp):
            return self.has_graph(node.left, depth + 1) or self.has_graph(node.right, depth + 1)
        if isinstance(node, ast.List | ast.Tuple):
            return any(self.has_graph(e, depth + 1) for e in node.elts[:20])
        return isinstance(node, ast.Call) and self._call_has_graph(node, depth)

    def _call_has_graph(self, node: ast.Call, depth: int) -> bool:
        if self.roles.is_forward(node):
            return True
        known = calls()
        method = node.func if isinstance(node.func, ast.Attribute) and node.func.attr in known.keep_graph else None
        if method is not None and self.has_graph(method.value, depth + 1):
            return True
        # A criterion (a module or a function of torch) of a tensor with a graph.
        path = self.program.path(node.func)
        bound = self.program.bindings.get(chain(node.func), [])
        made = [self.program.path(b.func) for b in bound if isinstance(b, ast.Call)]
        criterion = path.startswith("torch.nn.functional.") or any(
            m.startswith("torch.nn.") and "Loss" in m for m in made
        )
        return criterion and any(self.has_graph(a, depth + 1) for a in node.args)

    def collected(self) -> Iterator[ast.AST]:
        """Places where something with a graph is put into what outlives the loop's round."""
        for node in self.nodes:
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("append", "extend")
            ):
                if self._outlives(_base(node.func.value)) and any(self.has_graph(a) for a in node.args):
                    yield node
            elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
                if self._outlives(_base(node.target)) and self.has_graph(node.value):
                    yield node
            elif isinstance(node, ast.Assign) and self._sums(node.targets[0], node.value):
                yield node

    def _sums(self, target: ast.expr, value: ast.expr) -> bool:
        """``running = running + loss``."""
        if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
            return False
        name, sides = chain(target), (value.left, value.right)
        if not name or name not in map(chain, sides):
            return False
        other = sides[0] if chain(sides[1]) == name else sides[1]
        return self._outlives(name, times=1) and self.has_graph(other)

    def _outlives(self, name: str, times: int = 0) -> bool:
        """Whether a name is bound outside the loop, and its sum is not what the backward pass begins at."""
        if not name or name in self.back:
            return False
        bound = sum(1 for n in self.nodes if isinstance(n, ast.Assign | ast.AnnAssign) and name in _targets(n))
        return bound <= times

    def evaluated(self) -> ast.Call | None:
        """A pass of the model in a loop without a backward pass, behind ``.eval()`` and with its graph."""
        if any(_is_backward(n) for n in within(self.loop)):
            return None
        first, function = self.forwards[0], self.program.function(self.loop)
        modes = [
            n
            for n in within(function)
            if isinstance(n, ast.Call)
            and isinstance(n.func, ast.Attribute)
            and n.func.attr in ("eval", "train")
            and chain(n.func.value) in self.roles.models
            and self.program.order(n) < self.program.order(first)
        ]
        last = max(modes, key=self.program.order, default=None)
        switched = isinstance(last, ast.Call) and isinstance(last.func, ast.Attribute) and last.func.attr == "eval"
        return first if switched and not (isinstance(last, ast.Call) and last.args) else None


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"


def _receivers(node: ast.AST) -> Iterator[ast.expr]:
    """What a backward pass begins at: ``loss.backward()``, ``accelerator.backward(loss)``, ``scaler.scale(loss)``."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    yield node.func.value
    yield from node.args
    if isinstance(node.func.value, ast.Call):
        yield from node.func.value.args


def _base(node: ast.expr) -> str:
    """The name that a container is reached by: ``self.history`` of ``self.history["train"]``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return chain(node)


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {chain(t) for t in targets}
