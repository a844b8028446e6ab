"""Text as programs and people wrote it, without what carried it: quoting, mark-up, log shippers, terminals.

Lines keep their numbers: a line that a terminal broke is put together in the place of its last part, with empty lines
before it; a record of a log shipper that holds several lines becomes one with carriage returns.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from typing import Final

from oomdoc.intake.patterns import patterns

_RE: Final = patterns(__file__)
_STRAIGHT: Final = str.maketrans("“”„‘’，：；（）！？【】", '"""\'\',:;()!?[]')
_WIDE: Final = "“”„‘’，：；（）"
"""Marks that keyboards, chats and screenshots put in place of those that programs print."""
_COLUMNS: Final = (
    ("quote", ""),
    ("numbered", ""),
    ("shipped", ""),
    ("container", ""),
    ("journal", ""),
    ("task", r"[rank\g<rank>]: "),
)
"""What each line of a run begins with, in the order in which it is taken off, and what stays of it."""
_COUNTING: Final = frozenset({"numbered", "shipped", "journal"})
"""Columns that differ from line to line."""
_BLANKS: Final = str.maketrans({"\u00a0": " ", "\u200b": None, "\ufeff": None})
_MESSAGE: Final = ("message", "msg", "log", "@message", "text")
"""Keys of a record under which log shippers keep the line: Docker ``log``, zap ``msg``, Logstash ``message``."""
_TRACES: Final = (
    "exc_info",
    "exception",
    "error",
    "err",
    "stack",
    "stacktrace",
    "stack_trace",
    "traceback",
    "exc_text",
)
"""Keys under which the traceback stands beside it: Python's JSON formatters, structlog, zap, Logstash."""
_MARKS: Final = ("level", "severity", "stream", "time", "ts", "timestamp", "@timestamp")
"""Keys one of which stands beside it: without any, it is a record of somebody's data."""
_RUN: Final = 3
"""Lines one after the other that begin alike before that is taken for a column of its own."""
_LEAST_WIDTH, _MOST_WIDTH = 60, 240
"""Columns of a terminal that breaks lines."""
_TERMINALS: Final = (80, 100, 120, 132, 160)
"""Columns that terminals have: one line that ends there is enough, of other widths it takes more."""
_FEWEST: Final = 2
_LONGEST: Final = 4000
"""Characters from which a line takes in no other."""


def plain(text: str) -> str:
    """The text without quote marks, entities, colours, records around lines, and breaks of a terminal."""
    text = text.translate(_BLANKS)
    if "&" in text and _RE["entity"].search(text) is not None:
        text = html.unescape(text)
    if "[" in text:
        text = _RE["ansi"].sub("", text)
    lines = text.split("\n")
    if any(line.startswith(("{", " {")) for line in lines):
        lines = [_of_record(line) for line in lines]
    if "\\n" in text:
        lines = [_unescaped(line) if "\\n" in line else line for line in lines]
    if any(mark in text for mark in _WIDE):
        lines = [line if _RE["han"].search(line) else line.translate(_STRAIGHT) for line in lines]
    lines = _without_turns(lines)
    for name, kept in _COLUMNS:
        lines = _without_column(lines, name, kept)
    lines = [_single_spaced(line) if "  " in line else line for line in lines]
    indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    lines = _whole([line[indent:] for line in lines] if indent else lines)
    return "\n".join(_RE["message_end"].sub(r"\g<0>\r", line) if " to allocate " in line else line for line in lines)


def _without_turns(lines: Sequence[str]) -> list[str]:
    """The lines, those of rendered conversations empty: a sample that a log prints tells of nothing that happened."""
    out, left = list(lines), 0
    for n, line in enumerate(lines):
        begins = _RE["turn"].match(line) is not None
        if begins or left:
            out[n] = ""
            ended = _RE["turn_end"].search(line) is not None
            left = 0 if ended else _LONGEST_TURN if begins else left - 1
    return out


_LONGEST_TURN: Final = 200
"""Lines after which a turn whose end is missing is over."""


