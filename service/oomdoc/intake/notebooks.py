"""Jupyter notebooks as the text that a person would have pasted: prose, code in fences, commands, what was printed."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from typing import Any, Final

_SHELL_MAGIC: Final = ("%%bash", "%%sh", "%%shell", "%%writefile")
_MAX_CELLS: Final = 2000
_MAX_OUTPUT: Final = 400_000
"""Characters that one output may have; of longer ones the beginning and the end."""


def is_notebook(name: str, text: str) -> bool:
    """Whether a source is a notebook, by its name or by what it begins with."""
    if name.lower().endswith(".ipynb"):
        return True
    return text.lstrip()[:1] == "{" and '"cell_type"' in text and '"nbformat"' in text


def notebook_text(text: str) -> str | None:
    """The notebook's cells in order as plain text; ``None`` for what is none (cut off, not JSON, nested too deeply)."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list):
        return None
    return "\n".join(part for cell in cells[:_MAX_CELLS] if isinstance(cell, dict) for part in _cell(cell))


def _joined(value: Any) -> str:
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    source = _joined(cell.get("source"))
    if cell.get("cell_type") != "code":
        yield source
        return
    yield from _code(source)
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        if isinstance(output, dict):
            yield _printed(output)


def _code(source: str) -> Iterator[str]:
    """Python in a fence; commands (``!``, ``%%bash``) in one of their own."""
    first = source.lstrip()
    if first.startswith(_SHELL_MAGIC):
        yield f"```{'bash' if not first.startswith('%%writefile') else ''}\n{source.partition(chr(10))[2]}\n```"
        return
    python: list[str] = []
    command: list[str] = []
    for line in source.split("\n"):
        continued = bool(command) and command[-1].rstrip().endswith("\\")
        if continued or line.lstrip().startswith("!"):
            if python:
                yield _fenced("python", python)
                python = []
            command.append(line if continued else line.lstrip()[1:])
            continue
        if command:
            yield _fenced("bash", command)
            command = []
        python.append("" if line.lstrip().startswith("%") else line)
    yield from (_fenced(language, lines) for language, lines in (("python", python), ("bash", command)) if lines)


def _fenced(language: str, lines: list[str]) -> str:
    body = "\n".join(lines)
    return f"```{language}\n{body}\n```" if body.strip() else ""


def _printed(output: dict[str, Any]) -> str:
    """What a cell printed, or how it failed; pictures and markup are left out."""
    if output.get("output_type") == "error":
        frames = output.get("traceback")
        text = "\n".join(f for f in frames if isinstance(f, str)) if isinstance(frames, list) else ""
        return f"{text}\n{output.get('ename', '')}: {output.get('evalue', '')}"
    data = output.get("data")
    text = _joined(output.get("text")) or _joined(data.get("text/plain") if isinstance(data, dict) else None)
    half = _MAX_OUTPUT // 2
    return text if len(text) <= _MAX_OUTPUT else f"{text[:half]}\n{text[-half:]}"


def written_back(raw: str, text: str, changed: str) -> str | None:
    """The notebook whose plain text is ``changed`` where it was ``text``; ``None`` where a line cannot be told apart.

    Only the strings of the lines in question differ.
    """
    before, after = text.split("\n"), changed.split("\n")
    out = raw
    for kind, old, high, new, stop in reversed(difflib.SequenceMatcher(None, before, after, False).get_opcodes()):
        if kind == "equal":
            continue
        beside = kind == "insert"  # a new line goes with the one before it
        low, start = old - beside, new - beside
        first, last = (_string_of(raw, before, index) for index in (low, high - 1))
        if low < 0 or first is None or last is None:
            return None
        gap = raw[raw.rfind("\n", 0, first[0]) : first[0]]
        end = "\n" if raw[: last[1]].endswith('\\n"') else ""
        lines = [json.dumps(line + "\n", ensure_ascii=False) for line in after[start : stop - 1]]
        lines += [json.dumps(line + end, ensure_ascii=False) for line in after[start:stop][-1:]]
        out = out[: first[0]] + f",{gap}".join(lines) + out[last[1] :]
    return out if notebook_text(out) == changed else None


def _string_of(raw: str, lines: list[str], index: int) -> tuple[int, int] | None:
    """Where a line of the plain text stands among the strings of a notebook; ``None`` where others read the same."""
    spelt = {json.dumps(lines[index] + end, ensure_ascii=how) for end in ("\n", "") for how in (False, True)}
    found = sorted(match.span() for string in spelt for match in re.finditer(re.escape(string), raw))
    return found[lines[:index].count(lines[index])] if len(found) == lines.count(lines[index]) else None
