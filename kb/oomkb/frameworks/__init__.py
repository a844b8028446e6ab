"""What each framework does when a key is absent, which settings it has, and how they are spelt: one record each.

Everything a framework is known by stands in its file in ``records``; :mod:`oomkb.frameworks.declared` says how.
"""

from __future__ import annotations

from oomkb.frameworks.completion import complete, described, has, line, min_compute, otherwise
from oomkb.frameworks.lookup import ENGINES, FRAMEWORKS, LAUNCHERS, builds_on, canonical, find, lineage, supports
from oomkb.frameworks.model import ENGINE, PLAIN, Default, Setting, in_range

__all__ = [
    "ENGINE",
    "ENGINES",
    "FRAMEWORKS",
    "LAUNCHERS",
    "PLAIN",
    "Default",
    "Setting",
    "builds_on",
    "canonical",
    "complete",
    "described",
    "find",
    "has",
    "in_range",
    "line",
    "lineage",
    "min_compute",
    "otherwise",
    "supports",
]
