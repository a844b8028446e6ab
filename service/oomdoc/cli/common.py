"""What the commands share: reading inputs, ``--set``, output and its colour."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from oomdoc.evidence import Source
from oomkb.errors import InputError, JobError
from oomkb.limits import check_tree, shown
from oomkb.untrusted import yaml_document

if TYPE_CHECKING:
    from rich.progress import Progress

MAX_CONFIG_BYTES: Final = 16 << 20


class Format(StrEnum):
    """How an answer is printed."""

    text = "text"
    json = "json"
    markdown = "markdown"


class Language(StrEnum):
    """The language of an answer; ``auto`` is the language of the input."""

    auto = "auto"
    en = "en"
    zh = "zh"


def read_text(path: Path, *, limit_bytes: int = MAX_CONFIG_BYTES) -> str:
    """A small text file; ``-`` is standard input.

    :raises InputError: for a file that is missing, too large or not text.
    """
    if str(path) == "-":
        data = sys.stdin.buffer.read(limit_bytes + 1)
    else:
        try:
            with path.open("rb") as file:
                data = file.read(limit_bytes + 1)
        except OSError as error:
            raise InputError(error.strerror or str(error), where=str(path), hint="check the path") from error
    if len(data) > limit_bytes:
        raise InputError(f"larger than {limit_bytes >> 20} MiB", where=str(path), hint="pass the part that matters")
    if b"\0" in data[:4096]:
        raise InputError("this is a binary file, not text", where=str(path), hint="pass the log or the config as text")
    return data.decode("utf-8", errors="replace").removeprefix("﻿")


def load_document(path: Path) -> dict[str, Any]:
    """A YAML or JSON mapping.

    :raises InputError: naming line and column of what cannot be read.
    """
    document = yaml_document(read_text(path), where=str(path), finite=False)
    if not isinstance(document, dict):
        raise InputError("expected a mapping of fields", where=str(path), hint="for example `model: Qwen/Qwen2.5-7B`")
    return {str(key): value for key, value in document.items()}


def read_named(path: Path | None) -> tuple[str, str, list[Source]]:
    """A file with its name, and the files it names that lie in its folder; empty without one.

    :raises InputError: as :func:`read_text`.
    """
    if path is None:
        return "", "", []
    text = read_text(path)
    if str(path) == "-":
        return text, path.name, []
    from oomdoc.intake.configs.companions import companion_files

    return text, path.name, companion_files(path, text)


def parse_set(pairs: Iterable[str]) -> dict[str, Any]:
    """``--set lora.r=16`` as ``{"lora.r": 16}``; values are read as YAML.

    :raises JobError: for a pair without ``=``.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise JobError(f"{pair!r} is not field=value", where="--set", hint="for example --set seq_len=2048")
        try:
            values[name.strip()] = yaml_document(text, where=f"--set {name}")
        except InputError as error:
            raise JobError(f"{shown(text)} cannot be read", where=f"--set {name}", hint="quote it") from error
    return values


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each line of a JSONL file, read one at a time; ``-`` is standard input.

    :raises InputError: naming the line that is not a JSON object.
    """
    if str(path) == "-":
        yield from _objects(sys.stdin, "-")
        return
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from _objects(file, str(path))
    except OSError as error:
        raise InputError(error.strerror or str(error), where=str(path), hint="check the path") from error


def _objects(lines: TextIO, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not JSON: {error}", where=f"{name}:{number}", hint="one JSON object a line") from error
        if not isinstance(value, dict):
            raise InputError("not a JSON object", where=f"{name}:{number}", hint="one JSON object a line")
        check_tree(value, where=f"{name}:{number}", text_chars=None, finite=False)
        yield number, value


def causes_beginning(incomplete: str) -> list[str]:
    """The causes and topics that complete what stands in a shell."""
    from oomkb.records.taxonomy import CAUSES
    from oomkb.topics import topics

    return [name for name in (*CAUSES, *topics()) if name.startswith(incomplete)]


def print_json(document: Mapping[str, Any], *, line: bool = False) -> None:
    """A document on standard output; ``line`` for one line of a batch."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=None if line else 2) + "\n")


def show(text: str) -> None:
    """Text on standard output."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def show_piece(text: str) -> None:
    """A part of a line on standard output, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def coloured(stream: TextIO = sys.stdout) -> bool:
    """Whether to colour: NO_COLOR and FORCE_COLOR are obeyed, else a terminal decides."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def terminal_width() -> int:
    """Columns to use, between 60 and 140."""
    return max(60, min(140, shutil.get_terminal_size((100, 24)).columns))


def progress() -> Progress:
    """A progress bar on standard error, shown only in a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not sys.stderr.isatty(),  # FORCE_COLOR asks for colour, not for a bar in a log
    )
