"""No module imports itself in a circle, late imports counted."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest


def modules(root: Path) -> dict[str, Path]:
    found = {}
    for base in ("kb", "service"):
        for path in (root / base).rglob("*.py"):
            name = ".".join(path.relative_to(root / base).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imported(node: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """What is imported anywhere in a module but for annotations."""
    unread = [node]
    while unread:
        child = unread.pop()
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        # An import is a statement: what an expression holds needs no visit.
        unread += [c for c in ast.iter_child_nodes(child) if not isinstance(c, ast.expr)]
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            for alias in child.names:
                whole = f"{child.module}.{alias.name}"
                yield whole if whole in known else child.module


def graph(known: dict[str, Path]) -> dict[str, set[str]]:
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in known.items()}
    return {name: {n for n in imported(tree, known) if n in known and n != name} for name, tree in trees.items()}


def test_no_import_circles(root: Path) -> None:
    try:
        TopologicalSorter(graph(modules(root))).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_a_circle_is_found(tmp_path: Path) -> None:
    """Through a late import as well."""
    for name, text in {"a": "def f():\n    import b", "b": "from a import f"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    known = {name: tmp_path / f"{name}.py" for name in "ab"}
    with pytest.raises(CycleError):
        TopologicalSorter(graph(known)).prepare()
