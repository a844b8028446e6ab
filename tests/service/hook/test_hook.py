"""The hook in a real training step on the CPU with a simulated allocation failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oomdoc.hook import Watch, capture, is_memory_failure
from oomdoc.hook_report import CAPTURE_SCHEMA, report_text
from oomdoc.intake import read
from oomdoc.intake.stream import load_source

MESSAGE = (
    "CUDA out of memory. Tried to allocate 4.64 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1.00 GiB is free."
)

STEP = """
import torch, oomdoc
oomdoc.watch(%r)
class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 1000)
    def forward(self, hidden):
        logits = self.linear(hidden)
        raise torch.OutOfMemoryError(%r)
class Args:
    per_device_train_batch_size = 4
    def to_dict(self):
        return {"per_device_train_batch_size": 4, "bf16": True, "hub_token": "hf_secret"}
def training_step(model, optimizer, args):
    model(torch.zeros(2, 8, 16)).sum().backward()
    optimizer.step()
model = Head()
training_step(model, torch.optim.AdamW(model.parameters(), lr=1e-4), Args())
"""


def test_a_training_step_that_fails(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = STEP % (str(tmp_path / "reports"), MESSAGE)
    environment = {**os.environ, "RANK": "3", "WORLD_SIZE": "8"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "OutOfMemoryError: CUDA out of memory" in done.stderr
    (path,) = (tmp_path / "reports").glob("oom-rank3-*.json")
    report = json.loads(path.read_text())
    assert {"name": "logits", "shape": [2, 8, 1000]}.items() <= next(
        t for t in report["tensors"] if t["name"] == "logits"
    ).items()
    assert report["modules"] == ["Head"]
    assert report["optimizer"]["type"] == "AdamW"
    assert report["settings"]["per_device_train_batch_size"] == 4
    assert "hf_secret" not in path.read_text()
    assert "oomdoc (report:" in done.stderr
    assert "4.64 GiB asked for" in done.stderr


def test_one_rank_of_a_job_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(RuntimeError), Watch(tmp_path):
            raise RuntimeError(MESSAGE)
    assert capsys.readouterr().err.count("oomdoc (report:") == 1
    assert len(list(tmp_path.glob("oom-rank*.json"))) >= 1


def test_other_errors_are_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to do with it"), Watch(tmp_path / "reports"):
        raise ValueError("nothing to do with it")
    assert not (tmp_path / "reports").exists()


def test_a_report_that_cannot_be_written_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RuntimeError, match="out of memory"), Watch(tmp_path / "file" / "reports"):
        raise RuntimeError(MESSAGE)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError(MESSAGE), True),
        (MemoryError(), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("shape mismatch"), False),
        (KeyError("memory"), False),
    ],
)
def test_what_counts(error: BaseException, expected: bool) -> None:
    assert is_memory_failure(error) is expected


def test_a_wrapped_failure_counts() -> None:
    cause = RuntimeError(MESSAGE)
    error = ValueError("step failed")
    error.__cause__ = cause
    assert is_memory_failure(error)
    assert MESSAGE in report_text(capture(error, None))


def test_a_report_file_is_diagnosed_as_its_text(tmp_path: Path) -> None:
    path = tmp_path / "oom-rank0.json"
    path.write_text(json.dumps(capture(RuntimeError(MESSAGE), None)))
    source = load_source(path)
    assert MESSAGE in source.text
    assert read([source]).root is not None


@pytest.mark.parametrize("report", [[], {"command": 4}, {"versions": [1]}, {"allocator": "x"}])
def test_a_damaged_report_file_is_read_as_it_stands(tmp_path: Path, report: Any) -> None:
    path = tmp_path / "oom-rank0.json"
    path.write_text(json.dumps({"schema": CAPTURE_SCHEMA, **report} if isinstance(report, dict) else [CAPTURE_SCHEMA]))
    assert load_source(path).text == path.read_text()
