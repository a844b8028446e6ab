"""Text is read in intake; the diagnosis sees values of Evidence and holds no expression."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FORBIDDEN = ("re", "regex", "oomdoc.intake.sieve", "oomdoc.intake.lines", "oomdoc.intake.stream")
WHOLE_TEXT = frozenset({"prose", "digest"})
MAY_READ_TEXT = {"engine.py": "retrieval_query"}
"""The one function that hands the person's words to the search for known cases."""


def modules(root: Path) -> list[Path]:
    return sorted((root / "service" / "oomdoc" / "diagnosis").rglob("*.py"))


def test_no_module_of_the_diagnosis_imports_expressions(root: Path) -> None:
    found = []
    for path in modules(root):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{path.name}: {name}" for name in names if name in FORBIDDEN]
    assert not found


def test_only_the_search_sees_the_whole_text(root: Path) -> None:
    found = []
    for path in modules(root):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        allowed = [
            n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == MAY_READ_TEXT.get(path.name)
        ]
        inside = {id(n) for function in allowed for n in ast.walk(function)}
        found += [
            f"{path.name}:{node.lineno} .{node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr in WHOLE_TEXT and id(node) not in inside
        ]
    assert not found


@pytest.mark.parametrize("package", ["diagnosis", "intake/signs", "intake/outcomes"])
def test_patterns_stay_within_their_size(root: Path, package: str) -> None:
    """Bytes of expressions that point to causes: at most 20 KB; the rest of intake is bounded in its own test."""
    limits = {"diagnosis": 0, "intake/signs": 20_000, "intake/outcomes": 20_000}
    size = 0
    for path in (root / "service" / "oomdoc" / package).rglob("*.toml"):
        import tomllib

        size += sum(_pattern_bytes(tomllib.loads(path.read_text(encoding="utf-8"))))
    assert size <= limits[package]


def _pattern_bytes(value: object, name: str = "") -> list[int]:
    if isinstance(value, dict):
        return [n for key, item in value.items() for n in _pattern_bytes(item, key)]
    if isinstance(value, list):
        return [n for item in value for n in _pattern_bytes(item, name)]
    patterns = ("pattern", "patterns", "frames", "messages", "unless", "matches")
    return [len(value.encode())] if isinstance(value, str) and name in patterns else []
