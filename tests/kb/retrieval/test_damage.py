"""Files that a query is computed from are checked when they are opened: none may change answers in silence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from oomkb.retrieval.model_files import find_model
from oomkb.retrieval.onnx_model import OnnxEncoder, exported


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An export of one's own, to be damaged."""
    kept = exported(find_model())
    monkeypatch.setenv("OOMDOC_STATE", str(tmp_path))
    folder = tmp_path / "models" / kept.name
    shutil.copytree(kept, folder)
    return folder


@pytest.mark.parametrize(("name", "quick"), [("quick.bin", True), ("quick.onnx", True), ("model.bin", False)])
def test_a_flipped_byte_changes_no_answer(model: Path, name: str, quick: bool) -> None:
    def vector() -> list[float]:
        encoder = OnnxEncoder(find_model())
        return list((encoder.encode_quickly if quick else encoder.encode)(["CUDA out of memory"])[0])

    right = vector()
    damaged = bytearray((model / name).read_bytes())
    middle = len(damaged) // 2
    damaged[middle : middle + 64] = bytes(b ^ 0x55 for b in damaged[middle : middle + 64])
    (model / name).write_bytes(damaged)
    assert vector() == right
    assert (model / name).read_bytes() != bytes(damaged)
