"""`oomdoc new` makes pieces that work: each kind is made in a copy of the checkout, and its own test passes there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoc.scaffold import scaffold
from oomkb.errors import InputError
from oomkb.topics import load_topics


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    root: Path = request.config.rootpath
    target = tmp_path_factory.mktemp("checkout")
    skip = shutil.ignore_patterns("__pycache__", "*.pyc")
    for folder in ("kb", "service", "cases"):
        shutil.copytree(root / folder, target / folder, ignore=skip)
    (target / "tests").mkdir()
    for file in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(root / file, target / file)
    return target


@pytest.mark.parametrize(("kind", "name"), [("parser", "newlib"), ("reader", "newframe"), ("fix", "new-remedy")])
def test_a_new_piece_passes_its_own_test(copy: Path, kind: str, name: str) -> None:
    _, test, *_ = scaffold(kind, name, copy)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy / "kb"), str(copy / "service")])}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(test)]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "passed" in done.stdout


def test_a_new_gpu_and_model_are_found(copy: Path) -> None:
    scaffold("gpu", "QX 9900", copy)
    scaffold("model", "lab/Quux-7B", copy)
    code = (
        "from oomkb.catalog import gpus, models; print(gpus.find('8 x QX 9900').name, models.find('lab/Quux-7B').name)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy / "kb"), str(copy / "service")])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "QX 9900 lab/Quux-7B", done.stderr[-2000:]


def test_a_new_topic_keeps_the_schema(copy: Path) -> None:
    (path,) = scaffold("topic", "Sequence packing", copy)
    assert "sequence-packing" in {topic.id for topic in load_topics(path.parent)}


def test_a_new_case_is_written_where_it_belongs(copy: Path) -> None:
    (path,) = scaffold("case", "my-new-case", copy, "logits")
    assert path == copy / "cases" / "logits" / "my-new-case.yaml"


def test_refusals(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no checkout"):
        scaffold("parser", "abc", tmp_path)
    with pytest.raises(InputError, match="no fit name"):
        scaffold("parser", "../abc", copy)
    with pytest.raises(InputError, match="this file exists"):
        scaffold("parser", "slurm", copy)
    with pytest.raises(InputError, match="already listed"):
        scaffold("fix", "adafactor", copy)
