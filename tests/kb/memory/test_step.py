"""The first prices of a step, read off its forms, and the later ones, from its reduced instants, are the same."""

import os
import subprocess
import sys

import pytest

from oomkb.memory import step as module
from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.shape import ModelShape
from oomkb.pricing import price

LLAMA = {
    "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 1408, "vocab_size": 32000,
}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
JOBS = [
    {"model": LLAMA, "grad_ckpt": True},
    {"model": LLAMA, "method": "lora", "lora": {"r": 8}, "autocast": "bf16"},
    {"model": MIXTRAL, "sharding": "fsdp2", "world": 8, "grad_ckpt": True, "fused_ce": True},
    {"model": LLAMA, "sharding": "zero3", "world": 8, "attention": "eager"},
]


@pytest.mark.parametrize("document", JOBS)
def test_every_way_of_pricing_gives_the_same(document, monkeypatch):
    sizes = [(b, n) for b in (1, 2, 5) for n in (64, 700, 4096)]
    found = {}
    for few in (0, 1000):
        monkeypatch.setattr(module, "_REDUCE_AFTER", few)
        shape = ModelShape.from_config(document["model"], name=f"{few}")
        job = Job.from_document(document)
        found[few] = [estimate(job.with_fields({"micro_batch": b, "seq_len": n}), shape).phases for b, n in sizes]
    for reduced, direct in zip(found[0], found[1000], strict=True):
        assert reduced.keys() == direct.keys()
        for name in reduced:
            assert reduced[name].total_bytes == pytest.approx(direct[name].total_bytes, rel=1e-12)


def test_the_same_job_costs_the_same_again():
    job = Job.from_document({**JOBS[0], "micro_batch": 4, "seq_len": 512})
    first = price(job).estimate
    for n in range(6):
        price(job.with_fields({"seq_len": 600 + n}))
    assert price(job).estimate.allocated_bytes == pytest.approx(first.allocated_bytes, rel=1e-12)


def test_terms_come_in_the_same_order_whatever_strings_hash_to():
    code = (
        "from oomkb.memory.job import Job; from oomkb.pricing import price;"
        "e = price(Job.from_document({'model': 'Qwen/Qwen3-30B-A3B', 'grad_ckpt': True})).estimate;"
        "print([(n, list(p.terms_bytes)) for n, p in e.phases.items()])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
