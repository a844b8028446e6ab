"""Diagnosing the logs of a whole fleet: many files, all cores (or a Ray cluster), resumable, summed up."""

from __future__ import annotations

from oomdoc.fleet.running import Settings, run_fleet, summarise

__all__ = ["Settings", "run_fleet", "summarise"]
