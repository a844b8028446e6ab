"""What happened: one answer for a text, before any cause is looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Final

from oomdoc.evidence import Failure, Outcome, Signal
from oomdoc.intake.lines import Kind, Line
from oomdoc.intake.outcomes.rows import Memory, Order, Row, row_of, rows
from oomdoc.intake.patterns import patterns
from oomdoc.intake.phase import phase_of_frames
from oomdoc.intake.polarity import asks_on, expects, inside_a_name, is_past, stands
from oomdoc.intake.sieve import Sieve, Vocabulary
from oomdoc.intake.tracebacks import Placed
from oomkb.catalog import gpus
from oomkb.dataclass import dataclass

MAX_TRIED: Final = 200
"""Lines that one row is tried on: the first ones say what happened."""
_MAX_SAID_ROWS: Final = 4
"""Statements of one kind that are kept; of any other kind the first tells all."""
MAX_CHARS: Final = 2000
"""Characters of a line that are looked at."""
_IGNORED: Final = "exception ignored in"
"""What Python prints before an error in a finaliser: that of an object which another error left half made."""
_NAMELIKE: Final = ("oom", "out")
"""How mentions begin that options, paths and functions may be named after."""
_CONFIDENCE: Final[Mapping[Order, float]] = {"root": 0.95, "follows": 0.75, "generic": 0.7, "unnamed": 0.3}
"""How sure the name of a failure that is not memory is, by its row's order; below 0.5 it is no more than trouble."""

NAMED: Final = 0.5
"""Confidence from which the name of a failure that is not memory counts; below, nothing tells what failed."""

Indexed = tuple[int, Failure]
_WHOSE: Final = 5
"""Characters before words for memory that may say whose it is."""


_QUOTES: Final = "\"'“”‘’「」`"


@dataclass(frozen=True, slots=True)
class _Hit:
    """A row that a line matches, and where."""

    row: Row
    index: int
    line: Line
    start: int
    text: str
    """What matched."""
    past: bool = False
    printed: bool = True
    """Whether a program wrote the line."""

    @property
    def memory(self) -> Memory | None:
        """Which memory it speaks of: what grows or is too much is the host's where the host's memory is named."""
        named = self.row.memory
        if named == "device":
            of = self.line.text[max(0, self.start - _WHOSE) : self.start]  # "CPU" before "memory not enough"
            whose = self.row.kind == "said" and self.text[:1].isalpha()
            named = memory_named(f"{of}{self.text}" if whose else self.text)
        loosely = named == "host" and self.row.kind == "said" and _says_ram_of_a_card(self.text, self.line)
        return "device" if loosely else named

    @property
    def is_quoted(self) -> bool:
        """Whether only what matched stands in quotation marks: somebody speaks of a line, of a log that goes on."""
        before, behind = self.line.text[: self.start][-1:], self.line.text[self.start + len(self.text) :][:1]
        return before in _QUOTES and behind in _QUOTES and bool(before)

    def outcome(self) -> Outcome:
        sure = _CONFIDENCE[self.row.order] if self.row.kind == "other" else 0.9
        return Outcome(self.row.kind, self.row.id, self.line.span(self.start + 1), self.memory, sure, self.printed)


def outcome_of(
    lines: Sequence[Line],
    kinds: Sequence[Kind],
    failures: Sequence[Indexed],
    signals: Sequence[Signal],
    placed: Sequence[Placed],
    words: Vocabulary,
) -> tuple[Outcome | None, tuple[Outcome, ...]]:
    """What happened, and the other failures that were seen.

    A message of memory explains everything beside it, except that a process that was merely killed explains less than
    another failure that is named. What is only said explains less than another failure of the same time that is named.

    :param failures: what the parsers read, consequences marked (``cascade``).
    """
    seen = [(i, f) for i, f in failures if not f.cascade and f.kind != "other"]
    hits = list(_hits(lines, kinds, words, frozenset(i for i, f in seen if _row_of(f).order == "root")))
    others = sorted((h for h in hits if h.row.kind == "other"), key=_earlier)
    named = [h for h in others if h.row.order == "root"]
    printed = named or [h for h in others if h.row.order == "follows" and h.printed]
    strong = [_of_failure(f) for _, f in seen if _row_of(f).order == "root"]
    weak = [_of_failure(f) for _, f in seen if _row_of(f).order != "root"]
    covered = frozenset(h.index for h in named if kinds[h.index] != "prose")
    said = [
        h
        for h in hits
        if h.row.kind == "said"
        and h.index not in covered
        and not (printed and asks_on(h.line.text, h.start))  # "is that OOM?" of what is named
        and not (h.is_quoted and any(other.row.kind == "healthy" and other.printed for other in hits))
    ]
    present = _by_memory([h for h in said if not (h.past and others and others[0].row.order != "unnamed")])
    told_of = [h.outcome() for h in others]
    quoted = all(kinds[i] == "prose" for i, _ in seen)
    if quoted and not named and (over := _over(hits, kinds)) is not None:
        return over.outcome(), ()
    if strong:
        ranked = [*strong, *weak, *told_of]
    elif named:
        ranked = [*present, *told_of, *weak] if present and not _printed(named, kinds) else [*told_of, *weak, *present]
    else:
        ranked = [*weak, *present, *told_of]
    only_trouble = all(o.kind == "other" and o.confidence < NAMED for o in ranked)
    if only_trouble and (likely := _cut_traceback(placed)) is not None:
        ranked = [likely, *ranked]
    if ranked:
        return ranked[0], _distinct(ranked)
    return _nothing_failed(lines, kinds, hits, signals), ()


