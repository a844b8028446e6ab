"""TensorFlow: the shape of the tensor that found no room."""

from __future__ import annotations

import re
from math import prod
from typing import Final

from oomdoc.intake.logs.rules import Parser, Reading, Window, failure, signal
from oomkb.kept import lazy

_OOM: Final = lazy(
    r"OOM when allocating tensor (?:with|of) shape\s?\[(?P<shape>[\d,]{1,120})\](?: and type (?P<ty"
    r"pe>\w{1,20}))?(?: on (?P<device>\S{1,120}))?",
    re.IGNORECASE,
)
_WIDTH: Final = {
    "float": 4,
    "half": 2,
    "bfloat16": 2,
    "double": 8,
    "int32": 4,
    "int64": 8,
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "complex64": 8,
}


def _parse(window: Window) -> Reading | None:
    found = _OOM.search(" ".join([window.text, *(line.text for line in window.following(1))])[:2000])
    if found is None:
        return None
    shape = tuple(int(n) for n in found["shape"].split(",") if n)[:16]
    requested = prod(shape) * _WIDTH.get((found["type"] or "float").lower(), 4)
    on_host = "cpu" in (found["device"] or "").lower()
    hit = signal("tensorflow-oom", window, shape=shape, type=found["type"], requested_bytes=requested)
    return failure("host" if on_host else "device", hit, requested_bytes=requested)


PARSER: Final = Parser("tensorflow", ("oom when allocating",), _parse, priority=27)