def _of_record(line: str) -> str:
    """The lines that a record of a log shipper holds: its message, and the traceback beside it."""
    if not line.rstrip().endswith("}") or not any(f'"{key}"' in line for key in _MESSAGE):
        return line
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if not isinstance(record, dict) or not any(key in record for key in _MARKS):
        return line
    held = next((record[key] for key in _MESSAGE if isinstance(record.get(key), str)), None)
    if held is None:
        return line
    traces = [record[key] for key in _TRACES if isinstance(record.get(key), str)]
    return "\r".join("\n".join([held.rstrip("\n"), *traces]).split("\n"))


def _unescaped(line: str) -> str:
    """A log in one string, its ends of lines written out, as lines; of a template with places to fill in, the line."""
    parts = line.replace("\\\\n", "\\n").split("\\n")
    told = [part for part in parts if part.strip()]
    if len(told) < _RUN or sum(map(len, told)) < _TELLING * len(told) or _RE["place"].search(line):
        return line
    return _RE["escape"].sub(r"\1", "\r".join(parts).replace("\\t", "    "))


_TELLING: Final = 30
"""Characters that the lines of a log have on average; those of a prompt's template have fewer."""


def _single_spaced(line: str) -> str:
    """A sentence that a screenshot's reader spaced widely, spaced as it was printed; tables stay as they are."""
    return line if _RE["row"].search(line) is not None else _RE["wide"].sub(" ", line)


def _without_column(lines: Sequence[str], name: str, kept: str) -> list[str]:
    """The lines without what each line of a run begins with."""
    match = _RE[name].compiled().match
    found = [match(line) for line in lines]
    out, at = list(lines), 0
    while at < len(lines):
        end = at
        while end < len(lines) and found[end] is not None:
            end += 1
        alike = name in _COUNTING or len({mark[0] for mark in found[at:end] if mark is not None}) < max(end - at, 2)
        if alike and end - at >= min(_RUN, len(lines)):
            for n in range(at, end):
                if (mark := found[n]) is not None:
                    out[n] = mark.expand(kept) + lines[n][mark.end() :]
        at = max(end, at + 1)
    return out


def _whole(lines: Sequence[str]) -> list[str]:
    """The lines that a terminal broke at its last column, or a mail program between words, in one."""
    out = list(lines)
    for begin, end in _paragraphs(lines):
        width = max(map(len, lines[begin:end]))
        if not _LEAST_WIDTH <= width <= _MOST_WIDTH:
            continue
        breaks = range(begin, end - 1)
        cut = [n for n in breaks if len(lines[n]) == width and _goes_on(lines[n], lines[n + 1])]
        if len(cut) < _FEWEST and width not in _TERMINALS:
            cut = []
        soft = [n for n in breaks if _is_full(lines[n], lines[n + 1], width)]
        joints = dict.fromkeys(soft, " ") if len(soft) >= _FEWEST else {}
        for n, joint in sorted({**joints, **dict.fromkeys(cut, "")}.items()):
            if len(out[n]) < _LONGEST:
                out[n], out[n + 1] = "", out[n] + joint + out[n + 1]
    return out


def _paragraphs(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Runs of lines that are not blank."""
    begin = None
    for n, line in enumerate((*lines, "")):
        if line.strip():
            begin = n if begin is None else begin
        elif begin is not None:
            yield begin, n
            begin = None


def _goes_on(line: str, following: str) -> bool:
    """Whether a line of full width goes on in the next: neither is a row of a table or begins like the other, and it
    does not end as a shell's line does that goes on below.
    """
    ends = line.rstrip().endswith("\\") or _RE["row"].search(line) is not None
    if ends or _RE["begins"].match(following) is not None:
        return False
    return _RE["digits"].sub("", line[:12]) != _RE["digits"].sub("", following[:12])


def _is_full(line: str, following: str, width: int) -> bool:
    """Whether words stop where the next one had no room, and go on in the next line."""
    word = following.split(" ", 1)[0]
    return (
        len(line) + 1 + len(word) > width
        and _RE["goes_on"].match(following) is not None
        and _RE["wordless"].search(line) is None
        and _goes_on(line, following)
    )
