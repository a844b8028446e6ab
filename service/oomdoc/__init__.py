"""oomdoc: why an LLM job ran out of memory, and what would fit.

>>> import oomdoc
>>> report = oomdoc.diagnose("RuntimeError: CUDA out of memory. Tried to allocate 4.64 GiB ...")
>>> print(report)                                            # doctest: +SKIP
>>> oomdoc.estimate({"model": "Qwen/Qwen2.5-7B", "seq_len": 2048, "micro_batch": 1}).peak_gib   # doctest: +SKIP

Importing this module loads nothing but the standard library: the hook lives inside other people's training jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oomdoc.hook import watch
    from oomdoc.library import diagnose, estimate, search
    from oomdoc.report.report import EstimateReport, Report
    from oomkb.errors import OomdocError

__all__ = ["EstimateReport", "OomdocError", "Report", "__version__", "diagnose", "estimate", "search", "watch"]
__version__ = "0.1.0"

_HOMES = {
    "diagnose": "oomdoc.library",
    "estimate": "oomdoc.library",
    "search": "oomdoc.library",
    "Report": "oomdoc.report.report",
    "EstimateReport": "oomdoc.report.report",
    "OomdocError": "oomkb.errors",
    "watch": "oomdoc.hook",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'oomdoc' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
