"""What every allocator message says, whatever the cause, says nothing about the cause.

PyTorch (since 1.x, ``c10/cuda/CUDACachingAllocator.cpp``) ends each out-of-memory message with advice about
fragmentation and with the memory of the processes on the card. Left in, every pasted log would sound like fragmentation
and like somebody else's process. The parts stay where their figures make them a symptom: more cached than was asked
for, or a process that holds more than this one's tensors.
"""

from __future__ import annotations

import re
from typing import Final

from oomkb.lazy import lazy
from oomkb.retrieval.text import MAX_CHARS

_SIZE: Final = r"(\d{1,9}(?:\.\d{1,4})?) ?([KMG])i?B"
_ADVICE: Final = lazy(
    r"If reserved\s(?:but unallocated )?memory\sis\s(?:large|>> allocated\smemory),?\s?try\s{1,4}setting\s.{0,90}"
    r"(?:fragmentation\.?|\w_CONF=\S{1,60})(?:\s{1,3}See documentation for Memory[^\n]{0,120})?"
    r"|See documentation for Memory Management[^\n]{0,120}",
    re.IGNORECASE | re.DOTALL,
)
_OWN: Final = lazy(rf"Including non-PyTorch memory, this process has {_SIZE} memory in use\.?", re.IGNORECASE)
_PROCESS: Final = lazy(rf"Process \d{{1,9}} has {_SIZE} memory in use\.?", re.IGNORECASE)
_CACHED: Final = lazy(rf"and {_SIZE} is reserved by PyTorch but unallocated\.?", re.IGNORECASE)
_RESERVED: Final = lazy(rf"; {_SIZE} reserved in total by PyTorch\)?", re.IGNORECASE)
_TRIED: Final = lazy(rf"[Tt]ried to allocate {_SIZE}", re.IGNORECASE)
_TENSORS: Final = lazy(rf"{_SIZE} is allocated by PyTorch|{_SIZE} already allocated", re.IGNORECASE)
_UNITS: Final = {"K": 2**10, "M": 2**20, "G": 2**30}


def telling(text: str) -> str:
    """The text without the parts of allocator messages that are always there."""
    text = text[:MAX_CHARS]
    if "llocat" not in text:
        return text
    tried, tensors = _first(_TRIED, text), _first(_TENSORS, text)
    text = _OWN.sub(" ", _ADVICE.sub(" ", text))
    text = _CACHED.sub(lambda m: " " if tried and _bytes(m.groups()) <= tried else m.group(), text)
    text = _RESERVED.sub(lambda m: " " if tried and _bytes(m.groups()) <= tried + tensors else m.group(), text)
    return _PROCESS.sub(lambda m: " " if tensors and _bytes(m.groups()) < 2 * tensors else m.group(), text)


def _first(pattern: re.Pattern[str], text: str) -> float:
    match = pattern.search(text)
    return _bytes(tuple(g for g in match.groups() if g is not None)) if match else 0.0


def _bytes(size: tuple[str, ...]) -> float:
    return float(size[0]) * _UNITS[size[1].upper()]
