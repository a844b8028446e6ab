"""Every framework that has a record, and what kind each is."""

from __future__ import annotations

from typing import Final

from oomkb.frameworks.declared import records

FRAMEWORKS: Final = records()
"""Sorted by name."""
LAUNCHERS: Final = frozenset(f.name for f in FRAMEWORKS if f.kind == "launcher")
"""What starts and wraps other frameworks' programs."""
ENGINES: Final = frozenset({*(f.name for f in FRAMEWORKS if f.kind == "serving"), "vllm-ascend"})
"""What serves models and trains none."""
