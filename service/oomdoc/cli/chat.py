"""``oomdoc chat``: a conversation in the terminal, or many from a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oomdoc.cli.common import Format, coloured, json_lines, print_json, progress, show, show_piece

if TYPE_CHECKING:
    from oomdoc.language_model import LanguageModel

_FAREWELLS = frozenset({"exit", "quit", "bye", ":q", "退出", "再见"})


def chat(
    file: Annotated[Path | None, typer.Argument(help="A log or config to begin with.")] = None,
    batch: Annotated[
        Path | None, typer.Option(help="JSONL, one {id, turns} per line; prints one result per line.")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.text,
) -> None:
    """Converse: paste a log or a config, then ask what a change would do.

    A pasted block ends with an empty line. `exit` or Ctrl-D leaves. With OOMDOC_LLM_URL set, a language model converses
    through oomdoc's functions; figures stay computed.

    Examples:

        oomdoc chat

        oomdoc chat train.log

        oomdoc chat --batch conversations.jsonl --format json
    """
    if batch is not None:
        _batch(batch)
        return
    _converse(format_, file)


def _batch(path: Path) -> None:
    from oomdoc.cli.rows import answered

    with progress() as bar:
        task = bar.add_task("answering", total=None)
        for document in answered(_replies, json_lines(path), streamed=str(path) == "-"):
            print_json(document, line=True)
            bar.advance(task)


def _replies(numbered: tuple[int, Mapping[str, Any]]) -> dict[str, Any]:
    """The document of one conversation of a batch."""
    from oomdoc.chat.conversation import respond
    from oomdoc.chat.session import Session

    _, row = numbered
    session, replies = Session(), []
    for turn in row.get("turns") or []:
        session, reply = respond(session, str(turn))
        replies.append(reply.document())
    return {"id": row.get("id"), "replies": replies}


def _converse(format_: Format, file: Path | None) -> None:
    from oomdoc.assistant.tool_loop import Turned, converse
    from oomdoc.chat.session import Session
    from oomdoc.report.words import word

    session, model = Session(), _language_model()
    if sys.stdin.isatty() and format_ is not Format.json:
        show(word("chat.begin", "en") + " " + word("chat.leave", "en") + "\n")
    turns = chain([_first_turn(file)] if file is not None else [], iter(_read_turn, None))
    for text in turns:
        if not text.strip():
            continue
        if text.strip().lower() in _FAREWELLS:
            return
        for piece in converse(session, text, model):
            if isinstance(piece, Turned):
                session = piece.session
                if format_ is Format.json:
                    print_json(piece.reply.document(), line=True)
            elif format_ is not Format.json:
                show_piece(piece)
        if format_ is not Format.json:
            show("\n")


def _first_turn(file: Path) -> str:
    from oomdoc.intake.stream import load_source

    return load_source(file).text


def _language_model() -> LanguageModel | None:
    """The language model of ``OOMDOC_LLM_URL``, where one is set up."""
    from oomdoc.language_model import from_environment

    return from_environment()


def _read_turn() -> str | None:
    """A line, or a pasted block up to an empty line: a block arrives at once, so more input is already waiting."""
    interactive = sys.stdin.isatty()
    first = _prompted() if interactive else sys.stdin.readline()
    if not first:
        return None
    lines = [first]
    while interactive and _waiting():
        try:
            line = input() + "\n"
        except EOFError:
            break
        if not line.strip():
            break
        lines.append(line)
    return "".join(lines).rstrip("\n")


def _prompted() -> str:
    """A line from the terminal, with editing and earlier lines at the arrow keys where readline is available."""
    with suppress(ImportError):
        import readline  # noqa: F401
    # The marks keep the codes out of the width that readline counts.
    prompt = "\001\033[1m\002> \001\033[0m\002" if coloured() else "> "
    try:
        return input(prompt) + "\n"
    except EOFError:
        sys.stdout.write("\n")
        return ""


def _waiting() -> bool:
    import select

    try:
        return bool(select.select([sys.stdin], [], [], 0.05)[0])
    except (OSError, ValueError):
        return False
