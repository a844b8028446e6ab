"""What a person sees who asks for help, and the completion of shells."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from oomdoc.cli.main import app


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if not children:
        yield path, command
        return
    for name, child in children.items():
        yield from leaves(child, (*path, name))


COMMANDS = dict(leaves(typer.main.get_command(app)))


def test_there_are_many_commands() -> None:
    assert len(COMMANDS) > 25
    assert {("diagnose",), ("trace",), ("case", "new"), ("new", "fix")} <= set(COMMANDS)


@pytest.mark.parametrize("path", sorted(COMMANDS), ids=" ".join)
def test_every_command_shows_an_example_of_itself(path: tuple[str, ...]) -> None:
    text = COMMANDS[path].help or ""
    assert re.search(rf"oomdoc {' '.join(path)}\b", text), text
    done = CliRunner().invoke(app, [*path, "--help"])
    assert done.exit_code == 0
    assert "Usage: oomdoc " + " ".join(path) in " ".join(done.output.split())


@pytest.mark.parametrize("path", sorted(COMMANDS), ids=" ".join)
def test_every_option_says_what_it_does(path: tuple[str, ...]) -> None:
    silent = [
        p.name for p in COMMANDS[path].params if p.name != "help" and p.param_type_name == "option" and not p.help
    ]
    assert not silent


def test_commands_are_grouped() -> None:
    command: Any = typer.main.get_command(app)
    panels = {name: getattr(c, "rich_help_panel", None) for name, c in command.commands.items()}
    assert not [name for name, panel in panels.items() if not isinstance(panel, str)]
    assert panels["diagnose"] == "After a failure"
    output = CliRunner().invoke(app, ["--help"]).output
    places = [output.index(panel) for panel in dict.fromkeys(panels.values())]
    assert places == sorted(places)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    # What the installed shell function asks for, in its own words.
    words = {"COMP_WORDS": "oomdoc dia", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "oomdoc dia"}
    words["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    environment = {**os.environ, **words, "_OOMDOC_COMPLETE": f"complete_{shell}"}
    script = "from oomdoc.cli.main import app; app(prog_name='oomdoc')"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert "diagnose" in done.stdout, done.stderr
    assert "estimate" not in done.stdout
