"""Python to settings: keyword arguments of calls, assignments, dictionaries, ``os.environ``; with every place kept.

Nothing is executed. Text that does not parse as a whole is tried call by call by the caller.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from oomdoc.intake.configs.entry import Entry, Fragment, Style
from oomdoc.intake.configs.forms.own import own_settings
from oomdoc.intake.configs.forms.places import Places
from oomdoc.intake.configs.forms.syntax import UNKNOWN, literal_value, syntax_tree
from oomkb.frameworks.declared import records

_LOADS_TORCH: Final = frozenset({"torch", "peft", *(record.package for record in records())})
_MAX_STEPS: Final = 4
"""From an expression to the default that counts for it."""
_NUMBER: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,12})?")


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Call):
        parts.append(_dotted(node.func))
    elif isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def _option(call: ast.Call) -> tuple[str, ast.expr | None] | None:
    """``batch_size`` and its default, of ``parser.add_argument("--batch-size", default=4)``."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "add_argument":
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    long = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
    name = str(getattr(given.get("dest"), "value", "") or long.lstrip("-").replace("-", "_"))
    switch = getattr(given.get("action"), "value", "") == "store_true"
    return name, given.get("default") or (ast.copy_location(ast.Constant(value=False), call) if switch else None)


def _defaults_of(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """The options, or the fields of a class, that a node states, with their defaults."""
    if isinstance(node, ast.Call) and (found := _option(node)) is not None:
        yield found
    for line in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(line, ast.Assign | ast.AnnAssign):
            target = line.targets[0] if isinstance(line, ast.Assign) else line.target
            if isinstance(target, ast.Name):
                yield target.id, _default(line.value)


def _default(node: ast.expr | None) -> ast.expr | None:
    """A field's default: of ``field(default=4)`` the value, of a ``default_factory`` what its lambda makes."""
    if not isinstance(node, ast.Call) or not _dotted(node.func).lower().endswith("field"):
        return node
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    made = given.get("default_factory")
    return given.get("default") or (made.body if isinstance(made, ast.Lambda) else None)


def _run_of(node: ast.AST) -> list[ast.AST]:
    """What of a node may run: of ``if False:`` its other branch alone."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Constant):
        return [*(node.body if node.test.value else node.orelse)]
    return list(ast.iter_child_nodes(node))


_Value = tuple[Any, tuple[int, int], str, bool, bool]
"""Value, place, quote, resolved, shared."""


class _Visitor:
    def __init__(self, text: str, base: int) -> None:
        self.text, self.places = text, Places(text, base)
        self.base = base
        self.entries: list[Entry] = []
        self.env: list[Entry] = []
        self.programs: list[str] = []
        self.names: dict[str, _Value] = {}
        self.options: dict[str, ast.expr | None] = {}
        """Defaults of a parser's options (``None``: two of them differ)."""
        self.members: dict[str, ast.expr | None] = {}
        """Members of dictionaries that are written out (``None``: two of a name)."""
        self.objects: dict[str, str] = {}
        """Variables that hold a configuration, and the call that made it."""
        self.notes: list[tuple[str, int]] = []

    # -- values --------------------------------------------------------------------------------------------------
    def value(self, node: ast.expr, depth: int = 0) -> _Value:
        span = self.places.of(node)
        if isinstance(node, ast.Constant):
            quote = self.text[span[0] - self.base] if isinstance(node.value, str) else ""
            quote = quote if quote in "\"'" else ""
            inner = (span[0] + 1, span[1] - 1) if quote else span
            return node.value, inner, quote, True, False
        if isinstance(node, ast.Name):
            known = self.names.get(node.id)
            if known is not None:
                return *known[:4], True
            # A class is named, not computed: optim_type = AdamW.
            return node.id, span, "", node.id[:1].isupper() and not node.id.isupper(), False
        literal = literal_value(node)
        if literal is not UNKNOWN:
            return literal, span, "", True, False
        otherwise = self.otherwise(node)
        if otherwise is not None and depth < _MAX_STEPS:
            return *self.value(otherwise, depth + 1)[:4], True
        if isinstance(node, ast.Attribute):
            dotted = _dotted(node)
            return dotted, span, "", dotted.startswith(("torch.", "jnp.", "tf.", "np.")), False
        if isinstance(node, ast.Call):
            return _dotted(node.func), span, "", False, False
        return self.text[span[0] - self.base : min(span[1], span[0] + 200) - self.base], span, "", False, False

    def otherwise(self, node: ast.expr) -> ast.expr | None:
        """What counts where nobody says otherwise: an option's default, ``os.environ.get("BS", 4)`` as a number."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self.options.get(node.attr)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            return self.members.get(str(literal_value(node.slice)))
        if not isinstance(node, ast.Call) or not node.args:
            return None
        called = _dotted(node.func)
        if called in ("int", "float", "str") and self.otherwise(node.args[0]) is not None:
            return self.numeral(node.args[0])
        return node.args[1] if called in ("os.environ.get", "os.getenv", "environ.get") and node.args[1:] else None

    def numeral(self, node: ast.expr) -> ast.expr:
        """The default of a variable, with a number that is written as text as a number."""
        default = self.otherwise(node) or node
        text = default.value if isinstance(default, ast.Constant) else None
        if not isinstance(text, str) or not _NUMBER.fullmatch(text):
            return default
        made = ast.Constant(float(text) if "." in text else int(text))
        ast.copy_location(made, default)
        made.col_offset, made.end_col_offset = default.col_offset + 1, (default.end_col_offset or 1) - 1
        return made

    def emit(self, key: str, at: tuple[int, int], node: ast.expr, style: Style, scope: str, value: Any = None) -> None:
        """A setting whose value stands at a node, noted."""
        entry = self.made(key, at, node, style, scope, value)
        (self.env if style == "env" else self.entries).append(entry)

    def made(self, key: str, at: tuple[int, int], node: ast.expr, style: Style, scope: str, value: Any = None) -> Entry:
        read, span, quote, resolved, shared = self.value(node)
        return Entry(
            key=key,
            value=read if value is None else value,
            key_span=at,
            value_span=span,
            style=style,
            scope=scope,
            quote=quote,
            resolved=resolved,
            shared=shared,
        )

    def setting(self, key: str, at: ast.AST, node: ast.expr, style: Style) -> Entry:
        """A setting that stands in one place of the program; one that is worked out from others is not known."""
        default = _default(node) if "." in key and style == "assign" else node
        made = self.made(key, self.places.of(at), default or node, style, "@own")
        plain = literal_value(default) is not UNKNOWN or isinstance(made.value, str) or isinstance(node, ast.Call)
        derived = isinstance(default, ast.Name) or (isinstance(default, ast.Attribute) and made.shared)
        return replace(made, resolved=made.resolved and plain and not derived and not isinstance(made.value, dict))

    def variable(self, name: ast.expr, at: ast.expr, node: ast.expr) -> None:
        key = literal_value(name)
        if isinstance(key, str):
            self.emit(key, self.places.of(at), node, "env", "", str(self.value(node)[0]))

    # -- statements ----------------------------------------------------------------------------------------------
    def run(self, tree: ast.AST) -> None:
        self.defaults(tree)
        stack: list[ast.AST] = [tree]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Import):
                self.imported([a.name for a in node.names], node)
            elif isinstance(node, ast.ImportFrom):
                self.imported([node.module or ""], node)
                self.programs += [a.name for a in node.names if a.name[:1].isupper()]
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                self.assignment(node.targets[0], node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self.assignment(node.target, node.value)
            elif isinstance(node, ast.Call):
                self.call(node)
                if _LOGS.match(_dotted(node.func).rpartition(".")[2]):
                    for argument in node.args:
                        if isinstance(argument, ast.Dict):
                            self.dictionary(argument, "", scope=LOGGED)
                    continue
            elif isinstance(node, ast.Dict):
                self.dictionary(node, "")
                stack.extend(reversed([v for v in node.values if not isinstance(v, ast.Dict)]))
                continue
            stack.extend(reversed(_run_of(node)))

    def defaults(self, tree: ast.AST) -> None:
        """Options of parsers, what classes and dictionaries hold, parameters of functions called without arguments."""
        functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        called: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append(node)
                continue
            if isinstance(node, ast.Call) and (node.args or node.keywords):
                called.add(_dotted(node.func).rpartition(".")[2])
            for name, default in _defaults_of(node):
                self.options[name] = None if name in self.options else default
            for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
                member = str(literal_value(key))
                self.members[member] = None if member in self.members else value
        for function in functions:
            if function.name not in called:
                given = [*function.args.posonlyargs, *function.args.args][::-1]
                for argument, default in zip(given, function.args.defaults[::-1], strict=False):
                    self.names.setdefault(argument.arg, self.value(default))

    def imported(self, names: list[str], node: ast.stmt) -> None:
        for name in names:
            self.programs.append(name)
            if name.split(".")[0] in _LOADS_TORCH:
                self.notes.append(("import:" + name.split(".")[0], self.places.of(node)[0]))

    def assignment(self, target: ast.expr, node: ast.expr) -> None:
        place = self.places.of(target)
        if isinstance(target, ast.Subscript):
            key = literal_value(target.slice)
            if _dotted(target.value) in ("os.environ", "environ"):
                self.variable(target.slice, target, node)
            elif isinstance(key, str) and isinstance(target.value, ast.Name) and not isinstance(node, ast.Dict):
                self.emit(key, place, node, "pair", "@dict")
        elif isinstance(target, ast.Name):
            if isinstance(node, ast.Call) and _dotted(node.func).endswith(("Config", "Arguments", "Args")):
                self.objects[target.id] = _dotted(node.func)
            if not isinstance(node, ast.Dict) and (not isinstance(node, ast.Call) or self.otherwise(node) is not None):
                self.names[target.id] = self.value(node)
            self.emit(target.id, place, node, "assign", "")
        elif isinstance(target, ast.Attribute):
            made = self.objects.get(_dotted(target.value))
            if made is None:
                self.emit(_dotted(target), place, node, "attribute", "@attribute")
            else:
                self.emit(target.attr, place, node, "kwarg", made)

    def call(self, node: ast.Call) -> None:
        name = _dotted(node.func)
        if not name:
            return
        if name.endswith(("environ.setdefault", "os.putenv")) and len(node.args) == 2:
            self.variable(node.args[0], node.args[0], node.args[1])
            return
        scope = name
        if name.rsplit(".", 1)[-1] == "dict":
            kinds = [k.value for k in node.keywords if k.arg == "type"]
            scope = (_dotted(kinds[0]) or str(literal_value(kinds[0]))) if kinds else "dict"
        if len(self.programs) < 400:
            self.programs.append(scope + "()")
        where = self.places.of(node)
        self.entries.append(
            Entry(
                key=scope + "()", value=True, key_span=(where[0], where[0]), value_span=where, style="call", scope=scope
            )
        )
        for index, argument in enumerate(node.args[:2]):
            value, span, *_ = self.value(argument)
            if isinstance(value, str | int | float):
                self.emit(f"@{index}", (span[0], span[0]), argument, "item", scope)
        for keyword in node.keywords:
            if keyword.arg is None:
                continue
            if keyword.arg in _SETTINGS and isinstance(keyword.value, ast.Dict):
                self.dictionary(keyword.value, _SETTINGS[keyword.arg])
            start = self.places.at(keyword.lineno, keyword.col_offset)
            place = (start, start + len(keyword.arg))
            counted = self.counted(keyword.value) if keyword.arg == "gpu" else None
            if counted is None:
                self.emit(keyword.arg, place, keyword.value, "kwarg", scope)
            else:
                made = self.made(keyword.arg, place, counted[1], "kwarg", scope, counted[0])
                self.entries.append(replace(made, shared=True))

    def counted(self, node: ast.expr) -> tuple[str, ast.expr] | None:
        """``f"H100:{N_GPU}"``: the cards that are asked for, and the number of them as it is known here."""
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        first, number = (parts[0], parts[1]) if len(parts) == _CARD_AND_NUMBER else (None, None)
        card = first.value if isinstance(first, ast.Constant) else None
        if not isinstance(card, str) or not isinstance(number, ast.FormattedValue):
            return None
        count, _, _, resolved, _ = self.value(number.value)
        known = resolved and type(count) is int and isinstance(number.value, ast.Name)
        return (f"{card}{count}", number.value) if known else None

    def dictionary(self, node: ast.Dict, path: str, depth: int = 0, scope: str = "@dict") -> None:
        if depth > 20:
            return
        for key_node, item in zip(node.keys, node.values, strict=True):
            key = literal_value(key_node) if key_node is not None else UNKNOWN
            if not isinstance(key, str) or key_node is None:
                continue
            full = f"{path}.{key}" if path else key
            self.emit(full, self.places.of(key_node), item, "pair", scope)
            if isinstance(item, ast.Dict):
                self.dictionary(item, full, depth + 1, scope)


_CARD_AND_NUMBER: Final = 2
LOGGED: Final = "@logged"
"""The scope of what a program writes down of its run: it says what holds, and to change it there changes nothing."""
_LOGS: Final = re.compile(r"log_(?:param|hyperparam|config|dict|metric)s?\Z")
_SETTINGS: Final = {
    "engine_kwargs": "engine_kwargs",
    "model_loading_config": "model_loading_config",
}
"""Arguments whose dictionary holds the settings of what is run (Ray Serve's ``LLMConfig``)."""


def parse_python(text: str, start: int = 0, end: int | None = None) -> Fragment:
    """The settings of ``text[start:end]``.

    :raises FormError: when it is not Python, or large or nested beyond reason.
    """
    end = len(text) if end is None else end
    piece = text[start:end]
    tree = syntax_tree(piece)
    visitor = _Visitor(piece, start)
    visitor.run(tree)
    own = own_settings(tree, visitor.setting)
    return Fragment(
        form="python",
        start=start,
        end=end,
        entries=tuple(visitor.entries),
        programs=tuple(visitor.programs[:2000]),
        env=tuple(visitor.env),
        notes=tuple(visitor.notes),
        own=tuple(entry for entry in own if entry.resolved),
    )
