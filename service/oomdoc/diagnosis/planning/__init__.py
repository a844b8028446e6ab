"""From a job that does not fit to plans that do, each priced by the memory model."""

from __future__ import annotations

from oomdoc.diagnosis.planning.for_diagnosis import plan_for, planning_for
from oomdoc.diagnosis.planning.patching import fields_to_write
from oomdoc.diagnosis.planning.planner import mildest_plan, plan, whatif
from oomdoc.diagnosis.planning.prices import Hardware, Knob, Planning, Table
from oomdoc.diagnosis.planning.quantities import largest_of, most_requests, need_with
from oomdoc.diagnosis.planning.table import fits_table

__all__ = [
    "Hardware",
    "Knob",
    "Planning",
    "Table",
    "fields_to_write",
    "fits_table",
    "largest_of",
    "mildest_plan",
    "most_requests",
    "need_with",
    "plan",
    "plan_for",
    "planning_for",
    "whatif",
]
