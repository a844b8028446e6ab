"""What the fuzzer (``bench/fuzz_intake.py``) found, and a short run of its own mixtures."""

from __future__ import annotations

import random
from importlib import util
from pathlib import Path

import pytest

from oomdoc.intake import read_text

_spec = util.spec_from_file_location("fuzz_intake", Path(__file__).parents[3] / "bench" / "fuzz_intake.py")
assert _spec is not None
assert _spec.loader is not None
fuzz = util.module_from_spec(_spec)
_spec.loader.exec_module(fuzz)


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory \ud800 Tried to allocate 2.00 GiB",
        "爆显存了\udcff",
        "\udc80 --per_device_train_batch_size 4 \\\n\udfff",
    ],
)
def test_halves_of_characters(text):
    """Half a character cannot be written in UTF-8: the digest, and every answer, failed on it."""
    evidence = read_text(text)
    evidence.digest.encode()
    evidence.prose.encode()
    for fact in evidence.facts.values():
        str(fact.value).encode()


def test_made_up_mixtures_break_nothing(tmp_path):
    fuzzer = fuzz.Fuzzer("", tmp_path / "kept")
    rng = random.Random(20)
    for _ in range(160):
        fuzzer.one(fuzz.made_up(rng, fuzz.FRAGMENTS))
    assert {kind for kind in fuzzer.broken if "slow" not in kind} == set()
