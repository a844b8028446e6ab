"""PyTorch memory snapshots are read without running what a pickle may hold."""

from __future__ import annotations

import os
import pickle

import pytest

from oomdoc.intake.read import read
from oomdoc.intake.stream import load_source
from oomkb.errors import InputError

GIB = 1 << 30
FRAMES = [
    {"filename": "/x/torch/nn/functional.py", "line": 3, "name": "cross_entropy"},
    {"filename": "/x/trainer.py", "line": 9, "name": "compute_loss"},
]
SNAPSHOT = {
    "segments": [
        {
            "total_size": 10 * GIB,
            "allocated_size": 8 * GIB,
            "blocks": [
                {"size": 8 * GIB, "requested_size": 8 * GIB, "state": "active_allocated", "frames": FRAMES},
                {"size": 2 * GIB, "state": "inactive"},
            ],
        }
    ],
    "device_traces": [
        [{"action": "alloc", "size": 1}, {"action": "oom", "size": 4 * GIB, "device_free": GIB, "frames": FRAMES}]
    ],
}


def test_holders_and_failure(tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(SNAPSHOT))
    evidence = read([load_source(path)])
    root = evidence.root
    assert (root.requested_bytes, root.free_bytes, root.allocated_bytes) == (4 * GIB, GIB, 8 * GIB)
    assert root.phase == "loss"
    holder = next(evidence.find("memory-snapshot-holder"))
    assert holder.data["held_bytes"] == 8 * GIB
    assert "functional.py:3" in holder.data["owner"]


class _Evil:
    def __reduce__(self):
        return (os.system, ("touch /tmp/oomdoc-evil",))


@pytest.mark.parametrize("value", [_Evil(), {"segments": [_Evil()]}, {"no": "segments"}, [1, 2]])
def test_anything_else_is_refused(tmp_path, value):
    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps(value))
    with pytest.raises(InputError):
        read([load_source(path)])
    assert not os.path.exists("/tmp/oomdoc-evil")  # noqa: PTH110


@pytest.mark.parametrize("data", [pickle.dumps(SNAPSHOT)[:50], b"\x80\x04garbage", b"\x80\x05."])
def test_damaged(tmp_path, data):
    path = tmp_path / "cut.pickle"
    path.write_bytes(data)
    with pytest.raises(InputError):
        read([load_source(path)])
