"""The phase of the root failure: what its message, its traceback, the prose, the log before it say, in this order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from oomdoc.evidence import Fact, Failure, Frame, Signal, Span
from oomdoc.intake.kinds import Kind
from oomdoc.intake.lines import Line
from oomdoc.intake.partitions import is_partition
from oomdoc.intake.phase_ops import phase_of_operation
from oomdoc.intake.phase_words import phase_hinted, phase_of_prose
from oomdoc.intake.phases import phase_of_frames, phase_of_log
from oomdoc.intake.sieve import Expression
from oomdoc.intake.tracebacks import Placed
from oomkb.units import GIB

__all__ = ["frames_of", "phase_fact"]

_REACH = 150
"""Lines between a frame and the message that ends its traceback."""
_QUOTED: Final = 3
"""Lines before a message that is told first, with its log after it."""
_CODE: Final = re.compile(r"\s{1,24}\S|[\w.\[\]\"', ]{1,60} ?= ?[\w.]{1,80}\(|(?:return|raise|self\.)\b|[\w.]{1,60}\(")
_ENGINE: Final = Expression(
    r"(?<!没有 )(?<!没有)(?<!没用 )(?<!without )(?<!\bno )(?<!instead of )vllm|sglang|lmdeploy|tensorrt|trtllm|\btgi\b"
    r"|text.generation.(?:inference"
    r"|launcher)|mem[-_]fraction[-_]static|gpu[-_]memory[-_]utilization|EngineCore|\bLLM\(|llama runner|turbomind",
    re.IGNORECASE,
)
_SERVED: Final = Expression(
    r"(?:in the )?middle of serving|after (?:some|several|a few|many"
    r"|\d{1,6}) (?:requests|calls|hours|minutes)|concurrent|at inference"
    r"|many requests|under (?:high |heavy )?(?:load|concurrency)|high con?cur\w{1,8}|压测|并发|多次(?:请求"
    r"|调用)|请求|调用次数|时间长|运行一段"
    r"|Running: \d|Received request|prompt_logprobs|long prompts?"
    r"|when (?:i )?(?:send|call|request|chat)|return_logprob|CPU swap space|No free blocks left"
    r"|each (?:\w{1,12} ){0,2}request|every (?:\w{1,12} ){0,2}request|一直涨|越来越[高多大]|in production"
    r"|run_busy_loop|运行时(?:服务|被)"
    r"|(?:keeps?|continuous\w{0,2}) (?:growing|rising|increasing|processing)",
    re.IGNORECASE,
)
_LAYERS: Final = re.compile(r"modeling_|\bforward\b|_forward\b|\bmodel\(|softmax|matmul|linear\.py|attention")
"""Frames of layers at work."""
_WEIGHED: Final = re.compile(r"loading (?:model )?weights took", re.IGNORECASE)
"""An engine that says so has its weights in."""
_EARLY: Final = re.compile(
    r"before (?:the |any )?(?:model|weights|loading)[^.\n]{0,24}load"
    r"|\bOOM at start(?:up)?\b",
    re.IGNORECASE,
)
_LOADS: Final = re.compile(r"^\s{0,8}[\w., ]{1,60}= ?[\w.]{1,80}\.from_pretrained\(", re.MULTILINE)
_WORKS: Final = re.compile(
    r"\.generate\(|\bpipe(?:line)?\(|\.chat\(|\btrain|\bmodel\(|\.encode\(|transcribe|\.predict|\.embed|\.run\("
    r"|\.fit\(|\bbackward|微调|训练|推理|fine-?tun"
    r"|\bforward"
    r"|infer|\bfor [\w, ]{1,40} in\b|\bepochs?\b|\.step\(|tokeniz\w{0,4}\([\"'\w]",
    re.IGNORECASE,
)
_STEPS: Final = re.compile(r"training_step|train_step|inner_training_loop|compute_loss|train_batch|trainer\.train\(")
"""Frames of a training step: what fails below them is no evaluation, whatever is said."""


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
        if chain and chain[-1].index - place.index > 12:
            break
        chain.append(place)
    frames = [p.frame for p in reversed(chain)]
    last = chain[0].index if chain else -1
    for at in range(index - 1, max(last + 1, index - 5, -1), -1):
        text = lines[at].text
        if not text.strip() or lines[at].tag != line.tag or len(text) > 300 or "Error" in text:
            break
        if _CODE.match(text):
            frames.insert(len(chain), Frame("", "", lines[at].span(), None, text.strip()[:200]))
    return tuple(frames)


def phase_fact(
    lines: Sequence[Line],
    kinds: Sequence[Kind],
    placed: Sequence[Placed],
    root: tuple[int, Failure] | None,
    signals: Sequence[Signal],
    facts: Mapping[str, Fact],
) -> Fact:
    """The fact ``phase``; ``unknown`` where nothing tells.

    :param facts: the other facts, for what the numbers leave possible.
    """
    aim = facts.get("objective")
    objective = aim.value if aim is not None and aim.stated else None
    failure = root[1] if root is not None else None
    span = failure.signal.span if failure is not None else (lines[0].span() if lines else Span("input", 1))
    engine = objective == "inference" and _engine(lines)
    said = "\n".join(t.text for t, kind in zip(lines, kinds, strict=True) if kind in ("prose", "log"))[:20_000]
    if failure is not None and failure.phase != "unknown":
        return Fact("phase", failure.phase, span, "log", 0.95)
    frames = failure.frames if failure is not None and failure.frames else tuple(p.frame for p in placed)
    shown = phase_of_frames(frames) if frames else None
    written = "\n".join(t.text for t, kind in zip(lines, kinds, strict=True) if kind in ("prose", "config", "code"))
    told = phase_of_prose(written)
    if told == "engine-init" and objective not in (None, "inference") and not _engine(lines):
        told = None  # a training run that fails while it starts: the log may tell in what
    if shown is not None:
        if engine and shown in ("forward", "loss"):
            shown = "generate" if _SERVED.search(said) else "engine-init"
        elif shown == "forward" and told in ("backward", "optimizer-step", "save") and not any(map(_computes, frames)):
            shown = told  # only collectives and plumbing show, which every pass has
        elif told == "eval" and shown in ("forward", "loss") and not any(_STEPS.search(_text(f)) for f in frames):
            shown = told
        return Fact("phase", shown, frames[-1].span, "log", 0.95)
    operation = phase_of_operation("\n".join(line.text for line in lines[:4000]))
    if operation is not None and told in (None, "load", "forward", "backward", "generate"):
        return Fact("phase", operation, span, "log", 0.9)
    if engine and told in (None, "load", "forward", "engine-init", "generate"):
        return Fact("phase", _of_engine(said, told, signals), span, "prose", 0.7)
    if told is not None:
        return Fact("phase", told, span, "prose", 0.75)
    guess = _guess(lines, kinds, root, span, objective)
    if guess.value == "unknown" and is_partition(facts):
        return Fact("phase", "optimizer-init", span, "log", 0.6)
    if guess.value == "unknown":
        ordered = "\n".join(t.text for t, kind in zip(lines, kinds, strict=True) if kind == "command")
        hinted = phase_hinted(f"{written}\n{ordered}") or _scripted(lines, failure)
        if hinted is not None:
            return Fact("phase", hinted, span, "prose", 0.6)
    return guess


def _scripted(lines: Sequence[Line], failure: Failure | None) -> str | None:
    """A pasted program that loads a model and calls nothing else on it can fail in nothing else."""
    if failure is None:
        return None
    text = "\n".join(line.text for line in lines[:400])[:20_000]
    return "load" if _LOADS.search(text) and not _WORKS.search(text) else None


def _computes(frame: Frame) -> bool:
    return _LAYERS.search(_text(frame)) is not None


def _text(frame: Frame) -> str:
    return f"{frame.file} {frame.function} {frame.code}"


def _engine(lines: Sequence[Line]) -> bool:
    return _ENGINE.search("\n".join(line.text for line in lines[:4000])[:60_000]) is not None


def _of_engine(text: str, told: str | None, signals: Sequence[Signal]) -> str:
    """An engine fails while it starts, unless it is said that it served."""
    started = any(s.name in ("vllm-kv-cache-too-small", "vllm-no-cache-blocks", "vllm-profile") for s in signals)
    if told == "load" and _WEIGHED.search(text):
        told = None
    if started or (told not in ("generate",) and not _SERVED.search(text)):
        return "load" if told == "load" and not started and not _EARLY.search(text) else "engine-init"
    return "generate"


def _guess(
    lines: Sequence[Line], kinds: Sequence[Kind], root: tuple[int, Failure] | None, span: Span, objective: str | None
) -> Fact:
    """From what was logged last before the failure, and from what the numbers leave possible."""
    at = root[0] if root is not None else len(lines)
    logged = [line.text for line, kind in zip(lines[:at], kinds[:at], strict=True) if kind in ("log", "prose")]
    if root is not None:
        logged.append(lines[root[0]].text)
    later = [line.text for line, kind in zip(lines[at:], kinds[at:], strict=True) if kind == "log"][:60]
    # Reports often begin with the message and bring the log below it.
    phase = phase_of_log(logged) or (phase_of_log(later) if at < _QUOTED else None)
    if phase is not None and (phase != "engine-init" or objective in (None, "inference")):
        return Fact("phase", phase, span, "log", 0.7)
    failure = root[1] if root is not None else None
    if failure is not None and failure.signal.name == "triton-out-of-resources":
        return Fact("phase", "generate" if objective == "inference" else "forward", span, "log", 0.55)
    if failure is not None and _refused(failure):
        return Fact("phase", "load", span, "log", 0.55)
    if failure is not None and failure.kind == "host" and any("from_pretrained(" in line.text for line in lines):
        return Fact("phase", "load", span, "log", 0.6)
    return Fact("phase", "unknown", span, "prose", 0.5)


def _refused(failure: Failure) -> bool:
    """A small request refused on a GPU that is mostly empty: the driver cannot back it with host memory.

    This meets weights on their way to the GPU (WSL, Windows, containers with little RAM), not a step.
    """
    free, capacity, requested = failure.free_bytes, failure.capacity_bytes, failure.requested_bytes
    return bool(free and capacity and requested and free > 0.4 * capacity and requested < min(GIB, free / 8))
