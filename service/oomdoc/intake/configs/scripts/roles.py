"""Which names of a script are the trained model, its optimizers, and contexts that compute in another dtype."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from oomdoc.intake.configs.scripts.knowledge import calls
from oomdoc.intake.configs.scripts.program import UNKNOWN, Program, chain, within

_MODEL_CLASS: Final = re.compile(
    r"\w{0,60}(?:Model|ForCausalLM|LMHeadModel|LMModel|For[A-Z]\w{2,40})(?:WithValueHead)?\Z"
)
_NO_MODEL: Final = re.compile(r"Tokenizer|Processor|Config|Peft|FeatureExtractor")
_MAX_CONTEXTS: Final = 200
_ROUNDS: Final = 4
"""How often a model's name may be handed on (wrapped, prepared, passed to a function)."""


def loads(program: Program, call: ast.Call) -> bool:
    """Whether a call makes a model of transformers: ``X.from_pretrained(...)``, ``X.from_config(...)``."""
    owner, _, method = chain(call.func).rpartition(".")
    name = owner.rpartition(".")[2]
    return (
        method in ("from_pretrained", "from_config") and bool(_MODEL_CLASS.match(name)) and not _NO_MODEL.search(name)
    )


class Roles:
    """Names of one program by what they are."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.optimizer_calls = [c for c in program.calls if self._optimizer(c) is not None and program.happens(c)]
        self.optimizers = {name for call in self.optimizer_calls for name in self._bound_to(call)}
        self.models = self._models()

    def _optimizer(self, call: ast.Call) -> tuple[str, str] | None:
        path = self.program.path(call.func)
        known = calls()
        bare = known.bare.get(path) if not self.program.imported(chain(call.func)) else None
        return known.optimizers.get(path) or bare

    def optimizer(self, call: ast.Call) -> tuple[str, str]:
        """The job's words for the class that is called."""
        return self._optimizer(call) or ("", "")

    def _bound_to(self, call: ast.Call) -> Iterator[str]:
        """Names that an expression with this call in it is assigned to."""
        for parent, _ in self.program.above(call):
            if isinstance(parent, ast.Assign):
                first = parent.targets[0]
                name = chain(first.elts[0] if isinstance(first, ast.Tuple) and first.elts else first)
                if name:
                    yield name
                return
            if isinstance(parent, ast.stmt):
                return

    def _models(self) -> set[str]:
        """The trained model: what parameters are taken of for an optimizer, and what that was made from or becomes."""
        program = self.program
        taken = [c for c in program.calls if isinstance(c.func, ast.Attribute) and c.func.attr.endswith("parameters")]
        for_optimizer = [
            c for c in taken if any(parent in self.optimizer_calls for parent, _ in program.above(c))
        ] or taken
        found = {name for c in for_optimizer if (name := chain(c.func.value))}  # type: ignore[attr-defined]
        if not found:
            loaded = [name for c in program.calls if loads(program, c) for name in self._bound_to(c)]
            found = set(loaded) if len(set(loaded)) == 1 else set()
        for _ in range(_ROUNDS):
            further = set(self._handed_on(found))
            if further <= found:
                break
            found |= further
        return found

    def _handed_on(self, known: set[str]) -> Iterator[str]:
        for call in self.program.calls:
            arguments = [chain(a) for a in (*call.args, *(k.value for k in call.keywords))]
            if not known.intersection(arguments):
                continue
            if self._wraps(call, known):
                yield from self._bound_to(call)
            for function in self.program.functions.get(chain(call.func).rpartition(".")[2], ())[:2]:
                named = [a.arg for a in function.args.args]
                if named[:1] == ["self"]:
                    named = named[1:]
                yield from (p for p, a in zip(named, map(chain, call.args), strict=False) if a in known)
                yield from (k.arg for k in call.keywords if k.arg and chain(k.value) in known)

    def _wraps(self, call: ast.Call, known: set[str]) -> bool:
        """Whether a call gives the model back: a wrapper, PEFT's, DeepSpeed's or accelerate's own."""
        path = self.program.path(call.func)
        last = path.rpartition(".")[2]
        wraps = (
            path in calls().wrappers or path in calls().prepares or path in ("torch.compile", "deepspeed.initialize")
        )
        return (
            wraps
            or last == "get_peft_model"
            or (last == "prepare" and chain(call.args[0] if call.args else None) in known)
        )

    # -- what an expression is -----------------------------------------------------------------------------------------
    def is_forward(self, node: ast.AST) -> bool:
        """Whether a call is a pass of the trained model."""
        return isinstance(node, ast.Call) and chain(node.func) in self.models

    def is_autocast(self, node: ast.expr) -> bool:
        """Whether a ``with`` enters autocast, outright or by a name bound to it."""
        return self.autocast_call(node) is not None

    def autocast_call(self, node: ast.expr) -> ast.Call | None:
        """The call of autocast that an expression is."""
        for one in self._meant(node):
            if isinstance(one, ast.Call) and self.program.path(one.func) in calls().autocast:
                enabled = self.program.keyword(one, "enabled")
                return one if enabled is None or self.program.value(enabled) is True else None
        return None

    def _meant(self, node: ast.expr) -> list[ast.expr]:
        bound = self.program.bindings.get(chain(node), [])
        return [node, *(b for b in bound if b is not None)] if len(bound) <= 2 else [node]

    def without_grad(self, node: ast.AST) -> bool:
        """Whether no graph is built at a node: by a ``with``, a decorator, or gradients switched off as a whole."""
        return any(self._ungraded(parent) for parent, _ in self.program.above(node))

    def _ungraded(self, parent: ast.AST) -> bool:
        if isinstance(parent, ast.With):
            return any(self._no_grad(item.context_expr) for item in parent.items)
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return parent.name in self._enclosed or any(map(self._no_grad, parent.decorator_list))
        return False

    @cached_property
    def _enclosed(self) -> frozenset[str]:
        """Functions that are called where no graph is built."""
        opened = [n for n in self.program.nodes if isinstance(n, ast.With) and self._ungraded(n)][:_MAX_CONTEXTS]
        inside = (inner for node in opened for inner in within(node) if isinstance(inner, ast.Call))
        return frozenset(chain(call.func).rpartition(".")[2] for call in inside)

    def _no_grad(self, node: ast.expr) -> bool:
        function = node.func if isinstance(node, ast.Call) else node
        if self.program.path(function) == "torch.set_grad_enabled":
            return isinstance(node, ast.Call) and bool(node.args) and self.program.value(node.args[0]) is not True
        return self.program.path(function) in calls().no_grad

    def dtype(self, node: ast.expr | None) -> str | None:
        """The job's word for a dtype that an expression names."""
        if node is None:
            return None
        known = calls().dtypes
        for one in self._meant(node):
            value = self.program.value(one)
            found = known.get(value) if isinstance(value, str) else known.get(self.program.path(one))
            if found is not None:
                return found
        return None

    def flag(self, node: ast.expr | None) -> bool | None:
        """A switch, where the text decides it."""
        value = self.program.value(node)
        return value if value is not UNKNOWN and isinstance(value, bool) else None
