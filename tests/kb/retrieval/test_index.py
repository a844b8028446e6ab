"""The index: swapped whole, rebuilt when stale or damaged, and only what changed is embedded again."""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oomkb.retrieval import index as index_module
from oomkb.retrieval.index import build_index, open_index


def reopened(cases):
    """As another process would open it."""
    index_module._held.cache_clear()
    return open_index(cases)


def generation(tmp_path):
    (pointer,) = (tmp_path / "state" / "index").glob("*/CURRENT")
    return pointer.parent / pointer.read_text()


def test_first_use_builds_it_and_the_second_embeds_nothing(model, cases):
    first = open_index(cases)
    assert first.case_vectors.ntotal == len(first.case_owners) == 2 * len(cases)
    model.texts.clear()
    assert open_index(cases) is first
    second = reopened(cases)
    assert model.texts == []
    assert second.manifest == first.manifest


def test_a_changed_case_is_embedded_alone(model, cases):
    open_index(cases)
    model.texts.clear()
    changed = replace(cases[0], symptoms=("another symptom altogether",), digest="new")
    found = open_index((changed, *cases[1:]))
    assert model.texts == ["another symptom altogether"]
    vector = found.case_vectors.reconstruct(1)
    np.testing.assert_allclose(vector, model.encode(["another symptom altogether"])[0], atol=1e-6)


def test_adding_and_removing_cases_reembeds_nothing_else(model, cases):
    open_index(cases[:4])
    model.texts.clear()
    assert len(open_index(cases).cases) == len(cases)
    assert len(model.texts) == 2 * (len(cases) - 4)
    model.texts.clear()
    assert len(open_index(cases[2:]).cases) == len(cases) - 2
    assert model.texts == []


def test_another_model_embeds_everything_again(model, cases, monkeypatch):
    open_index(cases)
    model.texts.clear()
    monkeypatch.setattr(index_module, "model_stamp", lambda *_: "hashed-words|2")
    monkeypatch.setattr(type(model), "key", "hashed-words@2")
    open_index(cases)
    assert len(model.texts) > 2 * len(cases)


