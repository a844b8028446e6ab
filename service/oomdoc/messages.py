"""What stages say to people, before it has a language: a key of the words catalogue and its values.

The words live in ``report/words/{en,zh}/*.toml``; :func:`oomdoc.report.words.render` puts them together. A stage
never holds a sentence of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from oomkb.dataclass import dataclass
from oomkb.errors import OomdocError


@dataclass(frozen=True, slots=True)
class Message:
    """``key`` is ``area.name`` (``cause.logits.size-matches``); ``values`` fill its placeholders."""

    key: str
    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def say(key: str, /, **values: Any) -> Message:
    """A message; sizes are passed as bytes under names ending in ``_bytes`` and shown as GiB."""
    return Message(key, MappingProxyType(values))


def problem_of(error: OomdocError) -> Message | str:
    """What an error says, with its place and the next step; its own words where it has them in English only."""
    if error.note is None:
        return str(error)
    said = say(error.note.key, **dict(error.note.values))
    return say("job.at", where=error.where, problem=said) if error.where else said
