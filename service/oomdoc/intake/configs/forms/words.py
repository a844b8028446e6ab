"""Values of the shell's tokeniser: words with their places, commands, variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from oomkb.dataclass import dataclass


@dataclass(slots=True)
class Word:
    """A word as the shell would see it; ``value_span`` is where its text is written (in quotes, or in a variable)."""

    text: str
    start: int
    end: int
    quote: str = ""
    value_span: tuple[int, int] = (0, 0)
    shared: bool = False
    resolved: bool = True

    @property
    def is_number(self) -> bool:
        """Whether it is digits, a point among them or not."""
        return self.text.replace(".", "", 1).isdecimal()


@dataclass(slots=True)
class Variable:
    """``NAME=value``; ``exported`` also for a prefix of a command."""

    name: str
    word: Word
    name_span: tuple[int, int]
    exported: bool = False


@dataclass(slots=True)
class Heredoc:
    """The body of ``<<EOF`` and the file or variable it goes to."""

    start: int
    end: int
    target: str = ""
    known: Mapping[str, Variable] = field(default_factory=dict)
    """The variables that are filled in: none where its mark is quoted."""


@dataclass(slots=True)
class Command:
    """Words up to the end of a command. ``orphan`` says why the shell would not run these words with what precedes."""

    words: list[Word] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    start: int = 0
    end: int = 0
    orphan: str = ""
    array: str = ""
    """The array or the variable that the words stand in; with ``+`` where they are added to it."""
    runs: bool = True
    """Whether it is run for sure: not where it stands in an arm of ``if`` or ``case``."""


@dataclass(slots=True)
class Shell:
    """Everything found in one piece of shell text."""

    commands: list[Command] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    heredocs: list[Heredoc] = field(default_factory=list)


UNIT_COMMANDS: Final = frozenset({"ExecStart", "Exec"})
"""Before the command of a systemd unit, or of a container's (Podman's quadlets)."""
_DECLARES: Final = frozenset({"export", "env", "set", "declare", "local", "readonly", "typeset"})


def declares(words: list[Word]) -> bool:
    """Whether an assignment may follow: nothing, or ``export``, ``declare -a`` and the like."""
    return not words or (words[0].text in _DECLARES and all(w.text[:1] == "-" for w in words[1:]))
