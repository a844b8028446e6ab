"""What stands in a script beside its commands: labels of ``case``, requests of a batch job, what variables hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.forms.words import Command
from oomdoc.intake.configs.values import as_scalar
from oomkb.kept import compiled

_BATCH: Final = compiled(
    r"^[ \t]{0,8}#SBATCH[ \t]{1,8}(?:--(?P<long>[a-z][a-z-]{1,30})(?:=|[ \t]{1,8})|-(?P<short>[A-Za-z])[ \t]{0,8})"
    r"(?P<value>[^\s#]{1,80})"
    r"|(?:^[ \t]{0,8}#PBS[ \t]{1,8}-l[^\n#]{0,80}?\b|(?<=:))(?P<pbs>select|ngpus)=(?P<number>[0-9]{1,4})",
    re.M,
)


def batch_requests(text: str, start: int, end: int) -> list[Entry]:
    """The nodes and GPUs that a batch job's first lines ask for."""
    out: list[Entry] = []
    if text.find("#SBATCH", start, end) < 0 and text.find("#PBS", start, end) < 0:
        return out
    for found in _BATCH.finditer(text, start, end):
        name, value = (n for n in ("long", "short", "pbs", "value", "number") if found[n] is not None)
        low, high = found.span(value)
        out.append(
            Entry(
                key=found[name],
                value=as_scalar(text[low:high]),
                key_span=found.span(name),
                value_span=(low, high),
                style="flag=",
                scope="sbatch",
            )
        )
    return out


_CASE: Final = compiled(r"^[ \t]{0,40}case[ \t][^\n]{1,200}?[ \t]in(?=[ \t]|$)", re.M)


_ESAC: Final = compiled(r"(?:^|;)[ \t]{0,40}esac\b", re.M)


_LABEL: Final = compiled(
    r"(?:^|\A|(?<=;;))[ \t]{0,60}\(?[\w*?.\"'\[\]:/+-]{1,80}"
    r"(?:[ \t]*\|[ \t]*[\w*?.\"'\[\]:/+-]{1,80}){0,20}[ \t]*\)",
    re.M,
)


_MAX_CASES: Final = 50


def without_labels(text: str, start: int, end: int) -> str:
    """The text with the labels of ``case`` blanked out, every other place as it is: ``--model)`` is no flag."""
    if "esac" not in text[start:end]:
        return text
    out, at = text, start
    for _ in range(_MAX_CASES):
        opened = _CASE.search(out, at, end)
        closed = _ESAC.search(out, opened.end(), end) if opened is not None else None
        if opened is None or closed is None:
            break
        block = _LABEL.sub(lambda m: " " * len(m[0]), out[opened.end() : closed.start()])
        out, at = out[: opened.end()] + block + out[closed.start() :], closed.end()
    return out


_TAKEN_IN: Final = compiled(r"\$\{?([A-Za-z_]\w{0,80})(?:\[[@*]\])?")


def contents(text: str, commands: list[Command]) -> dict[str, set[str]]:
    """The arrays and variables that each array and string takes in."""
    out: dict[str, set[str]] = {}
    for command in commands:
        if command.array:
            name = command.array.lstrip("+")
            out.setdefault(name, set()).update(_TAKEN_IN.findall(text, command.start, command.end))
        for variable in command.variables if command.runs else ():
            out.setdefault(variable.name, set()).update(_TAKEN_IN.findall(text, variable.word.start, variable.word.end))
    return out


def reached(text: str, command: Command, holds: Mapping[str, set[str]]) -> frozenset[str]:
    """The arrays and variables that a command takes in, and what these hold, to the end."""
    found: set[str] = set()
    todo = set(_TAKEN_IN.findall(text, command.start, command.end))
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= holds.get(name, set()) - found
    return frozenset(found)
