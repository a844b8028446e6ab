"""Traces of single mechanisms, and of steps drawn at random, few layers each, phase by phase (``bench/trace.py``).

``adapters``: DoRA with and without dropout, embedding and head trained beside adapters, evaluation between steps.
``drawn``: family, precision, optimizer's implementation, attention, batch, length (not only powers of two),
checkpointing, adapters, DPO, FSDP2 over 2 to 64 ranks, drawn over the catalogue's models.
``draws``: what ``bench/trace_draws.py`` drew and the model was mended by: token mixers that are not attention, experts
in fp32 under autocast and under optimizers, full DPO under autocast. Rows that are further off say how far (``within``).
``layers``: drawn like these, most with a small vocabulary, so that layers show that logits hide; of every family of
routed experts two.
``optimizers``: a step of torch's, transformers', bitsandbytes' and other packages' optimizers.
Versions: transformers 5.23, peft 0.21.2, torch 2.13 and (where FSDP2 differs) 2.15, bitsandbytes 0.50.2, galore-torch 1.0, apollo-torch 1.0.3 and
lion-pytorch 0.2.5. The peak of every phase is compared, not only the step's: what another phase hides in one job decides the next one.
"""

import json
import statistics
from pathlib import Path

import pytest

from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB

DATA = Path(__file__).parent / "data"
FILES = ("adapters", "drawn", "draws", "layers", "optimizers")
ROWS = [
    {**json.loads(line), "file": name} for name in FILES for line in (DATA / f"{name}.jsonl").read_text().splitlines()
]
PHASES = {"forward": ("forward", "loss"), "backward": ("backward",), "step": ("optimizer-step",)}


def errors(row):
    said = estimate(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"]))
    found = {}
    if "peak_eval" not in row["measured"]:  # which is not in the trace's own peak
        found["peak"] = said.allocated_bytes / GIB / row["measured"]["allocated_gib"] - 1
    for name, phases in PHASES.items():
        most = max(said.phases[p].total_bytes for p in phases if p in said.phases)
        found[name] = most / GIB / row["measured"][f"peak_{name}"] - 1
    return found


LOOSE = {"codegen-3-18": 0.03}
"""Known to be further off, at 300 tokens: CodeGen's blocks of fused queries, values and keys are played as plain ones."""


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['file']}/{row['id']}" for row in ROWS])
def test_every_phase_of_a_drawn_step(row):
    found = errors(row)
    worst = max(found, key=lambda name: abs(found[name]))
    assert abs(found[worst]) < row.get("within", LOOSE.get(row["id"], 0.02)), f"{worst}: {found[worst]:+.2%}"


@pytest.mark.parametrize("name", FILES)
def test_mean_over_the_steps_of(name):
    most = 0.006 if name in ("draws", "layers") else 0.002
    assert statistics.mean(abs(errors(row).get("peak", 0.0)) for row in ROWS if row["file"] == name) < most


EVALUATED = [row for row in ROWS if "peak_eval" in row["measured"]]


@pytest.mark.parametrize("row", EVALUATED, ids=[row["id"] for row in EVALUATED])
def test_a_batch_of_an_evaluation(row):
    said = estimate(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"]))
    assert said.phases["evaluation"].total_bytes / GIB == pytest.approx(row["measured"]["peak_eval"], rel=0.01)


def test_optimizer_states_are_those_traced():
    for row in (r for r in ROWS if r["file"] == "optimizers"):
        said = estimate(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"]))
        states = said.phases["optimizer-step"].terms_bytes.get("optimizer states", 0.0) / GIB
        traced = row["measured"]["after_step"] - row["measured"]["static_gib"]
        assert states == pytest.approx(traced, rel=0.01, abs=0.002), row["id"]
