"""Commands that a program puts together as a list: ``cmd = ["vllm", "serve", MODEL, "--max-model-len", str(LENGTH)]``.

Constants of the module count as what they hold, and a flag that hangs on one as a switch. What hangs on anything else
is not known, and neither is the rest of what the same flag says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from oomdoc.intake.configs.entry import Entry, Fragment
from oomdoc.intake.configs.forms.flags import PROGRAMS, entries_of_words
from oomdoc.intake.configs.forms.own import Uses
from oomdoc.intake.configs.forms.places import Places
from oomdoc.intake.configs.forms.syntax import syntax_tree
from oomdoc.intake.configs.forms.words import Word
from oomdoc.intake.configs.table import norm

_RUNS: Final = frozenset({"Popen", "run", "call", "check_call", "check_output"})
_MAX_WORDS: Final = 300
_NO: Final = "--no-"
_STARTED: Final = "__name__ == '__main__'"


def command_lists(text: str, start: int, end: int) -> list[Fragment]:
    """The commands of a program that are lists of words.

    :raises FormError: when it is not Python.
    """
    piece = text[start:end]
    if not any(opening in piece for opening in ('"--', "'--", 'f"--')):
        return []
    reader = _Reader(syntax_tree(piece), text, start, end)
    return [f for command in reader.commands if (f := reader.fragment(command)) is not None]


class _Command:
    """A list of words in the making."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.switches: list[Entry] = []
        self.open: set[str] = set()
        """Flags that something unknown may add."""


