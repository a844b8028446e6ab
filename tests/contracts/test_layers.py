"""Imports run one way, and the memory model needs nothing but the standard library."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ORDER = [
    (
        "oomkb.units",
        "oomkb.errors",
        "oomkb.errors",
        "oomkb.state",
        "oomkb.dataclass",
        "oomkb.kept",
        "oomkb.kept",
        "oomkb.limits",
        "oomkb.untrusted",
        "oomkb.tables",
    ),
    ("oomkb.memory",),
    ("oomkb.catalog",),
    ("oomkb.frameworks",),
    ("oomkb.pricing",),
    ("oomkb.records",),
    ("oomkb.topics",),
    ("oomkb.retrieval",),
    ("oomdoc.evidence", "oomdoc.isolation", "oomdoc.settings", "oomdoc.snapshots", "oomdoc.stated"),
    ("oomdoc.stated", "oomdoc.hook_report"),
    ("oomdoc.intake",),
    ("oomdoc.language_model",),
    ("oomdoc.diagnosis",),
    ("oomdoc.casework",),
    ("oomdoc.report",),
    ("oomdoc.planner", "oomdoc.checking", "oomdoc.fleet", "oomdoc.tracing"),
    ("oomdoc.chat",),
    ("oomdoc.library",),
    ("oomdoc.tools",),
    ("oomdoc.assistant",),
    ("oomdoc.store",),
    ("oomdoc.sessions",),
    (
        "oomdoc.api",
        "oomdoc.bots",
        "oomdoc.cli",
        "oomdoc.mcp",
        "oomdoc.hook",
        "oomdoc.scaffold",
        "oomdoc.trainer_callback",
        "oomdoc.wrap",
    ),
]
# Patching speaks the words of nobody; the words catalogue is a leaf that every stage above messages may read.
LEAVES = ("oomdoc.report.words",)


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    for base in (root / "kb", root / "service"):
        for path in sorted(base.rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            yield ".".join(p for p in parts if p != "__init__"), path


def imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module, node.lineno
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def layer(name: str) -> int | None:
    for number, prefixes in enumerate(ORDER):
        if any(name == p or name.startswith(p + ".") for p in prefixes):
            return number
    return None


def test_imports_run_one_way(root: Path) -> None:
    wrong = []
    for name, path in modules(root):
        own = layer(name)
        if own is None:
            continue
        for target, line in imports(path):
            other = layer(target)
            if other is None or any(target.startswith(leaf) for leaf in LEAVES):
                continue
            if other > own:
                wrong.append(f"{path.relative_to(root)}:{line} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_what_is_known_never_imports_what_is_done(root: Path) -> None:
    wrong = [
        f"{path.relative_to(root)}:{line}"
        for name, path in modules(root)
        if name.startswith("oomkb")
        for target, line in imports(path)
        if target.split(".")[0] == "oomdoc"
    ]
    assert not wrong


def test_every_module_has_a_layer(root: Path) -> None:
    loose = {n for n, _ in modules(root) if layer(n) is None} - {"oomkb", "oomdoc", "oomdoc.__main__"}
    assert not loose, f"give these a place in ORDER: {sorted(loose)}"


def test_the_memory_model_is_standard_library_only(root: Path) -> None:
    wrong = []
    for name, path in modules(root):
        if not name.startswith("oomkb.memory"):
            continue
        for target, line in imports(path):
            top = target.split(".")[0]
            if (
                top not in sys.stdlib_module_names
                and not target.startswith(
                    tuple(f"oomkb.{n}" for n in ("memory", "units", "errors", "limits", "notes", "tables", "dataclass"))
                )
                and target != "oomkb"
            ):
                wrong.append(f"{path.relative_to(root)}:{line} imports {target}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["kb", "service"])
def test_the_folders_are_not_packages(root: Path, name: str) -> None:
    assert not (root / name / "__init__.py").exists()
