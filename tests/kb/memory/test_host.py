"""Host memory against what real code took on the CPU (``bench/measure_host.py``)."""

import json
from pathlib import Path

import pytest

from oomkb.memory.host import LIBRARIES_BYTES, WORKER_BYTES, load_terms
from oomkb.memory.job import Job
from oomkb.pricing import price
from oomkb.units import GIB, MIB

ROWS = {
    row["id"]: row["measured"]
    for row in map(json.loads, (Path(__file__).parent / "data" / "host.jsonl").read_text().splitlines())
}
CASTS = {"load-same-dtype": 1.0, "load-fp32-as-bf16": 2.0, "load-bf16-as-fp32": 0.5, "load-pickled": 1.0}
QWEN = {"model": "Qwen/Qwen2.5-7B", "gpus": 8, "gpu": "H100"}


@pytest.mark.parametrize(("name", "stored"), CASTS.items())
def test_loading(name, stored):
    row = ROWS[name]
    said = load_terms(row["weights"], stored=stored * row["weights"], cast=stored != 1.0)
    assert said["weights"] == pytest.approx(row["anon"], rel=0.03, abs=4)
    assert said["mapped files"] == pytest.approx(row["file"], rel=0.06)


def test_saving_from_the_host_copies_nothing():
    assert ROWS["save-safetensors"]["anon"] < 1
    assert ROWS["save-after-training"]["anon"] < 1


def test_workers():
    assert pytest.approx(ROWS["workers-2"]["private_each"], rel=0.1) == WORKER_BYTES / MIB


def test_libraries():
    assert 0.95 * LIBRARIES_BYTES / MIB <= ROWS["imports"]["anon"] <= 1.35 * LIBRARIES_BYTES / MIB


@pytest.mark.parametrize(
    ("fields", "phase", "term", "gib"),
    [
        ({"param_dtype": "fp32", "sharding": "ddp"}, "load", "weights", 8 * 7.616 * 4e9 / GIB),
        ({"param_dtype": "fp32", "sharding": "fsdp"}, "load", "weights", 7.616 * 4e9 / GIB),
        ({"param_dtype": "bf16", "sharding": "ddp"}, "load", "weights", 0.0),
        ({"param_dtype": "bf16", "sharding": "ddp"}, "load", "mapped files", 7.616 * 2e9 / GIB),
        ({"param_dtype": "bf16", "sharding": "fsdp"}, "save", "state dict", 7.616 * 2e9 / GIB),
        ({"method": "lora", "lora": {"r": 8}, "sharding": "fsdp"}, "save", "state dict", 0.0),
        ({"dataloader_num_workers": 4, "sharding": "ddp"}, "training", "workers", 8 * 4 * 16 / 1024),
    ],
)
def test_a_machines_phases(fields, phase, term, gib):
    found = price(Job.from_document({**QWEN, **fields})).estimate.host_phases[phase]
    assert found.terms_bytes.get(term, 0.0) / GIB == pytest.approx(gib, rel=0.01)
