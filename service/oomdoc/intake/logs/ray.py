"""Ray: the memory monitor's kills, dead actors, and its object store."""

from __future__ import annotations

from typing import Final

from oomdoc.intake.logs.base import Parser
from oomdoc.intake.logs.rules import rule, rules_parser, size

__all__ = ["PARSER"]

PARSER: Final[Parser] = rules_parser(
    "ray",
    (
        "running low on memory",
        "ray.exceptions",
        "memory on the node",
        "ray-oom-prevention",
        "memory pressure",
        "worker exit type",
        "object store",
        "actor died unexpectedly",
        "ray_memory",
        "memory usage threshold",
        "the worker died unexpectedly",
        "raylet",
        "a worker died",
        "by oom killer",
        "objectstorefull",
    ),
    (
        rule(
            "ray-node-memory",
            rf"was running was {size('used')} ?/ ?{size('total')} \((?P<share__f>[\d.]{{1,12}})\),? w"
            rf"hich exceeds the memory usage threshold of (?P<threshold__f>[\d.]{{1,8}}\d)",
            "host",
            facts={"total_bytes": "host_gib"},
        ),
        rule(
            "ray-oom-kill",
            r"ray\.exceptions\.OutOfMemoryError|killed due to the node running low on memory"
            r"|workers? (?:was|were) killed due to .{0,40}memory|ray-oom-prevention"
            r"|[1-9]\d{0,4} workers \(tasks / actors\) killed due to memory pressure|memory on the node \(ip",
            "host",
        ),
        rule("ray-object-store-full", r"ObjectStoreFullError|object store .{0,40}(?:is )?full", "host"),
        rule("ray-actor-died", r"killed by SIGKILL by OOM killer due to high memory usage", "host", cascade=True),
        rule(
            "ray-actor-died",
            r"A worker died or was killed while executing a task|workers? exited unexpectedly.{0,80}\b(?:OOM|memory)\b",
            "host",
            cascade=True,
        ),
    ),
    priority=35,
)