def _earlier(hit: _Hit) -> tuple[int, int, bool, int]:
    """The surer name first, then the earlier line; on one line what names more than that a program failed."""
    return _RANK[hit.row.order], hit.index, hit.row.id == "program-error", hit.start


def _over(hits: Sequence[_Hit], kinds: Sequence[Kind]) -> _Hit | None:
    """Where a person says that the failure is over, and tells of none after that."""
    over = next((h for h in hits if h.row.id == "solved" and kinds[h.index] == "prose"), None)
    if over is None or any(h.row.kind == "said" and h.index > over.index for h in hits):
        return None
    return None if _RE["goes_on"].match(over.line.text, over.start + len(over.text)) else over


def memory_named(text: str) -> Memory:
    """The host's memory where it is named and the card's is not."""
    if _RE["of_host_memory"].search(text) and not _RE["of_card_memory"].search(text):
        return "host"
    return "host" if _RE["of_host"].search(text) and not _RE["of_card"].search(text) else "device"


def _says_ram_of_a_card(text: str, line: Line) -> bool:
    """Whether plain "RAM" is the card's: the memory that the line gives is that of a card, and nothing is loaded,
    killed or held by the machine.
    """
    if _RE["plain_ram"].search(text) is None or _RE["of_machine"].search(line.text) is not None:
        return False
    sizes = [found.span() for found in _RE["size"].finditer(line.text)]
    cards = [(one.start, one.end) for one in gpus.find_all(line.text)] if sizes else []
    return any(start - b <= _BESIDE and a - end <= _BESIDE for start, end in sizes for a, b in cards)


_BESIDE: Final = 6
"""Characters between a card and its memory."""


def names_memory(text: str) -> bool:
    """Whether the host's memory or the card's is named."""
    return any(_RE[row].search(text) for row in ("of_host", "of_host_memory", "of_card"))


def is_denied(sentence: str, row: str = "said-device") -> bool:
    """Whether words for a lack of memory are there and all are denied, feared or wished away."""
    mentions = list(row_of(row).matches(sentence))
    return bool(mentions) and not any(stands(sentence, *found.span()) for found in mentions)


def _cut_traceback(placed: Sequence[Placed]) -> Outcome | None:
    """A traceback whose message was not pasted and that shows a phase of a job: most of those are of memory."""
    frames = [p.frame for p in placed[-_MAX_FRAMES:]]
    if not frames or phase_of_frames(frames) is None:
        return None
    return Outcome("device", "cut-traceback", placed[-1].frame.span, "device", 0.6)


_MAX_FRAMES: Final = 40
_RE: Final = patterns(__file__)
_RANK: Final = {"root": 0, "follows": 1, "generic": 2, "unnamed": 3}


_FIRST: Final = {"shared-memory": 0, "host": 1, "device": 2, None: 3}


def _by_memory(said: Sequence[_Hit]) -> list[Outcome]:
    """What is said, the host's memory before the card's; where the card's is named, plain RAM is the card's too."""
    of_card = [h for h in said if h.memory == "device"]
    card = any(_RE["of_card"].search(h.text) or _RE["of_card_memory"].search(h.line.text) for h in of_card)
    weighed = [(card and h.memory == "host" and _is_plain(h.text), _FIRST[h.memory], h.index) for h in said]
    return [h.outcome() for _, h in sorted(zip(weighed, said, strict=True), key=lambda pair: pair[0])]


def _is_plain(text: str) -> bool:
    """Whether only memory is named, without whose it is."""
    return "内存" in text or not _RE["of_host_memory"].search(text)


def _printed(named: Sequence[_Hit], kinds: Sequence[Kind]) -> bool:
    """Whether another failure is printed, where memory is only talked about."""
    return any(
        kinds[h.index] != "prose"
        or h.row.window
        or h.line.logged
        or h.line.tag
        or "Error" in h.line.text
        or _RE["described"].match(h.line.text)
        for h in named
    )


