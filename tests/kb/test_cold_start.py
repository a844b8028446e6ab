"""What keeps a cold start short: expressions that wait for their first search, and what is worked out once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from oomkb import kept as expressions
from oomkb import tables
from oomkb.kept import Kept


def test_a_lazy_expression_is_the_expression() -> None:
    pattern = expressions.lazy(r"(\d{1,3}) gpus?", re.I)
    assert "_given" in vars(pattern)
    assert "search" not in vars(pattern)
    found = pattern.search("8 GPUs")
    assert found is not None
    assert found[1] == "8"
    assert pattern.sub("x", "2 gpu") == "x"
    assert pattern.groups == 1
    assert pattern.fullmatch("2 cpu") is None


def test_an_expression_is_the_same_from_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOMDOC_STATE", str(tmp_path))
    text, flags = r"(?P<size>\d{1,3})\s(?:(gib)|内存)(?=[,;]|\Z)", re.IGNORECASE
    plain = re.compile(text, flags)
    for _ in ("made", "kept"):
        kept = Kept("expressions.json", "1", 9)
        monkeypatch.setattr(expressions, "_KEPT", kept)
        found = expressions.compiled(text, flags)
        assert (found.pattern, found.flags, found.groupindex) == (plain.pattern, plain.flags, plain.groupindex)
        match = found.search("80 GiB, 24 内存")
        assert match is not None
        assert match.groupdict() == {"size": "80"}
        kept.write()
    # What is damaged is compiled anew.
    entry = json.loads((tmp_path / "expressions.json").read_text("utf-8"))["files"][f"{int(flags)}:{text}"]
    entry[1] = "00000000" + entry[1][16:]
    kept.put(f"{int(flags)}:{text}", entry)
    assert expressions.compiled(text, flags).fullmatch("80 gib") is not None
    with pytest.raises(re.error):
        expressions.compiled("(", 0)


def test_a_table_is_read_from_what_was_kept_until_its_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OOMDOC_STATE", str(tmp_path / "state"))
    before = Kept("tables.json", "2", 9)
    monkeypatch.setattr(tables, "_KEPT", before)
    file = tmp_path / "a.toml"
    file.write_text('a = 1\n[b]\nc = ["x", 2.5]\n', "utf-8")
    first = tables.read_toml(file)
    assert first == {"a": 1, "b": {"c": ["x", 2.5]}}
    before.write()
    monkeypatch.setattr(tables, "_KEPT", Kept("tables.json", "2", 9))
    kept = json.loads((tmp_path / "state/tables.json").read_text("utf-8"))
    assert list(kept["files"]) == [str(file.resolve())]
    second = tables.read_toml(file)
    second["b"]["c"].clear()  # a caller may change what it is given
    assert tables.read_toml(file) == first
    file.write_text("a = 22222\n", "utf-8")
    assert tables.read_toml(file) == {"a": 22222}
