"""Traces of one mechanism each, few layers, phase by phase; transformers 5.23, peft 0.21.2, torch 2.13.

``awq``: LoRA over AWQ's words as GPTQModel 7.7's autograd function multiplies by them (``bench/trace_gptq.py``); its
kernel for up to 1,024 rows makes no whole matrix in forward, which the tape does.
``lisa``: two layers of seven in training, as LMFlow's callback chooses them; here the third and the last but one, on the
tape the uppermost two, whose gradients wait longer (``bench/trace_blocks.py``).
``offloaded``: ``torch.autograd.graph.save_on_cpu`` without checkpointing (``bench/trace_offloaded.py``).
``packed``: sequences without padding under FlashAttention's kernel for varying lengths (``bench/trace_packed.py``).
``blocks``: BAdam's own optimizer over one layer (``bench/trace_blocks.py``); the passes are counted as if all of the
model were trained, which is more than they hold.
``distillation``: divergences of a student from its teacher, as TRL 1.16's GKD trainer computes them for each ``beta``
(``bench/trace_distillation.py``).
``evaluation``: logits kept for ``compute_metrics`` by transformers' own container (``bench/trace_evaluation.py``).
``gptq``: LoRA over weights that are dequantized in plain torch, as GPTQModel 7.7 trains (``bench/trace_gptq.py``).
``kbit``: QLoRA over bitsandbytes 0.50.2's own modules, with and without ``prepare_model_for_kbit_training``
(``bench/trace_kbit.py``, small real tensors).
``loops``: what ordinary scripts keep alive (``bench/trace_loops.py``); with a cache the model leaves its mask out, which
the tape does not: 4 %.
``ppo``: policy and critic, trained together as TRL 1.10's PPO trainer does and one after the other as verl does
(``bench/trace_ppo.py``).
``verl``: log-probabilities and entropy of verl's actor (``bench/trace_verl.py``, verl 0.9.1).
``replicated``: DDP with its buckets, FSDP1's hybrid (``bench/trace_replicated.py``), FSDP1 without resharding
(``SHARD_GRAD_OP``) and FSDP2 without (``bench/trace.py``).
``selective``: checkpointing by operation with torchtitan 0.3's policy (``bench/trace_selective.py``).
"""

import json
from pathlib import Path

import pytest

from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB

DATA = Path(__file__).parent / "data"
FILES = (
    "awq",
    "blocks",
    "distillation",
    "evaluation",
    "gptq",
    "kbit",
    "lisa",
    "loops",
    "offloaded",
    "packed",
    "verl",
    "ppo",
    "replicated",
    "selective",
)
ROWS = [json.loads(line) for name in FILES for line in (DATA / f"{name}.jsonl").read_text().splitlines()]
PHASES = {
    "forward": ("forward", "loss"),
    "backward": ("backward",),
    "step": ("optimizer-step",),
    "eval": ("evaluation",),
}


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_every_phase(row):
    said = estimate(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"]))
    measured, within = row["measured"], row.get("within", 0.01)
    for name, phases in PHASES.items():
        if f"peak_{name}" in measured:
            most = max(said.phases[p].total_bytes for p in phases if p in said.phases) / GIB
            assert most == pytest.approx(measured[f"peak_{name}"], rel=within), name
    if "peak_eval" not in measured:
        assert said.allocated_bytes / GIB == pytest.approx(
            measured["allocated_gib"], rel=min(within, row.get("peak_within", 0.02))
        )
