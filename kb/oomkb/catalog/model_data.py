"""Reading ``data/models/*.json`` and a person's own models into :class:`ModelEntry`, lazily and once.

A file holds one family: ``sources`` (short key → address), ``defaults`` (config fields shared by its entries),
``spellings`` (one written word → the words it stands for), ``weak`` (family words that are also ordinary words)
and ``models``. An entry:

``name``: hub id; ``match``: how it is written (:mod:`oomkb.catalog.model_text`); ``like``: the name of an
earlier entry of the file whose config it starts from; ``config``: fields of the published ``config.json``;
``params``: parameters in all, ``params_source`` / ``source``: keys or addresses.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.errors import CatalogError

DATA: Final = Path(__file__).parent / "data" / "models"
_SIZE_FIELDS: Final = ("hidden_size", "d_model", "n_embd", "dim", "text_config", "llm_config", "language_config")
_HINT: Final = "give a model's config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model: its ``config.json`` and how many parameters it has."""

    name: str
    config: Mapping[str, Any]
    params: int | None = None
    """Parameters in all, as published (every expert counted, tied embeddings once)."""
    source: str = ""
    aliases: tuple[str, ...] = ()
    quant_hint: str | None = None
    """How the named checkpoint stores its weights (``awq-int4``, ``nf4`` ...), where the name says so."""
    exact: bool = True
    """Whether the name leaves one entry; else it is the likeliest of several."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], name: str, *, source: str = "") -> ModelEntry:
        """An entry from a model's own ``config.json``.

        :raises CatalogError: when it holds no dimension of a model.
        """
        if not any(key in config for key in _SIZE_FIELDS):
            raise CatalogError(
                "not a model's config.json: no hidden_size in it",
                where=name,
                hint="give the config.json that lies beside the weights",
            )
        return cls(name=name, config=dict(config), source=source or "config.json given by the user")


@dataclass(frozen=True, slots=True)
class Family:
    """The models of one file."""

    file: str
    models: tuple[ModelEntry, ...]
    spellings: Mapping[str, str] = field(default_factory=dict)
    weak: frozenset[str] = frozenset()


def _over(of: Any, own: Any) -> Any:
    return {**of, **own} if isinstance(of, dict) and isinstance(own, dict) else own


def _models(head: Mapping[str, Any]) -> Iterator[ModelEntry]:
    sources: Mapping[str, str] = head.get("sources", {})
    configs: dict[str, Mapping[str, Any]] = {}
    for raw in head["models"]:
        start = configs[raw["like"]] if "like" in raw else head.get("defaults", {})
        config = {**start, **{key: _over(start.get(key), value) for key, value in raw.get("config", {}).items()}}
        configs[raw["name"]] = config
        keys = [raw.get("source", head.get("source", "")), raw.get("params_source", "")]
        yield ModelEntry(
            name=raw["name"],
            config=config,
            params=raw.get("params"),
            source="; ".join(dict.fromkeys(sources.get(key, key) for key in keys if key)),
            aliases=tuple(raw.get("match", ())),
        )


@cache
def families() -> tuple[Family, ...]:
    """Every family of the shipped catalogue, in the order of the file names."""
    found = []
    for path in sorted(DATA.glob("*.json")):
        head = json.loads(path.read_text(encoding="utf-8"))
        found.append(
            Family(path.name, tuple(_models(head)), head.get("spellings", {}), frozenset(head.get("weak", ())))
        )
    return tuple(found)


def home() -> Path:
    """Where a person's own models lie: ``$OOMDOC_HOME/models`` or ``~/.config/oomdoc/models``."""
    base = os.environ.get("OOMDOC_HOME")
    return (Path(base) if base else Path.home() / ".config" / "oomdoc") / "models"


def read_config(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    :raises CatalogError: for a file that cannot be read or holds none.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CatalogError(f"cannot be read: {error}", where=str(path), hint=_HINT) from error
    if not isinstance(config, dict):
        raise CatalogError("is no JSON object", where=str(path), hint=_HINT)
    return config


def user_models(folder: Path) -> tuple[ModelEntry, ...]:
    """The models that a person added; a file that cannot be read is an error naming it.

    :raises CatalogError: for a file that is no JSON object or no model.
    """
    found = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        config = read_config(path)
        name = str(config.get("_name_or_path") or config.get("name") or path.stem)
        found.append(ModelEntry.from_config(config, name, source=str(path)))
    return tuple(found)
