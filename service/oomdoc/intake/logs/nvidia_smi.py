"""``nvidia-smi``: names, used and total memory per GPU, processes that hold some."""

from __future__ import annotations

import re
from typing import Final

from oomdoc.intake.logs.base import Parser, Reading, Window, fact, only, signal
from oomdoc.intake.sizes import to_bytes
from oomkb.lazy import compiled
from oomkb.units import to_gib

_USED: Final = compiled(r"(?P<used>\d{1,7}) ?MiB {0,3}/ {0,3}(?P<total>\d{3,7}) ?MiB", re.IGNORECASE)
_NAME: Final = compiled(
    r"\|\s{1,4}(?P<index>\d{1,3})\s{1,4}(?P<name>(?:NVIDIA|Tesla|GeForce"
    r"|Quadro|A100|H100|RTX|Graphics)[\w .\-]{2,40}?)\s{1,20}(?:On"
    r"|Off|Persistence|\.{3})"
)
_PROCESS: Final = compiled(
    r"\|\s{1,6}(?P<gpu>\d{1,3})\s{1,8}(?:N/A\s{1,6}N/A\s{1,16})?(?P<pid>\d{1,9})\s{1,6}[CG+M]"
    r"{1,3}\s{1,8}(?P<command>\S{0,60}.{0,60}?)\s{1,12}(?P<used>\d{1,7}) ?MiB\s{0,4}\|"
)
_LISTED: Final = compiled(r"GPU (?P<index>\d{1,3}): (?P<name>[\w .\-]{3,60}) \(UUID")


def _parse(window: Window) -> Reading | None:
    text = window.text
    if (found := _PROCESS.search(text)) is not None:
        return only(
            signal(
                "nvidia-smi-process",
                window,
                gpu=int(found["gpu"]),
                pid=int(found["pid"]),
                command=found["command"].strip(),
                used_bytes=to_bytes(found["used"], "MiB"),
            )
        )
    if (found := _USED.search(text)) is not None:
        total = to_bytes(found["total"], "MiB")
        hit = signal("nvidia-smi-memory", window, used_bytes=to_bytes(found["used"], "MiB"), total_bytes=total)
        return only(
            hit, facts=[fact("capacity_gib", round(to_gib(total), 4), window.line, 0.86)] if total > 1 << 31 else []
        )
    found = _NAME.search(text) or _LISTED.search(text)
    if found is None:
        return None
    hit = signal("nvidia-smi-gpu", window, index=int(found["index"]), name=found["name"].strip())
    return only(hit, facts=[fact("gpu", found["name"].strip(), window.line, 0.88)])


PARSER: Final = Parser("nvidia_smi", ("mib", "uuid", "| n/a", "nvidia", "tesla"), _parse, priority=70)
