"""``oomdoc estimate --allocator``: figures, a snapshot and a picture; clear errors for what is not replayed."""

import json
import pickle

import pytest
from typer.testing import CliRunner

from oomdoc.cli.main import app
from oomkb.errors import JobError

JOB = ["--set", "model=Qwen/Qwen2.5-0.5B", "--set", "seq_len=256", "--set", "micro_batch=1"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*more):
    return CliRunner().invoke(app, ["estimate", *JOB, "--allocator", *more])


@pytest.mark.parametrize(("language", "said"), [("en", "reserved at most"), ("zh", "最多保留")])
def test_it_prints_and_writes(tmp_path, language, said):
    done = run("--lang", language)
    assert done.exit_code == 0, done.output
    assert said in done.stdout
    snapshot = pickle.loads((tmp_path / "oomdoc.snapshot.pickle").read_bytes())
    assert snapshot["segments"]
    assert snapshot["device_traces"][0]


def test_the_document_has_its_figures(tmp_path):
    pytest.importorskip("matplotlib")
    done = run("--format", "json", "--set", "capacity_gib=3.5")
    found = json.loads(done.stdout)["allocator"]
    assert found["reserved_gib"] >= found["allocated_gib"] > 0
    assert found["refused"]["where"].startswith("step")
    assert set(found["expandable"]) == {"reserved_gib", "fits"}
    assert found["files"] == ["oomdoc.snapshot.pickle", "oomdoc.snapshot.png"]
    assert (tmp_path / "oomdoc.snapshot.png").stat().st_size > 1000


def test_serving_is_refused():
    assert isinstance(run("--set", "objective=inference").exception, JobError)
