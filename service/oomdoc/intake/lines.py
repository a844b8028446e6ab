"""Text into lines without the clutter that launchers put before them.

Every rank, worker and pod may print into one stream. A line's *tag* says which one wrote it, so that the parts of
one traceback can be put together again after several of them were interleaved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from oomdoc.evidence import Source, Span
from oomdoc.intake.configs.segments import form_of
from oomdoc.intake.patterns import patterns

Kind = Literal["prose", "log", "command", "config", "code", "blank"]

_SEEN: Final = 800
"""Characters of a line that tell its kind."""


_COMMENT: Final = ("#", "//", ";")
_CONFIGS: Final = frozenset({"yaml", "json", "toml", "shell", "python"})


def is_config_file(source: Source) -> bool:
    """Whether a source is a configuration, a launch script or code by its name, with no program's output in it.

    What it says in comments, keys and labels is no evidence of what happened.
    """
    return form_of(source.name) in _CONFIGS and _RE["output"].search(source.text) is None


def is_comment(line: Line) -> bool:
    """Whether a line of a configuration is a comment."""
    return line.text.lstrip().startswith(_COMMENT)


def kinds_of(lines: Sequence[Line]) -> list[Kind]:
    """One kind per line; continuation lines of a command belong to it."""
    out: list[Kind] = []
    continued = False
    for line in lines:
        kind = "command" if continued and line.text.strip() else _kind(line)
        continued = line.text.rstrip().endswith("\\") and kind in ("command", "prose", "config")
        if continued and kind != "command" and _RE["flag"].search(line.text):
            kind = "command"
        out.append(kind)
    return out


def _kind(line: Line) -> Kind:
    text = line.text[:_SEEN]
    if not text.strip() or _RE["template"].fullmatch(text) is not None:
        return "blank"
    if line.logged or _RE["log"].match(text):
        return "log"
    # Of a program that a sentence begins with something is told: "megatron 开了 recompute 反向反而 OOM".
    told = _RE["chinese"].search(text) and not _RE["flag"].search(text) and "#" not in text
    many = text.count("-") >= 3 and len(_RE["flag"].findall(text[:600])) >= 3
    if many or (_RE["command"].match(text) and not told):
        return "command"
    if (":" in text or "=" in text) and _RE["config"].match(text):
        return "config"
    if _RE["code"].match(text):
        return "code"
    if _RE["log_anywhere"].search(text) or len(line.text) > 3000:
        return "log" if not (_RE["sentence"].search(text) and len(text) < 300 and _RE["said"].match(text)) else "prose"
    return "prose"


_RE: Final = patterns(__file__)
_MAX_CHARS: Final = 4000
"""Characters of a line that are looked at: longer ones are dumps (base64, token ids), not messages."""


class Line(NamedTuple):
    """One line: ``text`` without prefixes, ``raw`` as it stands, ``tag`` the writer (rank or worker)."""

    source: str
    number: int
    text: str
    raw: str
    tag: str = ""
    rank: int | None = None
    logged: bool = False
    """Whether a logger's prefix stood before the text: such a line is not prose. Who passed it on tells of no kind."""
    low: str = ""
    """``raw`` in lower case."""

    def span(self, column: int = 1) -> Span:
        """The place of this line."""
        return Span(self.source, self.number, column, self.raw.strip()[:300])


def distinct(lines: Iterable[Line], *, repeats: int = 3, characters: int = 100_000) -> list[Line]:
    """Lines without those that differ from ``repeats`` earlier ones in digits only: step after step says one thing.

    At most so many characters: what is said about a job is said early, and work on untrusted text is bounded.
    """
    given = lines if isinstance(lines, Sequence) else list(lines)
    seen: dict[str, int] = {}
    out: list[Line] = []
    for line, whole in zip(given, _without_digits(given), strict=True):
        shape = whole[:120]
        count = seen.get(shape, 0)
        if count < repeats:
            seen[shape] = count + 1
            out.append(line)
            characters -= len(line.text)
            if characters < 0:
                break
    return out


def _without_digits(lines: Sequence[Line]) -> list[str]:
    """The texts without their digits; all at once, because that is what bytes are quick at."""
    joined = "\n".join([line.text for line in lines]).encode("utf-8", "surrogatepass")
    return joined.translate(None, b"0123456789").decode("utf-8", "surrogatepass").split("\n") if lines else []


def read_lines(source: Source) -> Iterator[Line]:
    """Lines of a source, numbered from 1; carriage returns of progress bars separate lines too."""
    for number, physical in enumerate(source.text.split("\n"), start=1):
        for piece in physical.split("\r"):
            raw = piece[:_MAX_CHARS]
            if raw or physical == "":
                yield _line(source.name, number, raw)


def _line(source: str, number: int, raw: str) -> Line:
    """Peel prefixes in the order in which launchers, engines and loggers put them on."""
    if _RE["prefix"].match(raw) is None:
        return Line(source, number, raw, raw, low=raw.lower())
    text, tag, rank, logged, peeled = raw, "", None, False, False
    for _ in range(6):
        if peeled and _RE["later"].match(text) is None and ".py:" not in text:
            break
        before, first = text, text[:12].lstrip()[:1]
        if first == "(" and (found := _RE["worker"].match(text)) is not None:
            tag += found[0].strip()
            inner = _RE["rank_in_worker"].search(found[0])
            rank = int(inner[1]) if inner and rank is None else rank
            text, peeled = text[found.end() :], True
        elif first in "[drR" and (found := _RE["rank"].match(text)) is not None:
            rank, tag = int(found["rank"]), tag + found[0].strip()
            text, peeled = text[found.end() :], True
        elif (
            ((first == "[" or first.isdigit() or not peeled) and (found := _RE["stamp"].match(text)) is not None)
            or (peeled and (found := _RE["level"].match(text) or _RE["place"].match(text)) is not None)
            or (number and (found := _RE["level"].match(text)) is not None and _RE["level_starts"].match(text))
        ):
            text, logged, peeled = text[found.end() :], True, True
        if text is before or text == before:
            break
    return Line(source, number, text, raw, tag, rank, logged, raw.lower())