@pytest.mark.parametrize("name", ["manifest.json", "cases.faiss", "causes.faiss", "case-words.npz", "case-words.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_index_is_built_again(model, cases, tmp_path, name, damage):
    open_index(cases)
    path = generation(tmp_path) / name
    data = path.read_bytes()
    path.unlink()
    if damage != "gone":
        middle = len(data) // 2
        path.write_bytes(data[:middle] if damage == "cut" else data[:middle] + b"\x00\x01" + data[middle + 2 :])
    assert reopened(cases).case_vectors.ntotal == 2 * len(cases)
    assert generation(tmp_path).name == "gen-2"


def test_a_pointer_to_nowhere_is_mended(model, cases, tmp_path):
    open_index(cases)
    (generation(tmp_path).parent / "CURRENT").write_text("gen-77")
    assert len(reopened(cases).cases) == len(cases)


def test_progress_is_told(model, cases):
    told = []
    build_index(cases, lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] > 0


CHILD = """
import sys, time
sys.path.insert(0, {here!r})
from dataclasses import replace
from standins import HashedWords, some_cases
from oomkb import state
from oomkb.retrieval import index
index.encoder = lambda *_: HashedWords()
def hang(*_, **__):
    print("here", flush=True); time.sleep(60)
point = {point!r}
if point == "embedding": index._embedded = hang
if point == "writing": index.build_lexical = hang
if point == "renaming": state.Path.rename = hang
if point == "swapping": index.write_atomically = hang
if point == "clearing": index.shutil.rmtree = hang
cases = some_cases()
for n in range(3 if point == "clearing" else 1):
    index.build_index((replace(cases[0], digest=f"n{{n}}"), *cases[1:]))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("point", ["embedding", "writing", "renaming", "swapping", "clearing"])
def test_a_writer_killed_at_any_moment_leaves_a_readable_index(model, cases, tmp_path, point):
    open_index(cases)
    script = CHILD.format(here=str(Path(__file__).parent), point=point)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline().strip() == "here"
        child.send_signal(signal.SIGKILL)
    root = generation(tmp_path).parent
    manifest = index_module._manifest(generation(tmp_path))
    assert set(manifest["cases"]) == {c.id for c in cases}
    model.texts.clear()
    assert len(reopened(cases).cases) == len(cases)  # the lock went with the process
    assert model.texts == []  # whatever was in force still served its vectors
    build_index(cases)
    assert not list(root.glob(".tmp-*"))
    assert len(list(root.glob("gen-*"))) <= 2


def test_readers_never_see_half_an_index(model, cases):
    """Readers open again and again while a writer swaps between two sets of cases."""
    other = (replace(cases[0], digest="other", symptoms=("x y",)), *cases[1:])
    open_index(cases)
    root = index_module._scope(cases)
    stop, problems, seen = threading.Event(), [], set()

    def read():
        while not stop.is_set():
            for wanted in (cases, other):
                try:
                    found = index_module._in_force(root, wanted, index_module._fingerprint(wanted))
                    if found is not None:
                        seen.add(found.manifest["fingerprint"])
                        assert found.case_vectors.ntotal == len(found.case_owners)
                except Exception as error:
                    problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(12):
        build_index(other if turn % 2 == 0 else cases)
    stop.set()
    for reader in readers:
        reader.join()
    assert problems == []
    assert len(seen) == 2


def test_state_that_cannot_be_written_says_so(cases, monkeypatch, tmp_path):
    from oomkb.errors import OomdocError
    from oomkb.state import state_dir

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OOMDOC_STATE", str(tmp_path / "file" / "below"))
    with pytest.raises(OomdocError, match="OOMDOC_STATE"):
        state_dir()


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write anywhere")
def test_a_home_that_cannot_be_written_falls_back_to_a_private_folder(monkeypatch, tmp_path):
    from oomkb.state import state_dir

    tmp_path.chmod(0o500)
    monkeypatch.delenv("OOMDOC_STATE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert f"oomdoc-{os.getuid()}" in str(state_dir())


def test_what_an_image_was_built_with_is_read_and_never_written(model, cases, monkeypatch, tmp_path):
    first = open_index(cases)
    baked = tmp_path / "baked"
    (tmp_path / "state").rename(baked)
    before = {path: path.stat().st_mtime_ns for path in sorted(baked.rglob("*"))}
    for path in before:
        path.chmod(0o555 if path.is_dir() else 0o444)
    monkeypatch.setenv("OOMDOC_BAKED", str(baked))
    model.texts.clear()
    assert reopened(cases).manifest == first.manifest
    assert not list((tmp_path / "state").rglob("CURRENT"))
    # Another state of the cases: an index of its own, but the texts that are known are not embedded again.
    changed = replace(cases[0], symptoms=("another symptom altogether",), digest="new", path="/elsewhere/a/b.yaml")
    index_module._held.cache_clear()
    assert open_index((changed, *cases[1:])).case_vectors.ntotal == 2 * len(cases)
    assert model.texts == ["another symptom altogether"]
    assert list((tmp_path / "state").rglob("CURRENT"))
    assert {path: path.stat().st_mtime_ns for path in sorted(baked.rglob("*"))} == before
    for path in before:
        path.chmod(0o755)


def test_a_baked_folder_that_is_damaged_or_missing_does_no_harm(model, cases, monkeypatch, tmp_path):
    monkeypatch.setenv("OOMDOC_BAKED", str(tmp_path / "nowhere"))
    assert open_index(cases).case_vectors.ntotal == 2 * len(cases)
    baked = tmp_path / "baked"
    (tmp_path / "state").rename(baked)
    next(baked.rglob("manifest.json")).write_bytes(b"{")
    monkeypatch.setenv("OOMDOC_BAKED", str(baked))
    assert reopened(cases).case_vectors.ntotal == 2 * len(cases)
