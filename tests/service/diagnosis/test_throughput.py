"""Speeds are rough; their order is not."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoc.diagnosis.throughput import Throughput, relative_speed, throughput
from oomkb.memory.job import Job
from oomkb.pricing import price

BASE: dict[str, Any] = {
    "framework": "transformers",
    "model": "Qwen/Qwen2.5-7B",
    "objective": "sft",
    "method": "full",
    "micro_batch": 4,
    "grad_accum": 4,
    "seq_len": 2048,
    "autocast": "bf16",
    "grad_ckpt": False,
    "sharding": "zero2",
    "gpu": "A100-80GB",
    "gpus": 8,
    "world": 8,
}


def speed(**changes: Any) -> Throughput:
    priced = price(Job.from_document({**BASE, **changes}))
    return throughput(priced.job, priced.shape, priced.device)


def against(**changes: Any) -> float:
    return relative_speed(speed(), speed(**changes))


def test_checkpointing_costs_about_a_quarter() -> None:
    assert 0.70 < against(grad_ckpt=True) < 0.85


@pytest.mark.parametrize(
    "changes",
    [
        {"attention": "eager"},
        {"sharding": "zero3"},
        {"offload": ["optimizer"]},
        {"micro_batch": 1, "grad_accum": 16},
        {"gpu": "RTX 3090"},
    ],
)
def test_what_slows_a_run_down(changes: dict[str, Any]) -> None:
    assert against(**changes) < 1.0


@pytest.mark.parametrize("kinds", [["optimizer"], ["optimizer", "param"]])
def test_what_lies_on_a_drive_comes_slower_than_from_host_memory(kinds: list[str]) -> None:
    """A machine's drives give a tenth of what its memory does, and all ranks share them."""
    host = against(sharding="zero3", offload=kinds)
    assert 0.1 * host < against(sharding="zero3", offload=kinds, nvme_offload=True) < 0.8 * host


def test_fsdp_steps_on_the_host_whatever_of_it_is_said_to_be_offloaded() -> None:
    assert against(sharding="fsdp2", offload=["optimizer"]) == against(sharding="fsdp2", offload=["optimizer", "param"])


def test_offloading_parameters_is_slower_than_the_optimizer_alone() -> None:
    optimizer = against(sharding="zero3", offload=["optimizer"])
    assert against(sharding="zero3", offload=["optimizer", "param"]) < optimizer


def test_twice_the_gpus_are_faster_but_not_more_than_twice() -> None:
    assert 1.2 < against(gpus=8, nodes=2, world=16, grad_accum=2) <= 2.0


def test_crossing_machines_costs_more_with_full_sharding() -> None:
    inside, across = speed(sharding="zero3"), speed(sharding="zero3", nodes=8, gpus=1)
    assert across.network_s > inside.network_s


def test_absolute_speed_is_of_the_right_order() -> None:
    # About 20 k to 40 k tokens/s are reported for 7B full fine-tuning on eight A100 with ZeRO.
    tokens = speed(grad_ckpt=True).samples_per_s * 2048
    assert 8_000 < tokens < 60_000


def test_serving_scales_with_tensor_parallelism() -> None:
    server = {"framework": "vllm", "model": "Qwen/Qwen2.5-7B", "objective": "inference", "gpu": "A100-80GB", "gpus": 2}
    server |= {"serving": {"max_model_len": 8192}}
    one, two = (price(Job.from_document({**server, "tp": n})) for n in (1, 2))
    assert relative_speed(*(throughput(p.job, p.shape, p.device) for p in (one, two))) > 1.2
