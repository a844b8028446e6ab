"""What the loader of the families' table refuses, and that every name in it leads to a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oomkb.errors import CatalogError
from oomkb.memory.families.family import DECODERS, FAMILIES, TOWERS, families_of
from oomkb.tables import read_table, spellings

LLAMA = {"mlp_bias": "mlp_bias"}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"norms": "two"}, "norms"),
        ({"norms": True}, "norms"),
        ({"heads": 2}, "heads"),
        ({"norm": "layernorm"}, "norm"),
        ({"names": "q k v"}, "names"),
        ({"defaults": "head_dim"}, "defaults"),
        ({"like": "nobody"}, "nobody"),
        ({"like": "other"}, "like itself"),
    ],
)
def test_a_row_that_cannot_be_meant_is_refused(row: dict[str, Any], problem: str) -> None:
    with pytest.raises(CatalogError, match=problem):
        families_of({"llama": LLAMA, "other": row}, {})


def test_a_name_has_one_row() -> None:
    with pytest.raises(CatalogError, match="llama"):
        families_of({"llama": LLAMA}, {"llama": "llama"})
    with pytest.raises(CatalogError, match="twin"):
        list(spellings({"llama": "twin", "gpt2": "twin"}))


def test_rows_start_from_others_without_their_defaults() -> None:
    found = families_of({"b": {"like": "a", "norm": "ln"}, "a": {**LLAMA, "defaults": {"head_dim": 64}}}, {"b": "c"})
    assert (found["b"].norm, found["b"].mlp_bias, found["b"].defaults) == ("ln", "mlp_bias", None)
    assert found["c"] is found["b"]


def test_every_wrapper_and_tower_leads_to_a_row() -> None:
    assert {*DECODERS.values(), *TOWERS.values()} <= set(FAMILIES)


def test_a_table_that_cannot_be_read_names_its_file(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("[a]\n[b]\n", encoding="utf-8")
    with pytest.raises(CatalogError, match="b"):
        read_table(file, "a")
    file.write_text("[a", encoding="utf-8")
    with pytest.raises(CatalogError, match=r"x\.toml"):
        read_table(file)
