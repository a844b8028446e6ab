"""The encoder: right weights, the same vectors as sentence-transformers, and neither torch nor it in the process."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from oomkb.errors import OomdocError
from oomkb.retrieval import onnx_model
from oomkb.retrieval.embed import encoder
from oomkb.retrieval.model_files import DEFAULT_SHA256, ModelFiles, find_model

TEXTS = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB",
    "short",
    "",
    "显存 不足 gradient checkpointing",
    "stage3_prefetch_bucket_size _create_fp32_partitions " * 60,
]


@pytest.fixture(scope="module", autouse=True)
def _state(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OOMDOC_STATE", str(tmp_path_factory.mktemp("state")))
        patch.delenv("OOMDOC_EMBEDDING_MODEL", raising=False)
        yield


def test_default_weights_are_the_known_ones():
    assert find_model().checked_hash() == DEFAULT_SHA256


def test_other_weights_are_refused(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"not the weights")
    with pytest.raises(OomdocError, match="SHA-256"):
        ModelFiles("m", tmp_path, DEFAULT_SHA256).checked_hash()


def test_a_model_that_is_not_there_says_what_to_do(tmp_path):
    with pytest.raises(OomdocError, match="OOMDOC_EMBEDDING_MODEL"):
        find_model(str(tmp_path / "absent"))


def test_vectors_have_length_one_and_do_not_depend_on_the_batch():
    together = encoder().encode(TEXTS)
    assert together.shape == (len(TEXTS), 384)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    for row, text in zip(together, TEXTS, strict=True):
        np.testing.assert_allclose(encoder().encode([text])[0], row, atol=1e-4)


def test_a_damaged_export_is_made_again():
    folder = onnx_model.exported(find_model())
    before = encoder().encode(TEXTS[:1])
    (folder / "model.bin").unlink()  # a new file: the open session above keeps its mapping of the old one
    (folder / "model.bin").write_bytes(b"cut")
    assert onnx_model.exported(find_model()) == folder
    np.testing.assert_array_equal(onnx_model.OnnxEncoder(find_model()).encode(TEXTS[:1]), before)


def test_a_model_in_a_folder_is_one_setting_away(tmp_path, monkeypatch):
    copy = tmp_path / "mine"
    shutil.copytree(find_model().folder, copy)
    monkeypatch.setenv("OOMDOC_EMBEDDING_MODEL", str(copy))
    assert encoder().key.startswith(str(copy))
    monkeypatch.delenv("OOMDOC_EMBEDDING_MODEL")
    assert encoder().key.startswith("all-MiniLM-L6-v2@")


def test_a_query_loads_neither_torch_nor_sentence_transformers():
    encoder()  # the export exists
    code = (
        "import sys, json; from oomkb.retrieval.embed import encoder; v = encoder().encode(['cuda out of memory']);"
        "print(json.dumps([m for m in ('torch', 'sentence_transformers', 'transformers', 'onnx') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_equal_to_sentence_transformers():
    sentence_transformers = pytest.importorskip("sentence_transformers")
    reference = sentence_transformers.SentenceTransformer(str(find_model().folder), device="cpu")
    expected = reference.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(encoder().encode(TEXTS), expected, atol=1e-4)


@pytest.mark.parametrize(("said", "threads"), [("1", 1), ("1,2", 1), ("many", 2), ("", 2)])
def test_threads_follow_the_environment(monkeypatch, said, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    monkeypatch.setattr(onnx_model.os, "cpu_count", lambda: 8)
    opened = onnx_model.OnnxEncoder(find_model())
    assert opened._quick.get_session_options().intra_op_num_threads == threads


def test_quick_vectors_are_close_to_the_exact_ones_and_tell_texts_apart():
    texts = [text for text in TEXTS if text]
    exact, quick = encoder().encode(texts), encoder().encode_quickly(texts)
    assert np.allclose(np.linalg.norm(quick, axis=1), 1, atol=1e-5)
    assert (exact * quick).sum(axis=1).min() > 0.97
    # Each is nearest to itself, by more than the difference between the two ways.
    assert (quick @ exact.T).argmax(axis=1).tolist() == list(range(len(texts)))
    assert not np.array_equal(exact, quick)