def _distinct(ranked: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """The further ones, each name once."""
    names = {ranked[0].name}
    out = []
    for one in ranked[1:]:
        if one.name not in names and one.confidence >= NAMED:
            names.add(one.name)
            out.append(one)
    return tuple(out)


def _row_of(failure: Failure) -> Row:
    return _by_signal().get(failure.signal.name) or row_of(_REFUSED[failure.kind])


_REFUSED: Final = {
    "device": "device-refused",
    "host": "host-refused",
    "shared-memory": "shared-memory",
    "other": "program-error",
}


@cache
def _by_signal() -> dict[str, Row]:
    return {name: row for row in rows() for name in row.signals}


def _of_failure(failure: Failure) -> Outcome:
    row = _row_of(failure)
    memory = failure.kind if failure.kind != "other" else None
    kind = "engine" if row.kind == "engine" else failure.kind
    return Outcome(kind, failure.signal.name, failure.signal.span, memory, 0.98 if row.order == "root" else 0.85)


@cache
def _sieve() -> Sieve[Row]:
    return Sieve((row.triggers, row) for row in rows() if row.triggers)


def _hits(lines: Sequence[Line], kinds: Sequence[Kind], words: Vocabulary, taken: frozenset[int]) -> Iterator[_Hit]:
    """Every line that shows a row.

    :param taken: lines of which a parser has read a failure of memory: they show nothing else, but that it is over.
    """
    tried: dict[str, int] = {}
    shown: dict[str, int] = {}
    for index, line, found in _sieve().over(lines, words):
        kind = kinds[index]
        if kind == "blank" or (index in taken and kind != "prose") or (index and _IGNORED in lines[index - 1].low):
            continue
        for row in found:
            if (
                (index in taken and row.id != "solved")
                or shown.get(row.id, 0) >= (_MAX_SAID_ROWS if row.kind == "said" else 1)
                or tried.get(row.id, 0) >= MAX_TRIED
            ):
                continue
            tried[row.id] = tried.get(row.id, 0) + 1
            for hit in _on_line(row, index, line, kind, expected=partial(_under_expected, lines, index)):
                shown[row.id] = shown.get(row.id, 0) + 1
                yield hit


def _under_expected(lines: Sequence[Line], index: int) -> bool:
    """Whether the line, or the last one before it that is not blank, says what was expected."""
    before = next((line.text for line in reversed(lines[max(0, index - 3) : index]) if line.text.strip()), "")
    return any(expects(text) for text in (lines[index].text, before))


def _on_line(row: Row, index: int, line: Line, kind: Kind, *, expected: Callable[[], bool]) -> Iterator[_Hit]:
    text = line.text[:MAX_CHARS]
    plain = kind == "prose"
    if kind in ("code", "command", "config") and row.kind != "said" and not _quotes(text):
        return
    for found in row.matches(text):
        start, end = found.span()
        if row.kind == "said":
            if text.lstrip().startswith("#") and kind != "prose":
                return
            if (found[0].lower()[:3] in _NAMELIKE and inside_a_name(text, start, end)) or not stands(
                text, start, end, expected=expected()
            ):
                continue
        elif row.kind == "other" and plain and not stands(text, start, end):
            continue
        elif row.kind == "question" and not plain:
            return
        behind = row.matches(text) if row.id == "said-growth" and not names_memory(found[0]) else ()
        named = next(
            (one for one in behind if one.start() >= end and names_memory(one[0])), found
        )  # "a leak: RAM grows"
        yield _Hit(row, index, line, named.start(), named[0], plain and is_past(text, start, end), not plain)
        return


def _quotes(text: str) -> bool:
    """Whether a line that looks like code or a setting is a message after all: "train.py: error: ...", "X: Error"."""
    return "rror:" in text or "rror(" in text or _RE["described"].match(text) is not None


def is_asserted(failure: Failure, line: Line, kind: Kind) -> bool:
    """Whether a failure that a parser read without any size stands: not where prose or code only mentions it."""
    if kind == "code":
        return _quotes(line.text)
    if kind not in ("prose", "command"):
        return True
    return not is_denied(line.text[:MAX_CHARS], "said-device" if failure.kind == "device" else "said-host")


def failure_of(outcome: Outcome) -> Failure | None:
    """The failure that an outcome stands for where no parser read one: what is said, or what is not memory."""
    if (outcome.kind == "said" or outcome.name == "cut-traceback") and outcome.memory is not None:
        return Failure(kind=outcome.memory, signal=Signal(outcome.name, outcome.span))
    if outcome.kind == "other" and outcome.confidence >= NAMED:
        return Failure(kind="other", signal=Signal(outcome.name, outcome.span))
    return None


def _nothing_failed(
    lines: Sequence[Line], kinds: Sequence[Kind], hits: Sequence[_Hit], signals: Sequence[Signal]
) -> Outcome | None:
    """A log of work that goes on, else a question or a plan; ``None`` of an empty text."""
    healthy = next((h for h in hits if h.row.kind == "healthy"), None)
    if healthy is not None:
        return healthy.outcome()
    prose = {line.number for line, kind in zip(lines, kinds, strict=True) if kind == "prose"}
    progress = next((s for s in signals if s.name == "progress" and s.span.line not in prose), None)
    if progress is not None:
        return Outcome("healthy", "progress", progress.span, None, 0.8)
    first = next((line for line, kind in zip(lines, kinds, strict=True) if kind != "blank"), None)
    if first is None:
        return None
    written = any(kind in ("prose", "config", "command", "code") for kind in kinds)
    if written:
        about = next((h for h in hits if h.row.kind == "question"), None)
        name = "question" if "prose" in kinds else "job"
        return about.outcome() if about is not None else Outcome("question", name, first.span(), None, 0.8)
    return Outcome("healthy", "quiet-log", first.span(), None, 0.6)
