"""Steps drawn at random over the catalogue's models, few layers each, traced with ``bench/trace.py``, phase by phase.

Versions: transformers 5.23, peft 0.21.2, torch 2.13. Drawn: family, precision, optimizer's implementation, attention,
batch, length (not only powers of two), checkpointing, adapters, DPO, FSDP2 over 2 to 64 ranks. The peak of every phase is
compared, not only the step's: what another phase hides in one job decides the next one.
"""

import json
import statistics
from pathlib import Path

import pytest

from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "drawn.jsonl").read_text().splitlines()]
PHASES = {"forward": ("forward", "loss"), "backward": ("backward",), "step": ("optimizer-step",)}


def errors(row):
    said = estimate(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"]))
    found = {"peak": said.allocated_bytes / GIB / row["measured"]["allocated_gib"] - 1}
    for name, phases in PHASES.items():
        most = max(said.phases[p].total_bytes for p in phases if p in said.phases)
        found[name] = most / GIB / row["measured"][f"peak_{name}"] - 1
    return found


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_every_phase_of_a_drawn_step(row):
    found = errors(row)
    worst = max(found, key=lambda name: abs(found[name]))
    assert abs(found[worst]) < 0.02, f"{worst}: {found[worst]:+.2%}"


def test_mean_over_the_drawn_steps():
    assert statistics.mean(abs(errors(row)["peak"]) for row in ROWS) < 0.002
