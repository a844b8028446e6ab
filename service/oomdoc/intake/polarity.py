"""Whether what is said happens, is denied, only feared, wished for, over, or said of a run that was fine.

One table of words (``polarity.tsv``) for all readers. Facts come from what failed: "works with batch 1" and "without
gradient checkpointing" hold values too, of other runs, and count only where nothing else is said. A mention of a
failure stands where it is asserted: not where it is denied, supposed, asked about, solved, or somebody else's.
"""

from __future__ import annotations

from typing import Final

from oomdoc.intake.patterns import patterns

_RE: Final = patterns(__file__)


def asks_on(text: str, at: int) -> bool:
    """Whether the sentence that goes on at a place is a question."""
    stop = _RE["ends"].search(text, at)
    return stop is not None and stop[0] in "?？"


def ends_as_question(text: str) -> bool:
    """Whether a text ends with a question mark."""
    return text.rstrip().endswith(("?", "？"))


def with_question_marks(text: str) -> str:
    """The text with a mark behind each line that ends in a question without one, as people type in a chat.

    A line that goes on in the next one, in lower case, ends nowhere.
    """
    unmarked = _RE["unmarked"]
    low, words = unmarked.held_by(text)
    if not words:
        return text
    lines = text.split("\n")
    for n, (line, lowered) in enumerate(zip(lines, low.split("\n"), strict=True)):
        if len(line) > _MAX_CHARACTERS_OF_QUESTION or not any(map(lowered.__contains__, words)):
            continue
        goes_on = n + 1 < len(lines) and lines[n + 1].lstrip()[:1].islower()
        if not goes_on and unmarked.search(line) is not None:
            lines[n] = f"{line.rstrip()}?"
    return "\n".join(lines)


_MAX_CHARACTERS_OF_QUESTION: Final = 600
"""Of a line that is looked at for a question without a mark."""


def expects(text: str) -> bool:
    """Whether a line tells what was expected: what is denied there is what happened."""
    return _RE["expected"].search(text[:200]) is not None


def clause(text: str, start: int, end: int) -> str:
    """The clause around ``text[start:end]``, at most 200 characters."""
    before, after = text[max(0, start - 140) : start], text[end : end + 140]
    if "(" in text or "（" in text:
        before, after = _RE["aside"].sub(" ", before), _RE["aside"].sub(" ", after)
    ends = [m.end() for m in _RE["clause_end"].finditer(before)]
    stop = _RE["clause_end"].search(after)
    return before[ends[-1] if ends else -110 :] + text[start:end] + after[: stop.start() if stop else 90]


def went_well(text: str) -> bool:
    """Whether a stretch of text speaks of a run that did not fail."""
    return _RE["worked"].search(text) is not None


def _fails(text: str) -> bool:
    """Whether a stretch of text speaks of a failure, apart from words for a run that did not fail."""
    return _RE["failed"].search(_RE["worked"].sub(" ", text)) is not None


def doubt(text: str, start: int, end: int) -> float:
    """How much less sure a value is for what its clause says: 0.0, 0.2 for a run that was fine, 0.6 elsewhere."""
    here = clause(text, start, end)
    if _RE["elsewhere"].search(here) or is_need_asked(text, start) or is_left(text, start, end):
        return 0.6
    fine, failed = went_well(here) or _RE["wish"].search(here) is not None, _fails(here)
    if not fine and not failed:
        here = _around(text, start, end)
        fine, failed = went_well(here), _fails(here)
    return 0.2 if fine and not failed else 0.0


def is_left(text: str, start: int, end: int) -> bool:
    """Whether what stands at ``text[start:end]`` is what was moved away from: "from 8 A100 40GB to 4 A100 80GB"."""
    before, after = text[max(0, start - 72) : start], text[end : end + 56]
    return any(_RE[f"from_{n}"].search(before) and _RE[f"to_{n}"].match(after) for n in ("en", "zh"))


