"""Out-of-memory messages of PyTorch's caching allocators: CUDA and its siblings HIP, NPU, XPU, of every version.

The clauses are looked for one by one in the text without blanks: versions order them differently, logs cut them off,
terminals wrap them inside words, and people shorten them by hand. Wordings 1.x to 2.13: the templates of
``c10/cuda/CUDACachingAllocator.cpp`` of each release, ``c10/xpu/XPUCachingAllocator.cpp`` and torch_npu's allocator;
the Chinese clauses are those of consoles that translate the message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from oomdoc.evidence import SIZES
from oomdoc.intake.logs.rules import Parser, Reading, Window, failure, signal
from oomdoc.intake.numbers import SQUEEZED_SIZE, to_bytes
from oomkb.kept import compiled

_S: Final = SQUEEZED_SIZE
_HEAD: Final = compiled(
    r"(?P<backend>CUDA|HIP|NPU|XPU|MUSA|MLU|SDAA|PPU) ?(?:out of memory|内存不足|显存不足)"
    r"|Tried to allocate [0-9]|尝试分配 ?[0-9]",
    re.IGNORECASE,
)
_NEXT: Final = compiled(r"(?:OutOfMemoryError|outofmemory[.:]|Traceback\(mostrecent|Exceptioninthread)", re.IGNORECASE)
_COMPLETE: Final = compiled(r"unallocated|reserved in total|intotalbyPyTorch", re.IGNORECASE)
_CLAUSES: Final[dict[str, re.Pattern[str]]] = {
    name: compiled(text, re.IGNORECASE)
    for name, text in {
        "requested_bytes": rf"(?:Tr(?:ied|ying)toallocate|尝试分配|Requestedsize:?){_S}",
        "capacity_bytes": rf"(?:totalcapaci?tyof|总(?:内存|显存)?容量为?){_S}|{_S}totalcapacity|hasatotalof{_S}"
        rf"|[;,(]{_S}total[,);]|has{_S}total\b",
        "free_bytes": rf"(?:ofwhich|空闲(?:内存|显存)?为?){_S}(?:i|s|\b|的|。|$)|[;,]{_S}free|had{_S}free",
        "allocated_bytes": rf"{_S}alreadyallocated|allocatedmemory{_S}isallocated|其中{_S}由PyTorch分配",
        "reserved_bytes": rf"{_S}reservedintotal",
        "reserved_unallocated_bytes": rf"(?:and|[,，]){_S}isreservedbyPyTorchbut",
        "process_bytes": rf"thisprocesshas{_S}|{_S}inusebythisprocess|此进程(?:正在)?使用了?{_S}",
        "private_pool_bytes": rf"with{_S}allocatedinprivatepools",
        "allowed_bytes": rf"{_S}allowed",
        "active_bytes": rf"{_S}currentactive",
        "cached_bytes": rf"[;,]{_S}cached",
    }.items()
}
_OTHERS: Final = compiled(rf"(?:Process(\d{{1,10}})has|进程(\d{{1,10}})(?:正在)?使用了?){_S}", re.IGNORECASE)
_OWN: Final = compiled(r"\(\w{1,60} pid=(\d{1,10})")
"""Who prints, in the lines that Ray passes on: ``(WorkerDict pid=40123)``."""
_DEVICE: Final = compiled(r"(?:GPU|NPU|XPU|HIP|MUSA)(\d{1,4})(?:;|has|had|的|total)", re.IGNORECASE)
_TOTAL_OF: Final = compiled(rf"freeof({_S}|([0-9]{{1,4}}\.[0-9]{{1,3}}))", re.IGNORECASE)
_EB: Final = compiled(r"more\s{0,2}than\s{0,2}1\s{0,2}EB", re.IGNORECASE)
_ABSURD: Final = 1 << 44
"""16 TiB: what a counter that wrapped below zero prints (WSL, memory limits); not a size."""


def clauses(text: str, pid: str = "") -> dict[str, Any]:
    """Every size that a message without blanks states, in bytes under the names of :class:`Failure`.

    :param pid: of the process that prints it, where that is known.
    """
    return dict(_clauses(text, pid))


@lru_cache(maxsize=512)
def _clauses(text: str, pid: str) -> Mapping[str, Any]:
    """Every size that a message without blanks states, in bytes under the names of :class:`Failure`."""
    out: dict[str, Any] = {}
    for name, pattern in _CLAUSES.items():
        if (found := pattern.search(text)) is not None:
            number, unit = [g for g in found.groups() if g is not None][:2]
            out[name] = to_bytes(number, unit)
    if "capacity_bytes" not in out and (found := _TOTAL_OF.search(text)) is not None:
        out["capacity_bytes"] = to_bytes(found[2] or found[4], found[3] or "GiB")
    if (device := _DEVICE.search(text)) is not None:
        out["device"] = int(device[1])
    _split_cached(out)
    others = [(m[1] or m[2], to_bytes(m[3], m[4])) for m in _OTHERS.finditer(text)]
    if pid and "process_bytes" not in out and (mine := dict(others).get(pid)) is not None:
        out["process_bytes"] = mine
        others = [one for one in others if one[0] != pid]
    _split_processes(out, [size for _, size in others if size < _ABSURD])
    return {k: v for k, v in out.items() if k == "device" or v < _ABSURD}


def _split_cached(out: dict[str, Any]) -> None:
    """PyTorch 1.0 to 1.3 print as "cached" what is cached but not allocated; before, and by hand, it is the whole."""
    cached, allocated = out.pop("cached_bytes", None), out.get("allocated_bytes")
    if cached is None or allocated is None or out.keys() & {"reserved_bytes", "reserved_unallocated_bytes"}:
        return
    unallocated = allocated + cached <= out.get("capacity_bytes", 0)
    out["reserved_unallocated_bytes" if unallocated else "reserved_bytes"] = cached


def _split_processes(out: dict[str, Any], others: list[int]) -> None:
    """Tell this process from the others.

    Inside a container the process's own clause carries its outer number, so "Including non-PyTorch memory" is
    missing. Then it is the smallest process that can hold what PyTorch holds here.
    """
    if "process_bytes" not in out and others:
        if len(others) == 1 and _alone(out, others[0]):
            out["process_bytes"] = others.pop()
            return
        held = out.get("reserved_bytes") or out.get("allocated_bytes", 0) + out.get("reserved_unallocated_bytes", 0)
        able = sorted(size for size in others if held and size >= held * 0.995)
        if able:
            out["process_bytes"] = able[0]
            others.remove(able[0])
    if others:
        out["other_process_bytes"] = sum(others)
        out["other_processes"] = len(others)


def _parse(window: Window) -> Reading | None:
    head = _HEAD.search(window.text)
    if head is None or _EB.search(window.text):
        return None
    text = window.squeezed(head.start(), 0 if _COMPLETE.search(window.text[head.start() :]) else 7)
    if (end := _NEXT.search(text, 20)) is not None:
        text = text[: end.start()]
    own = _OWN.search(window.line.raw)
    sizes = clauses(text, own[1] if own is not None else "")
    if head["backend"] is None and "capacity_bytes" not in sizes and "free_bytes" not in sizes and not _named(window):
        return None
    backend = (head["backend"] or "cuda").lower()
    names = {"cuda": "torch-cuda-oom"}
    found = signal(names.get(backend, f"{backend}-oom"), window, **sizes)
    fields = {k: v for k, v in sizes.items() if k in SIZES.values()}
    return failure("device", found, **fields)


def _named(window: Window) -> bool:
    """Whether the line (or the one before it) says that an out-of-memory error was raised."""
    return _RAISED.search(window.text + window.preceding()) is not None


_RAISED: Final = compiled(r"OutOfMemory|out of memory|\boom(?:s|ed)?\b", re.IGNORECASE)


def _alone(sizes: Mapping[str, int], process_bytes: int) -> bool:
    """Whether a process holds all that is in use: then it is this one, which holds a context at least."""
    if sizes.keys() & {"allocated_bytes", "reserved_bytes"} or not sizes.keys() >= {"capacity_bytes", "free_bytes"}:
        return False
    used = sizes["capacity_bytes"] - sizes["free_bytes"]
    return used > 0 and abs(process_bytes - used) <= _ROUGHLY * used


_ROUGHLY: Final = 0.02

PARSER: Final = Parser(
    "torch_cuda",
    ("out of memory", "tried to allocate", "内存不足", "显存不足", "尝试分配"),
    _parse,
    priority=10,
)
