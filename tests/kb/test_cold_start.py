"""What keeps a cold start short: expressions that wait for their first search, TOML that is parsed once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from oomkb import toml_files
from oomkb.lazy import lazy


def test_a_lazy_expression_is_the_expression() -> None:
    pattern = lazy(r"(\d{1,3}) gpus?", re.I)
    assert "_given" in vars(pattern)
    assert "search" not in vars(pattern)
    found = pattern.search("8 GPUs")
    assert found is not None
    assert found[1] == "8"
    assert pattern.sub("x", "2 gpu") == "x"
    assert pattern.groups == 1
    assert pattern.fullmatch("2 cpu") is None


def test_a_table_is_read_from_what_was_kept_until_its_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OOMDOC_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(toml_files, "_asked", {})
    toml_files._kept.cache_clear()
    file = tmp_path / "a.toml"
    file.write_text('a = 1\n[b]\nc = ["x", 2.5]\n', "utf-8")
    first = toml_files.read_toml(file)
    assert first == {"a": 1, "b": {"c": ["x", 2.5]}}
    toml_files._keep()
    toml_files._kept.cache_clear()
    monkeypatch.setattr(toml_files, "_asked", {})
    kept = json.loads((tmp_path / "state/tables.json").read_text("utf-8"))
    assert list(kept["files"]) == [str(file.resolve())]
    second = toml_files.read_toml(file)
    second["b"]["c"].clear()  # a caller may change what it is given
    assert toml_files.read_toml(file) == first
    file.write_text("a = 22222\n", "utf-8")
    assert toml_files.read_toml(file) == {"a": 22222}
    toml_files._kept.cache_clear()
