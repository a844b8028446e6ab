"""The phase of the root failure: what its message, its traceback, the prose, the log before it say, in this order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from oomdoc.evidence import Fact, Failure, Frame, Signal, Span, Statement
from oomdoc.intake.lines import Kind, Line
from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import went_well
from oomdoc.intake.sieve import Expression
from oomdoc.intake.tracebacks import Placed
from oomkb.kept import lazy
from oomkb.tables import read_toml
from oomkb.units import GIB

_RE: Final = patterns(__file__)
_I: Final = re.IGNORECASE | re.ASCII
_LAST: Final = 60
_INNERMOST: Final = 4


@cache
def sections() -> Mapping[str, Any]:
    """The table, by section."""
    return read_toml(Path(__file__).with_name("phases.toml"))


@cache
def phase_table(section: str) -> tuple[tuple[str, Expression], ...]:
    """Phases and what shows them, of one section of the table."""
    return tuple((phase, Expression("|".join(parts), _I)) for phase, parts in sections()[section].items())


def scores_rollouts(frames: Sequence[Frame]) -> bool:
    """Whether a traceback goes through a pass for log-probabilities, which keeps nothing for gradients."""
    return any(_SCORES.search(frame.function) for frame in frames)


_SCORES: Final = lazy(r"compute_(?:ref_)?log_?probs?\b|make_experience")


def text_of(frame: Frame) -> str:
    """What a frame is matched by."""
    return f"{frame.file} {frame.function} {frame.code}"


def phase_of_frames(frames: Sequence[Frame]) -> str | None:
    """The phase that a traceback (outermost frame first) shows; ``None`` where no frame tells."""
    texts = [text_of(frame) for frame in frames]
    lows = [text.lower() for text in texts]
    inner = dict(phase_table("inner"))
    innermost = None
    for text, low in zip(texts, lows, strict=True):
        if _shows(inner["forward-only"], text, low):
            innermost = "forward"
        elif _shows(inner["loss"], text, low):
            innermost = "loss"
        elif _shows(inner["forward"], text, low):
            innermost = "forward"
    moved = any(_shows(inner["moved"], text, low) for text, low in zip(texts[-2:], lows[-2:], strict=True))
    moved = moved and innermost is None
    for phase, pattern in phase_table("frames"):
        at = [n for n, (text, low) in enumerate(zip(texts, lows, strict=True)) if _shows(pattern, text, low)]
        if not at or (phase == "load" and innermost is not None and at[-1] < len(texts) - _INNERMOST):
            continue
        return phase
    if moved:
        return "load"
    whole, asked = (any(map(_shows, repeat(inner[name]), texts, lows)) for name in ("unsharded", "summoned"))
    return "save" if whole and not asked else innermost


def _shows(pattern: Expression, text: str, low: str) -> bool:
    return pattern.may_match(low) and pattern.search(text) is not None


def phase_of_log(lines: Sequence[str]) -> tuple[str, bool] | None:
    """The phase of the last log line before the failure that names one, and whether it says that the phase begins."""
    last = lines[-_LAST:]
    whole = "\n".join(last).lower()
    patterns = [(phase, pattern) for phase, pattern in phase_table("log") if pattern.may_match(whole)]
    for text in reversed(last) if patterns else ():
        low = text.lower()
        for phase, pattern in patterns:
            if _shows(pattern, text, low):
                return phase, _RE["begins"].search(text) is not None
    return None


_MAX_TEXT: Final = 10_000
_MAX_DISTANCE_CHARS: Final = 60
"""Characters between the words of a phase and those of a failure beyond which they are not of each other."""


def phase_of_prose(text: str, *, engine: bool = True) -> str | None:
    """The phase whose words stand nearest to those of a failure, said with "when", "during", "时" before all others.

    :param engine: whether an engine may be what fails: "when eval starts" is not, where none is named.
    """
    best: tuple[float, str] | None = None
    for sentence in _RE["sentence"].split(text[:_MAX_TEXT]):
        if sentence is None:
            continue
        for weight, phase in _of_sentence(_RE["arguments"].sub("()", sentence[:600])):
            if (engine or phase != "engine-init") and (best is None or weight > best[0]):
                best = (weight, phase)
    return best[1] if best is not None and best[0] >= _LEAST else None


_LEAST: Final = 0.3


def _of_sentence(sentence: str) -> Iterator[tuple[float, str]]:
    fails = [m.span() for m in _RE["fails"].finditer(sentence)]
    if not fails:
        return
    for rank, (phase, pattern) in enumerate(phase_table("prose")):
        for found in pattern.finditer(sentence):
            start, end = found.span()
            distance = min(max(start - stop, begin - end, 0) for begin, stop in fails)
            if (
                distance > 2 * _MAX_DISTANCE_CHARS
                or _RE["before"].search(sentence[:start])
                or _RE["absent"].search(sentence[max(0, start - 16) : start])
                or went_well(sentence[end : end + 16])
            ):
                continue
            timed = (
                _RE["at"].search(sentence[max(0, start - 40) : start]) is not None
                or _RE["after"].match(sentence, end) is not None
            )
            if timed or distance <= _MAX_DISTANCE_CHARS:
                yield (2.0 if timed else 1.0) - distance / 100 - rank / 1000, phase


def phase_of_program(text: str) -> str | None:
    """The phase of a program that does nothing else, by its name; of a pasted script that only loads a model."""
    text = text[:_MAX_TEXT]
    for phase, pattern in phase_table("program"):
        if pattern.search(text):
            return phase
    return "load" if "from_pretrained(" in text and not _RE["worked_on"].search(text) else None


_FP32: Final = 4
_TOLERANCE: Final = 0.004
"""Share by which a size may differ: messages have two decimals, and partitions are padded."""
_RANKS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32, 48, 64)
"""Numbers of cards that are tried where none is stated: those of one machine, and whole machines of eight."""
_SMALLEST_GIB: Final = 1.0
"""Below it a tensor of a forward pass is of any size, and one of these by chance."""


def is_partition(facts: Mapping[str, Fact]) -> bool:
    """Whether what was asked for is a rank's part of the fp32 parameters of the model that is named.

    ZeRO-1 and -2 flatten the parameters and give every rank ``4 × parameters / ranks`` bytes of them in fp32 (the
    master weights, then each Adam state) before the first step (``deepspeed/runtime/zero/stage_1_and_2.py``,
    ``__init__`` and ``initialize_optimizer_states``). No tensor of a forward pass is of that size but by chance.
    """
    asked, model, ranks = (_stated(facts, name) for name in ("tried_gib", "model", "gpu_count"))
    if not isinstance(asked, int | float) or asked < _SMALLEST_GIB or not isinstance(model, str):
        return False
    if _stated(facts, "method") in ("lora", "qlora") or _stated(facts, "objective") == "inference":
        return False
    from oomkb.catalog import models

    entry = models.find(model)
    if entry is None or not entry.params:
        return False
    counts = [ranks] if isinstance(ranks, int) and ranks > 0 else list(_RANKS)
    return any(abs(asked * GIB * n / (_FP32 * entry.params) - 1) < _TOLERANCE for n in counts)


def _stated(facts: Mapping[str, Fact], name: str) -> object:
    fact = facts.get(name)
    return fact.value if fact is not None and fact.stated else None


OF_STATEMENT: Final[Mapping[str, str]] = {
    "fails-while-loading": "load",
    "fails-while-preprocessing": "load",
    "fails-in-backward": "backward",
    "fails-at-optimizer-step": "optimizer-step",
    "fails-while-evaluating": "eval",
    "fails-while-saving": "save",
    "fails-while-merging": "save",
    "fails-when-resuming": "load",
    "fails-while-generating": "generate",
    "fails-at-weight-sync": "weight-sync",
    "fails-at-server-start": "engine-init",
    "fails-under-load": "generate",
    "fails-at-compile-or-capture": "engine-init",
}
"""Statement (``intake/statements``) -> the phase in which it says that the job fails."""
_GUESSED, _UNKNOWN = 0.45, 0.2
"""Confidence of a phase that only circumstances suggest (an engine, the last phase logged, a program's name): of those
two in five are wrong, so it is a hint and never stated."""
_FETCHES: Final = frozenset({"access-denied", "download-failed"})
"""Failures that a model's files meet before they are read."""
_BEGUN: Final = 0.75
"""Of a phase whose beginning is the last thing that a program logged of its memory: DeepSpeed's ``Before ...``."""
_REACH: Final = 150
"""Lines between a frame and the message that ends its traceback."""
_BETWEEN_FRAMES: Final = 12
"""Lines of one writer between the frames of one traceback."""
_QUOTED: Final = 3
"""Lines before a message that is quoted first, with its log after it."""
_STARTS: Final = ("vllm-kv-cache-too-small", "vllm-no-cache-blocks", "vllm-profile", "vllm-sampler-warmup")


def frames_of(index: int, lines: Sequence[Line], placed: Sequence[Placed]) -> tuple[Frame, ...]:
    """The frames of the traceback that ends at a failing line: same writer, nearest before (else right after).

    Code lines right above the message count too: logs and quotes often keep only those.
    """
    line = lines[index]
    before = [p for p in placed if p.index <= index and index - p.index <= _REACH and p.tag == line.tag]
    if not before:
        before = [p for p in placed if 0 <= p.index - index <= 60 and p.tag == line.tag]
    chain: list[Placed] = []
    for place in reversed(before):
        if chain and chain[-1].own - place.own > _BETWEEN_FRAMES:
            break
        chain.append(place)
    frames = [p.frame for p in reversed(chain)]
    last = chain[0].index if chain else -1
    for at in range(index - 1, max(last + 1, index - 5, -1), -1):
        text = lines[at].text
        if not text.strip() or lines[at].tag != line.tag or len(text) > 300 or "Error" in text:
            break
        if _RE["code"].match(text):
            frames.insert(len(chain), Frame("", "", lines[at].span(), None, text.strip()[:200]))
    return tuple(frames)


_SAID_LEAST: Final = 0.6
"""Probability from which a statement names the phase."""


def phase_said(statements: Sequence[Statement]) -> str | None:
    """The phase that the surest statement names, if any is sure enough."""
    named = [s for s in statements if s.name in OF_STATEMENT and s.probability >= _SAID_LEAST]
    return OF_STATEMENT[max(named, key=lambda s: s.probability).name] if named else None


def phase_fact(
    lines: Sequence[Line],
    kinds: Sequence[Kind],
    placed: Sequence[Placed],
    root: tuple[int, Failure] | None,
    signals: Sequence[Signal],
    facts: Mapping[str, Fact],
    said: str | None = None,
) -> Fact:
    """The fact ``phase``; ``unknown`` where nothing tells.

    :param facts: the other facts, for what the numbers leave possible.
    :param said: the phase that the statements name (:data:`OF_STATEMENT`), where they are read.
    """
    aim = facts.get("objective")
    objective = aim.value if aim is not None and aim.stated else None
    failure = root[1] if root is not None else None
    span = failure.signal.span if failure is not None else (lines[0].span() if lines else Span("input", 1))
    if failure is not None and failure.phase != "unknown":
        return Fact("phase", failure.phase, span, "log", 0.95)
    prose = "\n".join(t.text for t, kind in zip(lines, kinds, strict=True) if kind in ("prose", "code", "config"))
    engine = _Engine(lines, kinds, signals) if objective in (None, "inference") else None
    stated = phase_of_prose(prose, engine=engine is not None and engine.named) or said
    frames = failure.frames if failure is not None and failure.frames else tuple(p.frame for p in placed)
    shown = phase_of_frames(frames) if frames else None
    serving = engine is not None and engine.named and objective == "inference"
    if shown is not None:
        return Fact("phase", _of_pass(shown, stated, engine if serving else None), frames[-1].span, "log", 0.95)
    if serving and engine is not None and engine.starting:
        return Fact("phase", engine.phase(stated), span, "log", 0.9)
    if serving and engine is not None and stated in (None, "load", "forward", "engine-init", "generate"):
        return Fact("phase", engine.phase(stated), span, "prose", _GUESSED)
    if stated is not None:
        return Fact("phase", stated, span, "prose", 0.75)
    logged = _logged(lines, kinds, root)
    if logged is not None and logged[1]:
        return Fact("phase", logged[0], span, "log", _BEGUN)
    if logged is not None and (logged[0] != "engine-init" or objective in (None, "inference")):
        return Fact("phase", logged[0], span, "log", _GUESSED)
    fetches = failure is not None and failure.signal.name in _FETCHES
    if failure is not None and (fetches or _refused(failure)):
        return Fact("phase", "load", span, "log", 0.55)
    if is_partition(facts):
        return Fact("phase", "optimizer-init", span, "log", 0.6)
    ordered = "\n".join(t.text for t, kind in zip(lines, kinds, strict=True) if kind not in ("log", "blank"))
    program = phase_of_program(ordered)
    return Fact("phase", program or "unknown", span, "prose", _GUESSED if program is not None else _UNKNOWN)


def _refused(failure: Failure) -> bool:
    """A small request refused on a GPU that is mostly empty: the driver cannot back it with host memory.

    This meets weights on their way to the GPU (WSL, Windows, containers with little RAM), not a step.
    """
    free, capacity, requested = failure.free_bytes, failure.capacity_bytes, failure.requested_bytes
    return bool(free and capacity and requested and free > 0.4 * capacity and requested < min(GIB, free / 8))


def _of_pass(shown: str, stated: str | None, engine: _Engine | None) -> str:
    """What frames show, made more exact by what is said of the pass or the engine."""
    if engine is not None and shown in ("forward", "loss"):
        return engine.phase(stated)
    if shown == "forward" and stated in ("backward", "optimizer-step", "save"):
        return stated  # collectives and plumbing show in every pass
    return stated if stated == "eval" and shown in ("forward", "loss") else shown


class _Engine:
    """An inference engine, as far as the text tells of one."""

    def __init__(self, lines: Sequence[Line], kinds: Sequence[Kind], signals: Sequence[Signal]) -> None:
        text = "\n".join(line.text for line in lines[:4000])[:60_000]
        said = "\n".join(t.text for t, kind in zip(lines, kinds, strict=True) if kind in ("prose", "log"))
        self.named = _RE["engine"].search(text) is not None
        self.served = self.named and _RE["served"].search(said[:20_000]) is not None
        self.starting = any(s.name in _STARTS for s in signals) or _RE["not_started"].search(text) is not None

    def phase(self, stated: str | None) -> str:
        """An engine fails while it starts, unless it is said that it served."""
        if self.starting or not (stated == "generate" or self.served):
            return "load" if stated == "load" and not self.starting else "engine-init"
        return "generate"


def _logged(lines: Sequence[Line], kinds: Sequence[Kind], root: tuple[int, Failure] | None) -> tuple[str, bool] | None:
    """The phase that was logged last before the failure; of a report that begins with its message, after it."""
    at = root[0] if root is not None else len(lines)
    logged = [line.text for line, kind in zip(lines[:at], kinds[:at], strict=True) if kind in ("log", "prose")]
    logged += [lines[at].text] if root is not None else []
    later = [line.text for line, kind in zip(lines[at:], kinds[at:], strict=True) if kind == "log"][:60]
    return phase_of_log(logged) or (phase_of_log(later) if at < _QUOTED else None)
