"""Kubernetes and container runtimes: OOMKilled containers and evicted pods."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "kubernetes",
    ("oomkilled", "low on resource: memory", "memorypressure", "evicted"),
    (
        rule("kubernetes-oom-killed", r"OOMKilled\"?(?!\"?\s{0,2}[:=]\s{0,2}false)", "host"),
        rule("kubernetes-evicted", r"The node was low on resource: memory|low on resource: memory", "host"),
    ),
    priority=22,
)
