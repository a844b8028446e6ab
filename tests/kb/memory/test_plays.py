"""The tape against steps that libraries for GPUs take, played tensor by tensor (``bench/plan_play.py``, torch 2.13)."""

import json
from pathlib import Path

import pytest

from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "plays.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_played_step_is_met(row):
    said = estimate(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"])).allocated_bytes / GIB
    assert said == pytest.approx(row["allocated_gib"], rel=0.03)


def test_gradient_partitions_lie_where_the_optimizer_does():
    """DeepSpeed ``runtime/zero/stage3.py``: ``grad_partitions_flat_buffer`` is made on ``self.device``, the CPU's here."""
    job = {
        **{"framework": "deepspeed", "objective": "sft", "method": "full", "sharding": "zero3", "world": 2, "gpus": 2},
        **{"offload": ["optimizer"], "micro_batch": 1, "seq_len": 1024, "grad_ckpt": True, "optimizer": "adamw"},
    }
    shape = ModelShape.from_config(ROWS[0]["job"]["model"])
    once, often = (estimate(Job.from_document({**job, "grad_accum": n}), shape) for n in (1, 8))
    assert once.allocated_bytes == often.allocated_bytes
