"""From a job that does not fit to plans that do, each priced by the memory model."""

from __future__ import annotations

from oomdoc.diagnosis.planning._plan import plan, whatif
from oomdoc.diagnosis.planning._result import Hardware, Knob, Planning, Table

__all__ = ["Hardware", "Knob", "Planning", "Table", "plan", "whatif"]
