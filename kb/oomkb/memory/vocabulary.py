"""The words a job document may use, with the spellings people and frameworks write: ``vocabulary.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from oomkb.errors import JobError
from oomkb.limits import shown
from oomkb.notes import note
from oomkb.tables import read_table

VOCABULARY: Final[Mapping[str, Mapping[str, str]]] = read_table(Path(__file__).with_name("vocabulary.toml"))
"""Field -> word -> the spellings that mean it, apart by blanks."""


def _key(word: object) -> str:
    return str(word).strip().lower().replace("_", "-").replace(" ", "-").replace("(", "").replace(")", "")


@cache
def _table(name: str) -> dict[str, str]:
    table: dict[str, str] = {}
    for canonical, spellings in VOCABULARY[name].items():
        for spelling in (canonical, *spellings.split()):
            table.setdefault(_key(spelling), canonical)
    return table


def normalise(name: str, value: Any, *, where: str = "") -> Any:
    """The canonical word for ``value`` in the field ``name``.

    :raises JobError: naming the field and the words it takes.
    """
    if value is False and name in ("autocast", "quant", "sharding"):
        return "none"
    word = _table(name).get(_key(value)) if isinstance(value, str | int | float) else None
    if word is None:
        valid = ", ".join(VOCABULARY[name])
        raise JobError(
            f"{shown(value)} is not known",
            where=where or name,
            hint=f"one of {valid}",
            note=note("job.not-known", value=shown(value), valid=valid),
        )
    return {"true": True, "false": False}.get(word, word) if name == "grad_ckpt" else word
