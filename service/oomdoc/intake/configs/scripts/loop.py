"""What a training loop does around the model: who computes the loss, what outlives a step, how often it steps.

What a loop keeps is decided by names: a name that a step binds to the model's outputs holds them until the next step
binds it again, a list that it appends a loss to holds that loss's graph. In a function that is called for each step
names end with the call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import field
from functools import cached_property
from typing import Final

from oomdoc.intake.configs.scripts.found import Found, agreed
from oomdoc.intake.configs.scripts.program import Program, chain, within
from oomdoc.intake.configs.scripts.roles import Roles
from oomkb.dataclass import dataclass

_LOSS: Final = "loss"
_LOGITS: Final = "logits"


@dataclass(slots=True)
class _Step:
    """A region that holds a backward pass: the body of a loop, or of a function that is one step."""

    backward: ast.Call
    root: ast.AST
    loop: ast.For | ast.While | None
    outputs: dict[str, ast.Call] = field(default_factory=dict)
    """Names bound to what a pass returned."""
    logits: dict[str, ast.expr] = field(default_factory=dict)
    """Names bound to logits, or to something made of them."""


class LoopReader:
    """The training steps of a program."""

    def __init__(self, program: Program, roles: Roles) -> None:
        self.program, self.roles = program, roles

    @cached_property
    def steps(self) -> list[_Step]:
        """The regions with a backward pass."""
        out = []
        for call in self.program.calls:
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "backward":
                continue
            if self.program.path(call.func).startswith("torch.autograd"):
                continue
            loop = self.program.loop(call)
            step = _Step(call, loop or self.program.function(call), loop)
            self._names(step)
            out.append(step)
        return out[:20]

    def _names(self, step: _Step) -> None:
        for node in within(step.root):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                continue
            target = node.targets[0]
            name = chain(target)
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Call) and self.roles.is_forward(node.value):
                step.outputs[name] = node.value
            elif isinstance(target, ast.Name) and _made_of_logits(node.value, step):
                step.logits[name] = node.value

    # -- facts ---------------------------------------------------------------------------------------------------------
    def facts(self) -> Iterator[Found]:
        """Facts of the loop."""
        for step in self.steps:
            yield from self._loss(step)
            yield from self._kept(step)
            yield from self._accumulation(step)
        yield from self._zeroed()

    def _forward(self, step: _Step) -> ast.Call | None:
        return next((n for n in within(step.root) if isinstance(n, ast.Call) and self.roles.is_forward(n)), None)

    def _loss(self, step: _Step) -> Iterator[Found]:
        forward = self._forward(step)
        if forward is None:
            return
        entropy = next((n for n in within(step.root) if isinstance(n, ast.Call) and self._is_entropy(n)), None)
        scores = entropy.args[0] if entropy is not None and entropy.args else None
        if entropy is not None and scores is not None and _made_of_logits(scores, step):
            copied = any(_is_copied_slice(part) for part in _unfolded(scores, step))
            at = self.program.offset(entropy)
            yield Found("loop.loss", "script-shifted" if copied else "script", at)
            if self._in_autocast(forward):
                yield Found("loop.loss_autocast", self._in_autocast(entropy), at)
        elif entropy is None and self._reads_loss(step, forward):
            yield Found("loop.loss", "model", self.program.offset(forward))

    def _is_entropy(self, call: ast.Call) -> bool:
        path = self.program.path(call.func)
        if path in ("torch.nn.functional.cross_entropy", "F.cross_entropy"):
            return True
        made = call.func if isinstance(call.func, ast.Call) else None
        bound = self.program.bindings.get(chain(call.func), [])
        made = made or next((b for b in bound if isinstance(b, ast.Call)), None)
        return made is not None and self.program.path(made.func) == "torch.nn.CrossEntropyLoss"

    def _in_autocast(self, node: ast.AST) -> bool:
        withs = (p for p, _ in self.program.above(node) if isinstance(p, ast.With))
        return any(self.roles.is_autocast(item.context_expr) for one in withs for item in one.items)

    def _reads_loss(self, step: _Step, forward: ast.Call) -> bool:
        """Whether the loss is what the model returned: ``.loss``, ``["loss"]``, or the first part of it with labels."""
        labelled = any(k.arg == "labels" for k in forward.keywords)
        for node in within(step.root):
            if isinstance(node, ast.Attribute | ast.Subscript) and self._is_outputs(node.value, step):
                if isinstance(node, ast.Attribute) and node.attr == "loss":
                    return True
                at = node.slice if isinstance(node, ast.Subscript) else None
                if isinstance(at, ast.Constant) and (at.value == "loss" or (labelled and at.value == 0)):
                    return True
        return False

    def _is_outputs(self, node: ast.expr, step: _Step) -> bool:
        return self.roles.is_forward(node) or (isinstance(node, ast.Name) and node.id in step.outputs)

    def _kept(self, step: _Step) -> Iterator[Found]:
        if step.loop is None or self.roles.without_grad(step.backward):
            return
        read = any(self._reads(n, step) for n in within(step.root))
        if not read:
            return
        alive = {**step.outputs, **{n: v for n, v in step.logits.items() if _holds_whole(v)}}
        alive = {name: value for name, value in alive.items() if not self._ends(name, step)}
        if not alive:
            return
        first = min(alive.values(), key=self.program.order)
        yield Found("loop.outputs_kept", True, self.program.offset(first))
        if any(name in step.outputs for name in alive):
            yield from self._cache(first)

    def _reads(self, node: ast.AST, step: _Step) -> bool:
        """Whether a node takes the loss or the logits out of what the model returned."""
        if isinstance(node, ast.Attribute):
            return node.attr in (_LOSS, _LOGITS) and self._is_outputs(node.value, step)
        return (
            isinstance(node, ast.Subscript)
            and _is_text(node.slice, _LOSS, _LOGITS)
            and self._is_outputs(node.value, step)
        )

    def _ends(self, name: str, step: _Step) -> bool:
        """Whether a name is deleted, or bound to something else, before the next step."""
        for node in within(step.root):
            if isinstance(node, ast.Delete) and any(chain(t) == name for t in node.targets):
                return True
            bound = isinstance(node, ast.Assign) and any(chain(t) == name for t in node.targets)
            if bound and name in step.outputs and not self.roles.is_forward(node.value):  # type: ignore[attr-defined]
                return True
        return False

    def _cache(self, at: ast.AST) -> Iterator[Found]:
        """Outputs hold keys and values unless ``use_cache`` is off, in the model's config or at its loading."""
        for node in self.program.nodes:
            target = chain(node.targets[0]) if isinstance(node, ast.Assign) else ""
            if target.endswith(".use_cache") and isinstance(node, ast.Assign):
                given: ast.expr | None = node.value
            elif isinstance(node, ast.Call):
                given = self.program.keyword(node, "use_cache")
            else:
                continue
            if given is not None and (on := self.roles.flag(given)) is not None:
                yield Found("loop.use_cache", on, self.program.offset(node))
                return

    def _zeroed(self) -> Iterator[Found]:
        """``set_to_none=False`` at every call that zeroes gradients."""
        zeroing = [c for c in self.program.calls if isinstance(c.func, ast.Attribute) and c.func.attr == "zero_grad"]
        if not zeroing or not self.steps:
            return
        given = [self.program.keyword(c, "set_to_none") or (c.args[0] if c.args else None) for c in zeroing]
        if all(one is not None and self.roles.flag(one) is False for one in given):
            yield Found("loop.zero_grad_in_place", True, self.program.offset(zeroing[0]))

    def _accumulation(self, step: _Step) -> Iterator[Found]:
        if step.loop is None:
            return
        for node in within(step.root):
            if isinstance(node, ast.If) and (every := self._every(node.test)) is not None and self._optimizes(node):
                yield Found("grad_accum", every, self.program.offset(node))
                return
        outer = self.program.loop(step.loop)
        rounds = step.loop.iter if isinstance(step.loop, ast.For) else None
        counted = isinstance(rounds, ast.Call) and self.program.path(rounds.func) == "range" and len(rounds.args) == 1
        if outer is not None and counted and isinstance(rounds, ast.Call) and self._optimizes_beside(outer, step.loop):
            number = self.program.value(rounds.args[0])
            if type(number) is int and 1 < number < 1 << 16:
                yield Found("grad_accum", number, self.program.offset(step.loop))

    def _every(self, test: ast.expr) -> int | None:
        """``(step + 1) % 8 == 0``: eight."""
        for node in ast.walk(test):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                number = self.program.value(node.right)
                if type(number) is int and 1 < number < 1 << 16:
                    return number
        return None

    def _optimizes(self, root: ast.AST) -> bool:
        return any(self._is_optimizer_step(n) for n in within(root))

    def _optimizes_beside(self, outer: ast.AST, inner: ast.AST) -> bool:
        steps = [n for n in within(outer) if self._is_optimizer_step(n)]
        return bool(steps) and not any(p is inner for n in steps for p, _ in self.program.above(n))

    def _is_optimizer_step(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "step":
            return False
        return any(chain(n) in self.roles.optimizers for n in (node.func.value, *node.args))


def _is_text(node: ast.expr, *texts: str) -> bool:
    return isinstance(node, ast.Constant) and node.value in texts


def _made_of_logits(node: ast.expr, step: _Step) -> bool:
    """Whether an expression reads ``.logits``, or a name that was made of them."""
    return any(
        (isinstance(n, ast.Attribute) and n.attr == _LOGITS)
        or (isinstance(n, ast.Subscript) and _is_text(n.slice, _LOGITS))
        or (isinstance(n, ast.Name) and n.id in step.logits)
        for n in ast.walk(node)
    )


def _holds_whole(node: ast.expr) -> bool:
    """Whether an expression is the logits themselves, not something computed of them."""
    return (isinstance(node, ast.Attribute) and node.attr == _LOGITS) or (
        isinstance(node, ast.Subscript) and _is_text(node.slice, _LOGITS)
    )


def _unfolded(node: ast.expr, step: _Step, depth: int = 0) -> Iterator[ast.AST]:
    """The parts of an expression and of the names it was made of."""
    for part in ast.walk(node):
        yield part
        made = step.logits.get(part.id) if isinstance(part, ast.Name) and depth < 4 else None
        if made is not None and not any(chain(n) == chain(part) for n in ast.walk(made)):
            yield from _unfolded(made, step, depth + 1)


def _is_copied_slice(node: ast.AST) -> bool:
    """``x[..., :-1, :].contiguous()``, or ``.reshape``, which copies such a slice as well."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in ("contiguous", "reshape", "flatten") and any(map(_leaves_last, ast.walk(node.func.value)))


def _leaves_last(node: ast.AST) -> bool:
    if not isinstance(node, ast.Subscript):
        return False
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(
        isinstance(p, ast.Slice) and isinstance(p.upper, ast.UnaryOp) and isinstance(p.upper.op, ast.USub)
        for p in parts
    )


def loop_facts(program: Program, roles: Roles) -> Iterator[Found]:
    """Facts of the program's training loops; where two loops differ, none of that name."""
    return agreed(LoopReader(program, roles).facts())
