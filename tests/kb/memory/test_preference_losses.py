"""Preference losses against steps of the trainers' own loss functions, few layers each (``bench/trace_preference.py``).

TRL 0.24.0, 1.10.0 and 1.16.0 (whose Triton kernels are left out, as they work in place), LLaMA-Factory 0.9.4 replayed;
transformers 5.23, peft 0.21.2, torch 2.13. ``micro_batch`` counts pairs, and single completions for KTO.
"""

import json
from pathlib import Path

import pytest

from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "preferences.jsonl").read_text().splitlines()]


def most(said, *phases):
    return max(said.phases[p].total_bytes for p in phases) / GIB


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_step_of_preference_training(row):
    said = estimate(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"]))
    measured = row["measured"]
    assert said.allocated_bytes / GIB == pytest.approx(measured["allocated_gib"], rel=0.01)
    assert most(said, "optimizer-step") == pytest.approx(measured["peak_step"], rel=0.005)


def in_tiles(row):
    return row["job"]["versions"].get("trl") == "1.16.0"


@pytest.mark.parametrize("row", [row for row in ROWS if in_tiles(row)], ids=lambda row: row["id"])
def test_passes_of_a_loss_that_is_made_in_tiles(row):
    said = estimate(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"]))
    passes = max(row["measured"]["peak_forward"], row["measured"]["peak_backward"])
    assert most(said, "forward", "loss", "backward") == pytest.approx(passes, rel=0.01)


WHOLE = [row for row in ROWS if not in_tiles(row)]


@pytest.mark.parametrize("row", WHOLE, ids=[row["id"] for row in WHOLE])
def test_each_pass_where_the_loss_is_not_made_in_tiles(row):
    said = estimate(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"]))
    assert most(said, "backward") == pytest.approx(row["measured"]["peak_backward"], rel=0.01)
    # KTO's unrelated completions go through casts of all weights once more where they are trained in fp32
    assert most(said, "forward", "loss") == pytest.approx(row["measured"]["peak_forward"], rel=0.05)


ONLINE = [json.loads(line) for line in (Path(__file__).parent / "data" / "online.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", ONLINE, ids=[row["id"] for row in ONLINE])
def test_a_step_of_trls_online_trainers(row):
    """The losses of ``GRPOTrainer`` and ``RLOOTrainer`` themselves (``bench/trace_online.py``)."""
    said = estimate(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"]))
    forward = max(said.phases[p].total_bytes for p in ("forward", "loss")) / GIB
    assert said.allocated_bytes / GIB == pytest.approx(row["measured"]["allocated_gib"], rel=0.01)
    assert forward == pytest.approx(row["measured"]["peak_forward"], rel=0.02)
