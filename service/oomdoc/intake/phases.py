"""The table of phases (``phases.toml``), and what frames, log lines and named operations say by it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from oomdoc.evidence import Frame
from oomdoc.intake.patterns import patterns
from oomdoc.intake.sieve import Expression
from oomkb.toml_files import read_toml

__all__ = ["all_sections", "phase_of_frames", "phase_of_log", "phase_of_operation", "phase_table", "text_of"]

_I: Final = re.IGNORECASE | re.ASCII
_RE: Final = patterns(__file__)
_NODE: Final = _RE.sieved("node")
_LAST: Final = 60
_INNERMOST: Final = 4


@cache
def _sections() -> Mapping[str, Any]:
    return read_toml(Path(__file__).with_name("phases.toml"))


@cache
def phase_table(section: str) -> tuple[tuple[str, Expression], ...]:
    """Phases and what shows them, of one section of the table."""
    return tuple((phase, Expression("|".join(parts), _I)) for phase, parts in _sections()[section].items())


def all_sections() -> None:
    """Make every expression of the table."""
    for section in _sections():
        phase_table(section)


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
        elif _shows(inner["forward"], text, low) and (innermost is None or not _RE["plumbing"].search(text)):
            innermost = "forward"
    moved = any(_shows(inner["moved"], text, low) for text, low in zip(texts[-2:], lows[-2:], strict=True))
    moved = moved and innermost is None and not any(map(_RE["back"].search, lows))
    for phase, pattern in phase_table("frames"):
        at = [n for n, (text, low) in enumerate(zip(texts, lows, strict=True)) if _shows(pattern, text, low)]
        if not at or (phase == "load" and innermost is not None and at[-1] < len(texts) - _INNERMOST):
            continue
        if phase == "generate" and innermost == "loss" and not any("generate" in t or "sampler" in t for t in texts):
            continue
        if phase == "generate" and moved:
            continue  # a function of that name that puts the model on the card first
        return phase
    return "load" if moved else innermost


def _shows(pattern: Expression, text: str, low: str) -> bool:
    return pattern.may_match(low) and pattern.search(text) is not None


def phase_of_log(lines: Sequence[str]) -> str | None:
    """The phase of the last log line before the failure that names one."""
    last = lines[-_LAST:]
    whole = "\n".join(last).lower()
    patterns = [(phase, pattern) for phase, pattern in phase_table("log") if pattern.may_match(whole)]
    for text in reversed(last) if patterns else ():
        low = text.lower()
        for phase, pattern in patterns:
            if _shows(pattern, text, low):
                return phase
    return None


def phase_of_operation(text: str) -> str | None:
    """The phase of the first operation that is named; ``None`` where none is, or its name does not tell.

    TensorFlow prints ``[[node gradients/h3/attn/truediv_grad/...]]``, XLA ``op_name="jit(train_step)/jvp(Model)/..."``.
    """
    if not _NODE.may_match(text.lower()) or (found := _NODE.search(text)) is None:
        return None
    name = next(filter(None, found.groups()))
    return next((phase for phase, pattern in phase_table("operation") if pattern.search(name)), None)
