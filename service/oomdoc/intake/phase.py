"""The phase of the root failure: what its traceback, the log before it, and the prose say, in this order."""

from __future__ import annotations

from collections.abc import Sequence

from oomdoc.evidence import Fact, Failure, Frame, Span
from oomdoc.intake.kinds import Kind
from oomdoc.intake.lines import Line
from oomdoc.intake.phases import phase_of_frames, phase_of_log, phase_of_prose
from oomdoc.intake.tracebacks import Placed

__all__ = ["frames_of", "phase_fact"]

_REACH = 150
"""Lines between a frame and the message that ends its traceback."""


def frames_of(index: int, line: Line, placed: Sequence[Placed]) -> tuple[Frame, ...]:
    """The frames of the traceback that ends at a failing line: same writer, nearest before (else right after)."""
    before = [p for p in placed if p.index <= index and index - p.index <= _REACH and p.tag == line.tag]
    if not before:
        before = [p for p in placed if 0 <= p.index - index <= 60 and p.tag == line.tag]
    chain: list[Placed] = []
    for place in reversed(before):
        if chain and chain[-1].index - place.index > 12:
            break
        chain.append(place)
    return tuple(p.frame for p in reversed(chain))


def phase_fact(
    lines: Sequence[Line],
    kinds: Sequence[Kind],
    placed: Sequence[Placed],
    root: tuple[int, Failure] | None,
    objective: str | None,
) -> Fact:
    """The fact ``phase``; ``unknown`` where nothing tells."""
    at = root[0] if root is not None else len(lines)
    frames = root[1].frames if root is not None else ()
    if not frames:
        frames = tuple(p.frame for p in placed)
    span = root[1].signal.span if root is not None else (lines[0].span() if lines else Span("input", 1))
    if frames and (phase := phase_of_frames(frames)) is not None:
        return Fact("phase", phase, frames[-1].span, "log", 0.95)
    logged = [line.text for line, kind in zip(lines[:at], kinds[:at], strict=False) if kind in ("log", "code")]
    if root is not None:
        logged.append(lines[root[0]].text)
    prose = "\n".join(line.text for line, kind in zip(lines, kinds, strict=True) if kind in ("prose", "config", "code"))
    told = phase_of_prose(prose)
    if told is not None:
        return Fact("phase", told, span, "prose", 0.75)
    if (phase := phase_of_log(logged)) is not None:
        return Fact("phase", phase, span, "log", 0.7)
    if objective == "inference":
        engine = any(_serves(line.raw) for line in lines)
        return Fact("phase", "engine-init" if engine else "unknown", span, "prose", 0.55)
    return Fact("phase", "unknown", span, "prose", 0.5)


def _serves(text: str) -> bool:
    low = text.lower()
    return any(word in low for word in ("vllm", "sglang", "lmdeploy", "tensorrt", "trtllm", "tgi ", "text-generation", "engine"))
