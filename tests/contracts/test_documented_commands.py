"""Every `oomdoc` command in the documentation is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from oomdoc.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), ROOT / "cases/README.md"]
)


def commands(text: str) -> Iterator[str]:
    """What stands as code in a line, and lines of code blocks."""
    fenced = "".join(re.findall(r"```\w*\n(.*?)```", text, re.DOTALL))
    found = re.findall(r"`(oomdoc [a-z][^`\n]+)`", text)
    found += re.findall(r"^\s*(?:\$ |until |[A-Z_]+=\S+ |.*\| )?(oomdoc [a-z].*)$", fenced, re.MULTILINE)
    for line in found:
        yield re.split(r"\s+#|\s*(?:&&|;|>|\s\|)\s|$", line.strip())[0]


def test_there_are_commands() -> None:
    assert sum(1 for page in PAGES for _ in commands(page.read_text("utf-8"))) > 80


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_commands_are_taken(page: Path) -> None:
    root = typer.main.get_command(app)
    wrong = []
    for line in commands(page.read_text("utf-8")):
        words = shlex.split(line.replace("...", "X"))[1:]
        command = root
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words[0]]
            words = words[1:]
        try:
            assert not hasattr(command, "commands") or not words, "no such command"
            command.make_context("oomdoc", words)
        except Exception as error:
            if re.search("Missing|requires an argument", f"{type(error).__name__} {error}"):
                continue  # a command that is only named
            wrong.append(f"{line}: {type(error).__name__} {error}")
    assert not wrong
