"""oomdoc's own Markdown, read into blocks and spans, so that each platform's dialect can be written from them.

Only what :mod:`oomdoc.report.markdown` writes is understood; anything else is plain text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal

from oomkb.dataclass import dataclass

Kind = Literal["heading", "text", "item", "code", "table"]
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#|~])")
_UNESCAPE: Final = re.compile(r"\\([\\`*_\[\]<>#|~])")
_SPAN: Final = re.compile(
    r"(?P<escape>\\[\\`*_\[\]<>#|~])"
    r"|\*\*(?P<bold>[^*\n]{1,400})\*\*"
    r"|`(?P<code>[^`\n]{1,400})`"
    r"|\[(?P<label>(?:[^\[\]\\\n]|\\.){1,400})\]\((?P<url>https://[^\s()]{1,500})\)"
)
_FENCE: Final = re.compile(r"(`{3,12})(\w{0,20})\s*")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of text of one look."""

    text: str
    look: Literal["plain", "bold", "code", "link"] = "plain"
    url: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A heading, a paragraph, a list item, code (``language`` named) or a table's lines."""

    kind: Kind
    spans: tuple[Span, ...] = ()
    code: str = ""
    language: str = ""

    @property
    def plain(self) -> str:
        """The text without looks."""
        return self.code if self.kind in ("code", "table") else "".join(s.text for s in self.spans)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a platform writes things; ``escape`` must leave nothing that the platform would act on."""

    escape: Callable[[str], str]
    bold: str = "**{}**"
    heading: str = "**{}**"
    link: Callable[[str, str], str] = "[{}]({})".format
    item: str = "- "
    fence_language: bool = True


def escaped(text: str) -> str:
    """Plain text as Markdown that shows it literally."""
    return _SPECIAL.sub(r"\\\1", text)


def blocks(markdown: str) -> tuple[Block, ...]:
    """Read Markdown."""
    found: list[Block] = []
    lines = markdown.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        fence = _FENCE.fullmatch(line)
        if fence:
            end = next((i for i in range(at + 1, len(lines)) if lines[i].rstrip() == fence[1]), len(lines))
            found.append(Block("code", code="\n".join(lines[at + 1 : end]), language=fence[2]))
            at = end + 1
        elif line.startswith("|"):
            end = next((i for i in range(at, len(lines)) if not lines[i].startswith("|")), len(lines))
            found.append(Block("table", code=_table(lines[at:end])))
            at = end
        else:
            if line.strip():
                found.append(_line(line))
            at += 1
    return tuple(found)


def _line(line: str) -> Block:
    head = line.lstrip("#")
    if head != line and head.startswith(" ") and len(line) - len(head) <= 6:
        return Block("heading", _spans(head.strip()))
    if line.startswith("- "):
        return Block("item", _spans(line[2:]))
    return Block("text", _spans(line))


def _spans(text: str) -> tuple[Span, ...]:
    spans: list[Span] = []
    plain: list[str] = []
    at = 0
    for match in _SPAN.finditer(text):
        plain.append(text[at : match.start()])
        at = match.end()
        if match["escape"]:
            plain.append(match["escape"][1])
            continue
        _flush(plain, spans)
        if match["bold"] is not None:
            spans.append(Span(_UNESCAPE.sub(r"\1", match["bold"]), "bold"))
        elif match["code"] is not None:
            spans.append(Span(match["code"], "code"))
        else:
            spans.append(Span(_UNESCAPE.sub(r"\1", match["label"]), "link", match["url"]))
    plain.append(text[at:])
    _flush(plain, spans)
    return tuple(spans)


def _flush(plain: list[str], spans: list[Span]) -> None:
    text = "".join(plain)
    plain.clear()
    if text:
        spans.append(Span(text))


def _table(rows: list[str]) -> str:
    """Columns in line, for the platforms that have no tables."""
    cells = [
        [_cell(c) for c in re.split(r"(?<!\\)\|", row.strip().strip("|"))] for row in rows if set(row) - set("|-: ")
    ]
    widths = [
        max((_width(r[i]) for r in cells if i < len(r)), default=0) for i in range(max(map(len, cells), default=0))
    ]
    shown = ["  ".join(c + " " * (widths[i] - _width(c)) for i, c in enumerate(row)).rstrip() for row in cells]
    return "\n".join(row for row in shown if row)


def _cell(text: str) -> str:
    return _UNESCAPE.sub(r"\1", text.strip().replace("**", ""))


def _width(text: str) -> int:
    """Columns on a screen: Chinese characters take two."""
    return sum(2 if "⺀" <= c <= "￠" else 1 for c in text)


def pieces(markdown: str, dialect: Dialect) -> list[tuple[str, str, bool]]:
    """Each block as ``(written in the dialect, as plain text in it, whether it is code)``."""
    made = []
    for block in blocks(markdown):
        if block.kind in ("code", "table"):
            made.append((_code(block, dialect), dialect.escape(block.code), True))
            continue
        prefix = dialect.item if block.kind == "item" else ""
        text = "".join(_written(span, dialect, heading=block.kind == "heading") for span in block.spans)
        shown = dialect.heading.format(text) if block.kind == "heading" else prefix + text
        made.append((shown, prefix + dialect.escape(block.plain), False))
    return made


def _written(span: Span, dialect: Dialect, *, heading: bool) -> str:
    text = dialect.escape(span.text)
    if span.look == "code":
        return f"`{text}`"
    if span.look == "link":
        return dialect.link(text, span.url)
    return dialect.bold.format(text) if span.look == "bold" and not heading else text


def _code(block: Block, dialect: Dialect) -> str:
    # A fence inside the code would end it early: a zero-width space keeps it apart.
    inside = dialect.escape(block.code).replace("```", "`\u200b``")
    return f"```{block.language if dialect.fence_language else ''}\n{inside}\n```"