def _around(text: str, start: int, end: int) -> str:
    """The sentence around ``text[start:end]``, as far as nothing is set against it; at most 240 characters."""
    before, after = text[max(0, start - 120) : start], text[end : end + 120]
    begun = [m.end() for m in _RE["stop"].finditer(before)]
    stop = _RE["stop"].search(after)
    return before[begun[-1] if begun else 0 :] + text[start:end] + after[: stop.start() if stop else 120]


def denied(text: str, end: int) -> bool:
    """Whether what follows says that it is off, or cannot be had."""
    return _RE["off"].match(text, end, end + 40) is not None


def negated(text: str, start: int) -> bool:
    """Whether a negation stands shortly before."""
    return _RE["not"].search(text[max(0, start - 32) : start]) is not None


def not_given(text: str, start: int) -> bool:
    """Whether the setting at ``start`` is said not to be given: "I cannot pass tensor_parallel_size=8"."""
    return _RE["not_given"].search(text[max(0, start - 48) : start]) is not None


def is_need_asked(text: str, start: int) -> bool:
    """Whether what stands at ``start`` is asked for as a remedy: ``do I need offload?``, ``要不要 offload``.

    What a need is asked of is none: "how much memory do I need to LoRA a 7B?".
    """
    before = text[max(0, start - 80) : start]
    return _RE["needed"].search(before[-48:]) is not None and _RE["how_much"].search(before) is None


def _sentence(text: str, start: int, end: int) -> tuple[int, int]:
    """The bounds of the sentence around ``text[start:end]``, its mark included; at most 300 characters each way."""
    first = max(0, start - 300)
    begins = [m.end() for m in _RE["ends"].finditer(text, first, start)]
    stop = _RE["ends"].search(text, end, end + 300)
    return (begins[-1] if begins else first), (stop.end() if stop else min(len(text), end + 300))


def stands(text: str, start: int, end: int, *, expected: bool = False) -> bool:
    """Whether the mention ``text[start:end]`` says that it happened or happens.

    :param expected: whether it stands under "Expected behavior": what is denied there is what happened.
    """
    first, last = _sentence(text, start, end)
    turns = [m.end() for m in _RE["turns"].finditer(text, first, start)]
    before = text[turns[-1] if turns else first : start]
    turn = _RE["turns"].search(text, end, last)
    after = text[end : turn.start() if turn else last]
    if _RE["denied"].search(before) is not None:
        return expected
    if _RE["supposed"].search(before) or _RE["others"].search(before) or _RE["solved"].match(after):
        return False
    if _RE["asks"].search(text, first, last) is None:
        return True
    pauses = [m.end() for m in _RE["pauses"].finditer(text, first, start)]
    pause = _RE["pauses"].search(text, end, last)
    clause = text[pauses[-1] if pauses else first : pause.start() if pause else last]
    return not (_RE["yes_or_no"].search(clause) and not _RE["asked_about"].search(clause))


def is_hypothetical(sentence: str) -> bool:
    """Whether a sentence asks whether something would be, and tells of nothing that was."""
    return (
        _RE["asks"].search(sentence) is not None
        and _RE["yes_or_no"].search(sentence) is not None
        and _RE["asked_about"].search(sentence) is None
    )


def is_past(text: str, start: int, end: int) -> bool:
    """Whether the sentence tells of an earlier time."""
    first, last = _sentence(text, start, end)
    return _RE["past"].search(text, first, last) is not None


def inside_a_name(text: str, start: int, end: int) -> bool:
    """Whether the mention is a part of an option, a path or a file's name: ``--oom-score``, ``run_oom.sh``."""
    found = text[start:end]
    if found[:1] > "\x7f":
        return False
    dotted = found.lower().startswith("outofmemory")
    before = text[max(0, start - 1) : start]
    return bool(_RE["named_before"].match(before) and not (dotted and before == ".")) or bool(
        _RE["named_after"].match(text, end, end + 2) and found[-1:].isascii() and not dotted
    )
