"""Shipped and private cases, what is wrong with some, and the compiled form that a cold start reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oomkb.errors import RecordError
from oomkb.records import compiled, loader
from oomkb.records.loader import cases_dir, load, load_cases, parse_case, read_case


@pytest.fixture
def folder(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of three shipped cases, and a state folder of its own."""
    monkeypatch.setenv("OOMDOC_STATE", str(tmp_path / "state"))
    loader._load.cache_clear()
    target = tmp_path / "cases"
    for path in sorted((root / "cases").glob("*/*.yaml"))[:3]:
        (target / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target / path.parent.name)
    return target


def test_the_shipped_cases_load_in_order_without_problems() -> None:
    loaded = load()
    assert loaded.problems == ()
    ids = [case.id for case in loaded.cases]
    assert ids == sorted(ids)
    assert len(ids) == len(list(cases_dir().glob("*/*.yaml")))
    assert not any(case.private for case in loaded.cases)


def test_private_cases_join_and_win(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = load_cases()
    monkeypatch.setenv("OOMDOC_CASES", f"{folder}{os.pathsep}/nowhere/at/all")
    both = load_cases()
    assert [c.id for c in both] == [c.id for c in shipped]
    assert sum(c.private for c in both) == 3
    mine = folder / "logits" / "of-my-own.yaml"
    mine.parent.mkdir(exist_ok=True)
    shutil.copy(next(folder.glob("*/*.yaml")), mine)
    assert "logits/of-my-own" in {c.id for c in load_cases() if c.private}


def test_a_broken_file_is_left_out_and_told(folder: Path) -> None:
    (folder / "logits").mkdir(exist_ok=True)
    (folder / "logits" / "broken.yaml").write_text("schema: 2\ntitle: 3\n")
    loaded = load([folder])
    assert len(loaded.cases) == 3
    assert "broken.yaml" in loaded.problems[0].where
    loader._load.cache_clear()
    again = load([folder])
    assert [str(p) for p in again.problems] == [str(p) for p in loaded.problems]


def test_the_compiled_form_is_the_same_and_noticed_when_stale(folder: Path, tmp_path: Path) -> None:
    first = load([folder])
    assert list((tmp_path / "state").glob("cases-*.json"))
    loader._load.cache_clear()
    assert load([folder]) == first
    path = next(folder.glob("*/*.yaml"))
    path.write_text(path.read_text().replace("date: 20", "date: 20", 1) + "# touched\n")
    changed = load([folder])
    assert {c.digest for c in changed.cases} != {c.digest for c in first.cases}


def test_a_damaged_compiled_form_is_made_again(folder: Path, tmp_path: Path) -> None:
    first = load([folder])
    for path in (tmp_path / "state").glob("cases-*.json"):
        path.write_text("{broken")
    loader._load.cache_clear()
    assert load([folder]) == first


def test_nothing_is_kept_where_nothing_can_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOMDOC_STATE", "/proc/nowhere")
    assert len(load([folder]).cases) == 3
    assert compiled.load("0" * 64, "x") is None


def test_a_warm_load_reads_no_yaml_and_no_pydantic(folder: Path, tmp_path: Path, root: Path) -> None:
    load([folder])
    code = (
        "import sys; from oomkb.records.loader import load; n = len(load([sys.argv[1]]).cases); "
        "assert n == 3; print(sorted({'pydantic', 'yaml', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{root}/kb", "OOMDOC_STATE": str(tmp_path / "state")},
    )
    assert done.stdout.strip() == "[]"


def test_one_case_by_path_and_by_text(folder: Path) -> None:
    path = next(folder.glob("*/*.yaml"))
    case = read_case(path, private=True)
    assert case.private
    assert parse_case(path.read_text(), case_id=case.id).symptoms == case.symptoms
    with pytest.raises(RecordError, match=r"x/y: title"):
        parse_case("schema: 2\ntitle: 3\n", case_id="x/y")
