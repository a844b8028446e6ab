"""What the comments of configurations and scripts say: the hardware, how it is launched, versions, a question.

They say nothing of what happened: advice and switched-off settings stand in comments, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final

from oomdoc.evidence import Document, Fact, Source
from oomdoc.intake.lines import Line, is_comment
from oomdoc.intake.prose.hardware import read_hardware
from oomdoc.intake.sieve import Vocabulary
from oomkb.kept import lazy

_HARDWARE: Final = frozenset({"gpu", "gpu_count", "capacity_gib"})
_LAUNCHED: Final = frozenset({"gpus", "nodes", "world", "gpu_count"})
_NOTED: Final = 0.7
"""How sure a comment is, beside settings and what is asked."""
_HEAD: Final = 12
"""Lines at the top of a script that say how it is started."""
_MARKER: Final = lazy(r"\A\s*(?:#+|//+|;+|\"{3}|'{3})\s?")
_ASKS: Final = lazy(r"[?？]\W{0,3}\Z|(?:吗|够不够|行不行|能不能跑)\W{0,3}\Z")
_COUNTED: Final = lazy(r"(?i)(?<![\w.])\d{1,4}\s?(?:[x×*]|张|块|卡)\s?")
_STARTS: Final = lazy(
    r"\b(?:torchrun|accelerate launch|deepspeed|tune run|axolotl train|srun|mpirun|num_processes)\b|\bNPROC_PER_NODE="
)
_PINNED: Final = lazy(r"\bpip3? install\b|[\w\]]==\d")


def noted_hardware(lines: Sequence[Line]) -> Iterator[Fact]:
    """The card that the comment at the head of a configuration or one of its settings names, and the ranks that the
    command in it starts.

    :param lines: those of the configuration.
    """
    head = list(takewhile(lambda line: is_comment(line) or not line.text.strip(), lines))
    yield from _of_cards(head)
    settings = [line for line in lines if not is_comment(line)]
    stated = read_hardware(settings, Vocabulary(line.low for line in settings), anywhere=())
    yield from (fact for fact in stated if fact.name == "gpu" and "#" not in fact.span.text[: fact.span.column or None])
    yield from _launched(lines[:_HEAD])


def _of_cards(lines: Sequence[Line]) -> Iterator[Fact]:
    found = [
        f for f in read_hardware(lines, Vocabulary(line.low for line in lines), anywhere=lines) if f.name in _HARDWARE
    ]
    if len({fact.value for fact in found if fact.name == "gpu"}) == 1:
        yield from (replace(fact, confidence=min(fact.confidence, _NOTED)) for fact in found)


def _launched(head: Sequence[Line]) -> Iterator[Fact]:
    """How many processes the command in a script's first comment starts."""
    from oomdoc.intake.configs import read_documents

    for line in head:
        if _STARTS.search(line.text) is None or not (
            is_comment(line) or line.text.lstrip().startswith(("torchrun", "NPROC"))
        ):
            continue
        reading = read_documents(Source("usage.sh", _MARKER.sub("", line.text)))
        facts = [f for f in reading.facts if f.name in _LAUNCHED and isinstance(f.value, int)]
        if facts:
            yield from (replace(fact, span=line.span(), confidence=min(fact.confidence, _NOTED)) for fact in facts)
            return


def notes_a_version(line: Line) -> bool:
    """Whether a line is a comment that says which release is installed."""
    return is_comment(line) and _PINNED.search(line.text) is not None


def without_comments(lines: Sequence[Line], documents: Sequence[Document]) -> tuple[list[Line], list[Fact]]:
    """The lines but for the comments inside configurations and commands, and the cards that those count.

    A comment that asks something is what a person says, and stays as a line of its own.
    """
    within: set[tuple[str, int]] = set()
    for document in documents:
        end = document.first_line + document.text.rstrip("\n").count("\n")
        within |= {(document.source, number) for number in range(document.first_line, end + 1)}
    kept: list[Line] = []
    noted: list[Line] = []
    for line in lines:
        if not (is_comment(line) and (line.source, line.number) in within):
            kept.append(line)
        elif _ASKS.search(line.text):
            kept.append(line._replace(text=_MARKER.sub("", line.text)))
        elif _COUNTED.search(line.text):
            noted.append(line)
    return kept, list(_of_cards(noted))
