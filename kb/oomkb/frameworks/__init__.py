"""What each framework does when a key is absent, which settings it has, and how they are spelt: one record each.

Everything a framework is known by stands in its file in ``records``; :mod:`oomkb.frameworks.declared` says how.
"""

from __future__ import annotations

from typing import Final

from oomkb.frameworks.completion import complete
from oomkb.frameworks.declared import framework_of, records
from oomkb.frameworks.lookup import canonical, find, lineage, supports
from oomkb.frameworks.model import Default, Framework, Setting, in_range

__all__ = [
    "ENGINES",
    "FRAMEWORKS",
    "LAUNCHERS",
    "Default",
    "Framework",
    "Setting",
    "canonical",
    "complete",
    "find",
    "in_range",
    "lineage",
    "supports",
]

FRAMEWORKS: tuple[Framework, ...] = tuple(map(framework_of, records()))
"""Sorted by name."""

LAUNCHERS: Final = frozenset(f.name for f in FRAMEWORKS if f.kind == "launcher")
"""What starts and wraps other frameworks' programs."""
ENGINES: Final = frozenset({*(f.name for f in FRAMEWORKS if f.kind == "serving"), "vllm-ascend"})
"""What serves models and trains none."""
