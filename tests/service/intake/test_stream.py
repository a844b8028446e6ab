"""Files of any size and packing; what is no text is refused with a clear error."""

from __future__ import annotations

import gzip
import random

import pytest
import zstandard

from oomdoc.intake import read_text
from oomdoc.intake.read import read
from oomdoc.intake.stream import condense, load_source
from oomkb.errors import InputError

OOM = "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of 79.15 GiB of which 1.25 GiB is free."
STEP = "[2025-01-01 12:00:00,000] [INFO] [rank{r}]: step {i} loss=2.{i} lr=1e-5 grad_norm=0.1 tokens/s=12345\n"


def big(failure_at: int, lines: int = 160_000) -> str:
    out = [STEP.format(r=i % 8, i=i) for i in range(lines)]
    out[failure_at] = (
        'Traceback (most recent call last):\n  File "trainer.py", line 3, in training_step\n    loss.backward()\n'
        + OOM
        + "\n"
    )
    return "".join(out)


@pytest.mark.parametrize("at", [10, 80_000, 159_990])
def test_a_failure_is_found_wherever_it_stands(tmp_path, at):
    path = tmp_path / "train.log"
    path.write_text(big(at), encoding="utf-8")
    seen = []
    source = load_source(path, lambda done, total: seen.append((done, total)))
    assert len(source.text) < 6 << 20
    assert "Tried to allocate 2.00 GiB" in source.text
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
    evidence = read_text(source.text)
    assert evidence.root.signal.rank == 5
    assert evidence.facts["phase"].value == "backward"


def test_many_failures_stay_within_the_budget(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("".join(OOM + "\n" + STEP.format(r=1, i=i) * 40 for i in range(6000)), encoding="utf-8")
    text = load_source(path).text
    assert len(text) < 6 << 20
    assert text.count("Tried to allocate") > 100


def test_packed_files(tmp_path):
    text = big(500, 2000)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "a.log.zst").write_bytes(zstandard.ZstdCompressor().compress(text.encode()))
    for name in ("a.log.gz", "a.log.zst"):
        assert load_source(tmp_path / name).text == text
        assert read([load_source(tmp_path / name)]).root.requested_bytes == 2 << 30


def test_small_files_are_read_whole(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\n模型: qwen\n", encoding="utf-8")
    assert load_source(path).text == "a: 1\n模型: qwen\n"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("noise", random.Random(1).randbytes(300_000)),
        ("elf", b"\x7fELF\x02\x01\x01" + bytes(5000)),
        ("cut.gz", gzip.compress(b"x" * 100_000, mtime=0)[:60]),
        ("cut.zst", zstandard.ZstdCompressor().compress(random.Random(2).randbytes(100_000))[:500]),
        ("x.xz", b"\xfd7zXZ\x00" + b"0" * 50),
        ("wide", "CUDA out of memory".encode("utf-16")),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as error:
        read([load_source(path)])
    assert name in error.value.where
    assert error.value.hint


def test_missing_and_folder(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_source(tmp_path / "missing.log")
    with pytest.raises(InputError, match="folder"):
        load_source(tmp_path)


def test_empty(tmp_path):
    (tmp_path / "empty.log").write_bytes(b"")
    evidence = read([load_source(tmp_path / "empty.log")])
    assert evidence.root is None
    assert [w.key for w in evidence.warnings] == ["intake.empty"]


def test_binary_text_is_refused():
    with pytest.raises(InputError, match="not text"):
        read_text("\x00\x01\x02" * 500)


def test_condense_keeps_beginning_end_and_failure():
    text = "first line\n" + big(80_000) + "last line\n"
    short = condense(text)
    assert short.startswith("first line")
    assert short.endswith("last line")
    assert "Tried to allocate 2.00 GiB" in short
