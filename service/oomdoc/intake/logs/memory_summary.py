"""``torch.cuda.memory_summary()``: the table of current, peak and total usage; and the holders of a memory snapshot."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser, Reading, Window, only, signal
from oomdoc.intake.sizes import to_bytes
from oomkb.lazy import compiled

_ROW: Final = compiled(
    r"\|\s{0,4}(?P<what>Allocated memory|Active memory|Requested memory"
    r"|GPU reserved memory|Non-releasable memory)\s{0,8}\|\s{0,12}(?P<now>\d{1,12}) ?(?P<nu>"
    r"[KMGT]?i?B)\s{0,4}\|\s{0,12}(?P<peak>\d{1,12}) ?(?P<pu>[KMGT]?i?B)"
)
_HOLDER: Final = compiled(r"Memory snapshot: (?P<held>\d{1,6}\.\d{1,3}) GiB held by (?P<owner>.{1,300})")
_OOMS: Final = compiled(r"CUDA OOMs: (?P<ooms>\d{1,9})\s{0,16}\|\s{0,16}cudaMalloc retries: (?P<retries>\d{1,9})")
_NAMES: Final = {
    "Allocated memory": "allocated",
    "Active memory": "active",
    "Requested memory": "requested_by_code",
    "GPU reserved memory": "reserved",
    "Non-releasable memory": "non_releasable",
}


def _parse(window: Window) -> Reading | None:
    if (found := _OOMS.search(window.text)) is not None:
        return only(signal("memory-summary-retries", window, ooms=int(found["ooms"]), retries=int(found["retries"])))
    if (found := _HOLDER.search(window.text)) is not None:
        return only(
            signal("memory-snapshot-holder", window, held_bytes=to_bytes(found["held"], "GiB"), owner=found["owner"])
        )
    if (found := _ROW.search(window.text)) is None:
        return None
    name = _NAMES[found["what"]]
    data = {
        f"{name}_bytes": to_bytes(found["now"], found["nu"]),
        f"{name}_peak_bytes": to_bytes(found["peak"], found["pu"]),
    }
    return only(signal("memory-summary", window, **data))


PARSER: Final = Parser(
    "memory_summary",
    (
        "cuda ooms",
        "allocated memory",
        "active memory",
        "gpu reserved memory",
        "non-releasable memory",
        "memory snapshot",
    ),
    _parse,
    priority=65,
)
