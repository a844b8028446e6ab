"""Finding a framework by the name people write, and asking what it has a setting for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Final

from oomkb.frameworks.declared import Record, records
from oomkb.frameworks.model import PLAIN, in_range

FRAMEWORKS: Final = records()
"""Every framework that has a record, sorted by name."""
LAUNCHERS: Final = frozenset(f.name for f in FRAMEWORKS if f.kind == "launcher")
"""What starts and wraps other frameworks' programs."""
ENGINES: Final = frozenset({*(f.name for f in FRAMEWORKS if f.kind == "serving"), "vllm-ascend"})
"""What serves models and trains none."""
_SWITCHES: Final = "offload"
"""What is said by switches of their own, some of them a base's: no list of its values is the whole."""


def _key(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")


@cache
def _names() -> dict[str, Record]:
    table = {_key(framework.name): framework for framework in FRAMEWORKS}
    for framework in FRAMEWORKS:
        for name in (framework.title, framework.package, *framework.aliases):
            table.setdefault(_key(name), framework)
    return table


def find(name: str | None) -> Record | None:
    """The framework of this name, by canonical name, title, package or alias; words after it are ignored."""
    if not name or len(name) > 200:
        return None
    key = _key(name)
    table = _names()
    if key in table:
        return table[key]
    # "ms-swift 1.x", "torchtune 0.5 (nightly)": the longest leading words that are a name.
    words = key.split("-")
    for end in range(len(words) - 1, 0, -1):
        found = table.get("-".join(words[:end]))
        if found is not None:
            return found
    return None


def canonical(name: str | None) -> str | None:
    """The canonical name of a framework (``"LLaMA-Factory"`` → ``"llama-factory"``), or ``None``."""
    found = find(name)
    return found.name if found is not None else None


@lru_cache(maxsize=256)
def lineage(name: str | None) -> tuple[Record, ...]:
    """The framework and those it inherits from, nearest first."""
    out: list[Record] = []
    current = find(name)
    while current is not None and current not in out:
        out.append(current)
        current = find(current.base) if current.base else None
    return tuple(out)


def builds_on(name: str | None, base: str | None) -> bool:
    """Whether the framework is ``base`` or inherits from it."""
    return any(record.name == base for record in lineage(name))


def supports(
    framework: str | None, field: str, value: Any = None, versions: Mapping[str, str] = MappingProxyType({})
) -> bool:
    """Whether the framework has a setting for a job field, or for this value of it.

    :param field: a (dotted) job field: ``fused_ce``, ``offload``, ``serving.max_num_seqs``.
    :param value: a value to set; of several each by itself.
    :param versions: of packages by name, where an unknown one counts as the newest: a setting that comes from a base
        (TRL's from transformers) is judged by the base's own version, never by that of the framework built on it.

    A framework that is not known supports nothing but what any training script can be changed to.
    """
    installed = tuple(versions.items())
    parts = value if isinstance(value, list | tuple) else (value,)
    return all(_supports(framework, field, part, installed) for part in parts)


@lru_cache(maxsize=16_384, typed=True)
def _supports(framework: str | None, field: str, value: Any, installed: tuple[tuple[str, str], ...]) -> bool:
    """The same of one value: a planner's search asks this hundreds of times of the same few settings."""
    versions = dict(installed)
    for member in lineage(framework) or lineage(PLAIN):
        own = [s for s in member.settings if s.field == field]
        there = (s for s in own if in_range(s.versions, versions.get(member.package)))
        if any(value is None or s.values is None or value in s.values for s in there):
            return True
        # A framework that lists the values it takes replaces its base's list.
        if any(s.values is not None for s in own) and field != _SWITCHES:
            return False
    return False
