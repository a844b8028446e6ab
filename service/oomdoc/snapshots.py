"""PyTorch memory snapshots (``torch.cuda.memory._dump_snapshot``): what held the memory, and what asked for more.

A pickle can run code when it is loaded; this one is loaded with every class refused: it can only hold plain values.
The snapshot is rendered as log lines, which the parsers read like any other log; :mod:`oomdoc.intake.stream` runs it
in a process of its own.
Format: ``torch/cuda/_memory_viz.py`` and ``c10/cuda/CUDACachingAllocator`` of PyTorch 2.x (``segments`` and
``device_traces``).
"""

from __future__ import annotations

import json
import pickle
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import IO, Any, Final

from oomkb.errors import InputError
from oomkb.units import GIB

_HELD: Final = ("active_allocated", "active_awaiting_free", "active_pending_free")
_PLUMBING: Final = (
    "/torch/nn/modules/module.py",
    "/torch/utils/_",
    "/torch/autograd/function.py",
    "/torch/_tensor.py",
    "??",
)


class _PlainValues(pickle.Unpickler):
    """Refuses every class and function: only numbers, text, lists, tuples, dictionaries remain."""

    def find_class(self, module: str, name: str) -> Any:
        """Called by the pickle for anything that is not a plain value."""
        raise InputError(
            f"the pickle asks for {module}.{name}", hint="only memory snapshots, which hold plain values, are read"
        )


def main() -> None:
    """Read a snapshot from standard input and print ``{"text": ...}``, or ``{"error": ..., "hint": ...}``.

    Run by :func:`oomdoc.isolation.run_isolated`: a pickle of a few bytes may ask for gigabytes.
    """
    try:
        answer = {"text": _text(sys.stdin.buffer)}
    except InputError as error:
        answer = {"error": error.message, "hint": error.hint}
    sys.stdout.write(json.dumps(answer))


def _text(stream: IO[bytes]) -> str:
    try:
        loaded = _PlainValues(stream).load()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"the pickle is damaged: {type(error).__name__}", hint="dump the snapshot again") from error
    if not isinstance(loaded, dict) or not isinstance(loaded.get("segments"), list):
        raise InputError("this pickle is no memory snapshot", hint="give what _dump_snapshot wrote")
    return "\n".join(_lines(loaded)) + "\n"


def _lines(snapshot: Mapping[str, Any]) -> Iterable[str]:
    segments = [s for s in snapshot["segments"] if isinstance(s, dict)]
    reserved = sum(_number(s.get("total_size")) for s in segments)
    allocated = sum(_number(s.get("allocated_size")) for s in segments)
    yield (
        f"Memory snapshot: reserved {reserved / GIB:.2f} GiB, allocated {allocated / GIB:.2f} Gi"
        f"B in {len(segments)} segments"
    )
    holders: Counter[str] = Counter()
    for segment in segments:
        for block in segment.get("blocks") or ():
            if isinstance(block, dict) and block.get("state") in _HELD:
                holders[_owner(_frames(block))] += _number(block.get("requested_size") or block.get("size"))
    for owner, held in holders.most_common(20):
        yield f"Memory snapshot: {held / GIB:.3f} GiB held by {owner}"
    event = _failed(snapshot.get("device_traces"))
    if event is not None:
        yield "Traceback (most recent call last):"
        for frame in reversed(_frames(event)):
            yield f'  File "{frame[0]}", line {frame[1]}, in {frame[2]}'
        free = _number(event.get("device_free", event.get("addr")))
        yield (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
            f"{_number(event.get('size')) / GIB:.2f} GiB. "
            f"GPU 0 of which {free / GIB:.2f} GiB is free. Of the allocated memory "
            f"{allocated / GIB:.2f} GiB is allocated by PyTorch, "
            f"and {max(0, reserved - allocated) / GIB:.2f} GiB is reserved by PyTorch but unallocated."
        )


def _failed(traces: Any) -> Mapping[str, Any] | None:
    """The last event of a device's trace that says the allocation failed."""
    for trace in traces if isinstance(traces, list) else ():
        for event in reversed(trace if isinstance(trace, list) else []):
            if isinstance(event, dict) and event.get("action") == "oom":
                return event
    return None


def _frames(entry: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    """Innermost first, at most 60."""
    frames = entry.get("frames")
    if frames is None and isinstance(entry.get("history"), list) and entry["history"]:
        frames = entry["history"][0].get("frames") if isinstance(entry["history"][0], dict) else None
    out = []
    for frame in (frames or [])[:60] if isinstance(frames, list) else []:
        if isinstance(frame, dict):
            out.append(
                (str(frame.get("filename", "??"))[:200], _number(frame.get("line")), str(frame.get("name", ""))[:100])
            )
    return out


def _owner(frames: list[tuple[str, int, str]]) -> str:
    """The innermost frame of a model's or trainer's own code."""
    for filename, line, name in frames:
        if filename.endswith(".py") and not any(part in filename for part in _PLUMBING):
            return f"{filename}:{line} {name}"
    return f"{frames[0][0]} {frames[0][2]}" if frames else "unknown (recorded without stacks)"


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0
