"""What the reader may claim: facts, causes, statements, outcomes. Data, checked as it is read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, get_args

from oomdoc.intake.outcomes.rows import rows
from oomdoc.intake.statements import statements
from oomkb.dataclass import dataclass
from oomkb.records.taxonomy import CAUSES

__all__ = ["MEMORY", "NOTHING", "Causes", "FactKey", "causes", "fact_keys", "outcomes", "statements"]

FactKind = Literal["size", "fraction", "billions", "whole", "name", "choice", "flag", "list"]
_FIELDS: Final = frozenset({"kind", "means", "values", "cues"})
MEMORY: Final[Mapping[str, str]] = {
    "device-memory": "the card's memory ran out (unified memory of Apple, GB10, Jetson too); also cuBLAS or cuDNN "
    "ALLOC_FAILED or NOT_INITIALIZED where no other failure is shown",
    "host-memory": "the machine's memory (RAM) ran out, or the process was killed for it",
    "shared-memory": "/dev/shm ran out",
    "engine-refuses": "a server refuses to start: its cache or context does not fit",
    "memory-use": "nothing failed yet, but too much memory in use is the complaint",
}
NOTHING: Final[Mapping[str, str]] = {
    "question": "nothing failed: a question or a plan",
    "healthy": "nothing failed: a log of work that goes on or ended well",
}
OTHER: Final[Mapping[str, str]] = {
    "illegal-access": "illegal memory access, CUDA illegal instruction, misaligned address",
    "segmentation-fault": "SIGSEGV or SIGILL (exit -11, 139, -4)",
}
"""Of other failures, those whose name does not say all that they stand for."""


@dataclass(frozen=True, slots=True)
class FactKey:
    """A fact that may be stated."""

    name: str
    kind: FactKind
    means: str
    values: tuple[str, ...] = ()
    cues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Causes:
    """The causes with the rules to choose by."""

    rules: tuple[str, ...]
    means: Mapping[str, str]


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


@cache
def fact_keys() -> Mapping[str, FactKey]:
    """Every fact by name.

    :raises ValueError: where ``facts.toml`` breaks the schema; says where.
    """
    found = {}
    for name, row in _table("facts.toml").items():
        if not {"kind", "means"} <= row.keys() <= _FIELDS or row["kind"] not in get_args(FactKind):
            raise ValueError(f"facts.toml: {name}: {sorted(row)}")
        if (row["kind"] in ("choice", "list")) != bool(row.get("values")):
            raise ValueError(f"facts.toml: {name}: values go with choice and list")
        values, cues = tuple(row.get("values", ())), tuple(row.get("cues", ()))
        found[name] = FactKey(name, row["kind"], row["means"], values, cues)
    return found


@cache
def causes() -> Causes:
    """The causes and rules.

    :raises ValueError: where ``causes.toml`` does not define exactly the taxonomy's causes.
    """
    table = _table("causes.toml")
    if table["causes"].keys() != CAUSES.keys():
        raise ValueError(f"causes.toml: {sorted(table['causes'].keys() ^ CAUSES.keys())}")
    return Causes(tuple(table["rules"]), table["causes"])


@cache
def outcomes() -> Mapping[str, str]:
    """What may have happened -> in words; empty words where the name says it."""
    other = {row.id: OTHER.get(row.id, "") for row in rows() if row.kind == "other"}
    return {**MEMORY, **NOTHING, **other, "trouble": "something fails, and the text does not say what"}
