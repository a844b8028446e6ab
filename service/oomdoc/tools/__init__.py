"""oomdoc's functions for agents and language models: typed, small in their answers, the same over MCP and in a chat."""

from __future__ import annotations

from oomdoc.tools.functions import compare, diagnose, estimate, explain, extrapolate, fix, plan, scan, search
from oomdoc.tools.registry import TOOLS, Tool, tool_named

__all__ = [
    "TOOLS",
    "Tool",
    "compare",
    "diagnose",
    "estimate",
    "explain",
    "extrapolate",
    "fix",
    "plan",
    "scan",
    "search",
    "tool_named",
]
