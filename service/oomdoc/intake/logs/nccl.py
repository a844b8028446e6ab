"""Collective time-outs and aborts: almost always the consequence of a rank that died of something else."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "nccl",
    (
        "watchdog",
        "nccl",
        "connection reset by peer",
        "broken pipe",
        "connection closed by",
        "socket timeout",
        "heartbeat",
    ),
    (
        rule(
            "nccl-timeout",
            r"Watchdog caught collective operation timeout|collective operation timeout"
            r"|NCCL.{0,80}(?:timed out|timeout)|heartbeat.{0,40}(?:lost|timed? ?out)",
            "other",
            cascade=True,
        ),
        rule(
            "peer-lost",
            r"Connection reset by peer|Broken pipe|Connection closed by (?:remote )?peer"
            r"|ncclRemoteError",
            "other",
            cascade=True,
        ),
    ),
    priority=85,
)
