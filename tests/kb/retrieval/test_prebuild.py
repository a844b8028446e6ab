"""What a wheel brings ready made is used as it is, checked by its hashes, and refused where it is damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from oomkb.errors import OomdocError
from oomkb.records import compiled
from oomkb.records.files import listed
from oomkb.records.loader import cases_dir, load
from oomkb.retrieval.model_files import DEFAULT_NAME, find_model
from oomkb.retrieval.onnx_model import EIGHT_BIT_FILES, OnnxEncoder, exported
from oomkb.retrieval.prebuild import _TOKENIZER_FILES


@pytest.fixture
def baked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The encoder as a wheel brings it; the weights are not in it."""
    files = find_model("")
    place = tmp_path / "baked" / "models" / DEFAULT_NAME
    for folder, names in ((files.folder, _TOKENIZER_FILES), (exported(files), EIGHT_BIT_FILES)):
        for name in names:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, place / name)
    monkeypatch.setenv("OOMDOC_BAKED", str(tmp_path / "baked"))
    monkeypatch.setenv("OOMDOC_STATE", str(tmp_path / "state"))
    return place


def test_the_encoder_of_a_wheel_needs_no_weights_and_writes_nothing(baked: Path, tmp_path: Path) -> None:
    files = find_model("")
    assert files.folder == baked
    assert files.is_exported
    encoder = OnnxEncoder(files)
    texts = ["CUDA out of memory", "显存不足"]
    np.testing.assert_array_equal(encoder.encode(texts), encoder.encode_quickly(texts))
    assert not list((tmp_path / "state").rglob("*.onnx"))


def test_a_damaged_encoder_is_refused(baked: Path) -> None:
    data = bytearray((baked / "quick.bin").read_bytes())
    data[len(data) // 2] ^= 0x55
    (baked / "quick.bin").write_bytes(data)
    with pytest.raises(OomdocError, match="damaged") as caught:
        OnnxEncoder(find_model("")).encode_quickly(["CUDA out of memory"])
    assert "install oomdoc again" in caught.value.hint


def test_parsed_cases_are_used_only_where_the_files_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "cases"
    some = next(cases_dir().glob("*/*.yaml"))
    (root / some.parent.name).mkdir(parents=True)
    copy = shutil.copyfile(some, root / some.parent.name / some.name)
    cases = load((root,)).cases
    (tmp_path / "baked").mkdir()
    compiled.store_with_package(tmp_path / "baked", root, listed(root), cases)
    monkeypatch.setenv("OOMDOC_BAKED", str(tmp_path / "baked"))
    assert compiled.load_with_package(root, listed(root)) == cases
    with Path(copy).open("a") as file:
        file.write("\n# changed\n")
    assert compiled.load_with_package(root, listed(root)) is None
