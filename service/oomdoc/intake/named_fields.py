"""Which settings of which frameworks a question asks the name of: "how do I enable checkpointing in axolotl?"."""

from __future__ import annotations

from typing import Any, Final

from oomdoc.intake.alternatives import values_in
from oomdoc.intake.detect import frameworks_named
from oomdoc.intake.several import sentences_in
from oomdoc.intake.worded import ROWS
from oomkb.dataclass import dataclass

_OF_NO_KEY: Final = frozenset(
    [
        *("model", "params_b", "gpu", "gpus", "nodes", "capacity_gib", "objective", "host_gib", "world", "images"),
        "serving.concurrency",
    ]
)
"""What a run is, and not how it is set."""
_MAX_FIELDS: Final = 3


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """A question for the keys of settings."""

    frameworks: tuple[str, ...]
    fields: tuple[tuple[str, Any], ...]
    """Job fields with the value that is wanted, ``None`` where none is said."""


def key_question(text: str, known: tuple[str, ...] = ()) -> KeyQuestion | None:
    """What a text asks the key of; ``None`` where it asks for none, or names no framework or no setting.

    :param known: the frameworks that are meant where none is named.
    """
    sentence = next((part for part in sentences_in(text) if ROWS["key_asked"].search(part) is not None), "")
    frameworks = frameworks_named(sentence) or frameworks_named(text) or known if sentence else ()
    fields = _fields(sentence) or _fields(text) if frameworks else ()
    return KeyQuestion(frameworks, fields) if fields else None


def _fields(text: str) -> tuple[tuple[str, Any], ...]:
    """The settings that are named, in their order; a name that lies inside a longer one does not count."""
    found: list[tuple[int, int, str, Any]] = []
    for field, mentions in values_in(text).items():
        found += [(start, end, field, side.fields[field]) for start, end, side in mentions]
    for name, pattern in ROWS.group("name").items():
        field = name.partition(":")[0]
        found += [(*match.span(), field, None) for match in pattern.finditer(text)]
    found.sort(key=lambda one: (one[0], -one[1], one[3] is None))
    out: dict[str, Any] = {}
    reached = 0
    for start, end, field, value in found:
        if start < reached or field in _OF_NO_KEY or (field == "method" and value in (None, "full")):
            continue
        reached = end
        if out.get(field) is None:
            out[field] = value
    return tuple(out.items())[:_MAX_FIELDS]
