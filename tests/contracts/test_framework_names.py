"""A framework's name stands in its record and nowhere else; the files that still name one are listed, and fewer each time."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from oomkb.frameworks import FRAMEWORKS

LIST = Path(__file__).with_name("framework_names.txt")
JOB_WORDS = {"fsdp", "unsloth"}
"""Names that are words of a job too (how it is sharded, what checkpoints its activations)."""
NAMES = {framework.name for framework in FRAMEWORKS} - JOB_WORDS


def named_in(source: str) -> set[str]:
    """The frameworks that a module names in its literals, alone or several in a text; docstrings may name any."""
    tree = ast.parse(source)
    places = (ast.Module, ast.ClassDef, ast.FunctionDef)
    statements = (s for node in ast.walk(tree) if isinstance(node, places) for s in node.body)
    docstrings = {id(s.value) for s in statements if isinstance(s, ast.Expr)}
    literals = (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in docstrings)
    words = [n.value.split() for n in literals if isinstance(n.value, str)]
    named = [[word for word in each if word in NAMES] for each in words]
    return {
        word for each, names in zip(words, named, strict=True) if len(each) == 1 or len(names) > 1 for word in names
    }


@cache
def naming(root: Path) -> set[str]:
    files = (path for package in ("kb/oomkb", "service/oomdoc") for path in (root / package).rglob("*.py"))
    return {path.relative_to(root).as_posix() for path in files if named_in(path.read_text("utf-8"))}


def test_no_further_file_names_a_framework(root: Path) -> None:
    assert naming(root) - set(LIST.read_text("utf-8").split()) == set()


def test_what_names_none_any_more_is_off_the_list(root: Path) -> None:
    assert set(LIST.read_text("utf-8").split()) - naming(root) == set()


def test_a_name_is_found_alone_and_among_words() -> None:
    assert named_in('"""axolotl"""\nA = "verl"\nB = words("trl nemo x")\n') == {"verl", "trl", "nemo"}
    assert named_in('"""axolotl"""\n\n\ndef f() -> None:\n    """trl"""\n') == set()