class _Reader:
    def __init__(self, tree: ast.Module, text: str, start: int, end: int) -> None:
        self.text = text
        self.places = Places(text[start:end], start)
        self.commands: list[_Command] = []
        uses = Uses(tree)
        self.constants: dict[str, ast.Constant] = {}
        for node in tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
            if isinstance(node, ast.AnnAssign):
                target = node.target
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            single = isinstance(target, ast.Name) and uses.bound[target.id] == 1 and not uses.replaced
            if single and isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                self.constants[target.id] = value
        for scope in ast.walk(tree):
            self.scope(scope)

    def scope(self, node: ast.AST) -> None:
        """The commands of a function or the module, or of a call."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            known = self.constants
            self.constants = {k: v for k, v in known.items() if k not in _local(node)}
            self.block(node.body, {}, certain=True)
            self.constants = known
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _RUNS:
            for given in node.args[:1]:
                if isinstance(given, ast.List):
                    self.added(self.new(), given, certain=True)

    def new(self) -> _Command:
        self.commands.append(_Command())
        return self.commands[-1]

    # -- statements ----------------------------------------------------------------------------------------------
    def block(self, body: Sequence[ast.stmt], named: dict[str, _Command], *, certain: bool) -> None:
        """The statements of a block; ``named`` are the lists under way."""
        for node in body:
            if isinstance(node, ast.If):
                self.branch(node, named, certain=certain)
            elif isinstance(node, ast.With | ast.Try):
                self.block(node.body, named, certain=certain)
            elif isinstance(node, ast.For | ast.While):
                self.block(node.body, named, certain=False)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.assigned(node.targets[0].id, node.value, named, certain=certain)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in named:
                self.added(named[node.target.id], node.value, certain=certain)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                self.method(node.value, named, certain=certain)

    def assigned(self, name: str, value: ast.expr, named: dict[str, _Command], *, certain: bool) -> None:
        if isinstance(value, ast.List):
            named[name] = self.new()
            self.added(named[name], value, certain=certain)
        elif name in named and isinstance(value, ast.BinOp) and isinstance(value.left, ast.Name):
            self.added(named[name], value.right, certain=certain and value.left.id == name)
        else:
            named.pop(name, None)

    def method(self, call: ast.Call, named: dict[str, _Command], *, certain: bool) -> None:
        func = call.func
        if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name) or len(call.args) != 1:
            return
        command = named.get(func.value.id)
        if command is not None and func.attr in ("append", "extend"):
            given = ast.List(elts=[call.args[0]]) if func.attr == "append" else call.args[0]
            self.added(command, given, certain=certain)

    def branch(self, node: ast.If, named: dict[str, _Command], *, certain: bool) -> None:
        if _STARTED in ast.unparse(node.test):
            self.block(node.body, named, certain=certain)
            return
        flag = self.constant(node.test)
        value = flag.value if flag is not None and isinstance(flag.value, bool) else None
        word = self.only_switch(node, named) if value is not None and not node.orelse and certain else None
        if flag is not None and word is not None:
            self.switch(*word, flag, bool(value))
            return
        negated = self.constant(node.test.operand) if isinstance(node.test, ast.UnaryOp) else None
        if negated is not None and isinstance(negated.value, bool) and isinstance(node.test.op, ast.Not):  # type: ignore[attr-defined]
            value = not negated.value
        for body, holds in ((node.body, value), (node.orelse, None if value is None else not value)):
            if holds is not False:
                self.block(body, named, certain=certain and bool(holds))

    def only_switch(self, node: ast.If, named: dict[str, _Command]) -> tuple[_Command, ast.Constant] | None:
        """The one flag without a value that a branch adds."""
        line = node.body[0] if len(node.body) == 1 else None
        name, given = "", None
        if isinstance(line, ast.AugAssign) and isinstance(line.target, ast.Name) and isinstance(line.value, ast.List):
            name, given = line.target.id, line.value.elts[0] if len(line.value.elts) == 1 else None
        elif isinstance(line, ast.Expr) and isinstance(line.value, ast.Call) and line.value.args:
            func, given = line.value.func, line.value.args[0]
            if isinstance(func, ast.Attribute) and func.attr == "append" and isinstance(func.value, ast.Name):
                name = func.value.id
        return (named[name], given) if name in named and _is_flag(given) and isinstance(given, ast.Constant) else None

    # -- words ---------------------------------------------------------------------------------------------------
    def added(self, command: _Command, value: ast.expr, *, certain: bool) -> None:
        if not isinstance(value, ast.List):
            command.open.add("*")
            return
        if not certain:
            command.open |= {_name(e.value) for e in value.elts if isinstance(e, ast.Constant) and _is_flag(e)}
            return
        for element in value.elts[:_MAX_WORDS]:
            if isinstance(element, ast.IfExp):
                self.either(command, element)
            elif isinstance(element, ast.JoinedStr):
                command.words += self.joined(element)
            elif isinstance(element, ast.Starred):
                command.open.add("*")
            else:
                command.words.append(self.word(element))

    def either(self, command: _Command, node: ast.IfExp) -> None:
        flag = self.constant(node.test)
        if flag is None or not isinstance(flag.value, bool):
            command.open |= {_name(n.value) for n in (node.body, node.orelse) if isinstance(n, ast.Constant)}
            return
        yes, no = node.body, node.orelse
        opposite = no.value if isinstance(no, ast.Constant) else None
        if _is_flag(yes) and isinstance(yes, ast.Constant) and opposite == _NO + str(yes.value)[2:]:
            self.switch(command, yes, flag, flag.value)
            return
        command.words.append(self.word(yes if flag.value else no))

    def switch(self, command: _Command, word: ast.Constant, flag: ast.Constant, value: bool) -> None:
        """A flag without a value that a constant turns on."""
        low, _ = self.places.of(word)
        name = str(word.value)[2:]
        entry = Entry(
            key=name,
            value=value,
            key_span=(low + 3, low + 3 + len(name)),
            value_span=self.places.of(flag),
            style="flag",
            shared=True,
        )
        command.switches.append(entry)

    def constant(self, node: ast.expr) -> ast.Constant | None:
        return self.constants.get(node.id) if isinstance(node, ast.Name) else None

    def joined(self, node: ast.JoinedStr) -> Iterator[Word]:
        """``f"{N}"``, ``f"--size={N}"``: the flag and its value, each where it is written."""
        parts = node.values
        held = parts[-1] if parts and isinstance(parts[-1], ast.FormattedValue) else None
        before = parts[0] if len(parts) == 2 and isinstance(parts[0], ast.Constant) else None
        flag = str(before.value) if before is not None else ""
        low, high = self.places.of(node)
        plain = len(parts) == 1 or (flag.startswith("--") and flag.endswith("="))
        if held is None or held.format_spec is not None or not plain:
            yield Word(self.text[low:high], low, high, value_span=(low, high), resolved=False)
            return
        if flag:
            at = self.text.find(flag, low, high)
            yield Word(flag[:-1], at, at + len(flag) - 1, quote='"', value_span=(at, at + len(flag) - 1))
        yield self.word(held.value)

    def word(self, node: ast.expr) -> Word:
        low, high = self.places.of(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
            node = node.args[0]
        found = self.constant(node)
        held = found if found is not None else node
        if isinstance(held, ast.Attribute) and ast.unparse(held) == "sys.executable":
            return Word("python", low, high, value_span=(low, high))
        if not isinstance(held, ast.Constant) or not isinstance(held.value, str | int | float) or held.value is True:
            return Word(self.text[low:high], low, high, value_span=(low, high), resolved=False)
        place = self.places.of(held)
        quote = self.text[place[0]] if isinstance(held.value, str) else ""
        inner = (place[0] + 1, place[1] - 1) if quote else place
        plain = not quote or self.text[slice(*inner)] == held.value
        start = low + 1 if quote and found is None else low
        return Word(
            str(held.value), start, high - (start - low), quote, inner, shared=found is not None, resolved=plain
        )

    def fragment(self, command: _Command) -> Fragment | None:
        words = command.words
        if not words or words[0].text.rsplit("/", 1)[-1] not in PROGRAMS:
            return None
        entries, env, programs = entries_of_words(self.text, words)
        entries += command.switches
        if "*" in command.open or not any(e.style in ("flag", "flag=", "bare") for e in entries):
            return None
        entries = [replace(e, resolved=False) if norm(e.key) in command.open else e for e in entries]
        low, high = words[0].start, words[-1].end
        return Fragment(
            form="python",
            start=low,
            end=max(low, high),
            entries=tuple(entries),
            programs=tuple(programs),
            env=tuple(env),
        )


def _local(node: ast.AST) -> set[str]:
    """Names that a function gives values of its own."""
    if isinstance(node, ast.Module):
        return set()
    given = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    return given | {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _is_flag(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value[:2] == "--"


def _name(flag: object) -> str:
    return norm(str(flag).lstrip("-").partition("=")[0])
