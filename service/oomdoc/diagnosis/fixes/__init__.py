"""Remedies: functions from job to job, with their preconditions, their safety class and what they cost.

Those that only set a field or quote a line are rows of ``settings.toml``; those with arithmetic of their own are
functions in the modules that are listed here.
"""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from typing import Final

from oomdoc.diagnosis.fixes import (
    batch,
    hardware,
    helper_models,
    host_memory,
    serving,
    sharding,
    steps,
    weights,
)
from oomdoc.diagnosis.fixes._declared import declared
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant

__all__ = ["REMEDIES", "Context", "Remedy", "Variant"]

_MODULES: Final = (batch, hardware, helper_models, host_memory, serving, sharding, steps, weights)
_CODED: Final = (item for module in _MODULES for item in vars(module).values() if isinstance(item, Remedy))

REMEDIES: Final[tuple[Remedy, ...]] = tuple(sorted(chain(_CODED, declared()), key=attrgetter("name")))
"""All of them, by name."""
