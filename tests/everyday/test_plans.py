"""Every plan, priced again from its own job, gives the same figure and verdict; every key is the framework's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import oomdoc
from oomdoc.diagnosis.planning.planner import plan
from oomkb.errors import OomdocError
from oomkb.memory.job import Job
from oomkb.pricing import price_planned

_MODELS = ("Qwen2.5-7B", "Llama-3.1-8B", "Qwen2.5-0.5B", "Qwen2.5-32B", "Mixtral 8x7B", "gemma-2-9b", "Llama-3.3-70B")
_CARDS = ("RTX 4090", "A100-80GB", "V100-16GB", "H100", "T4", "RTX 3060", "MI300X", "M2 Ultra", "A10")
_FRAMEWORKS = (
    *(None, None, "transformers", "trl", "llama-factory", "axolotl", "ms-swift", "verl", "openrlhf", "torchtune"),
    *("megatron", "unsloth", "deepspeed"),
)
_FREE: dict[str, tuple[Any, ...]] = {
    "micro_batch": (1, 2, 4, 8),
    "seq_len": (1024, 2048, 4096, 16384),
    "grad_ckpt": (True, False),
    "sharding": ("ddp", "zero2", "zero3", "fsdp"),
    "optimizer": ("adamw", "adamw_8bit"),
    "param_dtype": ("bf16", "fp32"),
}
_NO_KEYS = {"method", "sharding", "offload", "quant", "param_dtype", "autocast"}


def jobs(seed: int, count: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(seed)
    for _ in range(count):
        gpus = rng.choice((1, 1, 2, 4, 8))
        job: dict[str, Any] = {"model": rng.choice(_MODELS), "gpu": rng.choice(_CARDS), "gpus": gpus}
        if rng.random() < 0.25:
            job |= {"objective": "inference", "framework": rng.choice((None, "vllm", "sglang")), "tp": gpus}
            if rng.random() < 0.6:
                job["serving"] = {"max_model_len": rng.choice((4096, 32768, 131072))}
        else:
            job |= {"method": rng.choice(("full", "lora", "qlora")), "framework": rng.choice(_FRAMEWORKS)}
            job["objective"] = rng.choice(("sft", "sft", "dpo", "grpo", "pretrain"))
            for name, values in _FREE.items():
                if rng.random() < 0.6 and not (name == "sharding" and gpus == 1):
                    job[name] = rng.choice(values)
        yield {n: v for n, v in job.items() if v is not None}


@pytest.mark.parametrize("seed", range(8))
def test_plans_hold(seed: int) -> None:
    seen = 0
    for document in jobs(seed, 40):
        try:
            found = plan(Job.from_document(document))
        except OomdocError:
            continue
        for one in found.plans:
            seen += 1
            own = price_planned(Job.from_document(one.job.document())).estimate
            assert own.process_bytes == pytest.approx(one.estimate.process_bytes, rel=1e-9), document
            assert own.fits_probability == one.fits_probability, document
            if one.name != "closest":
                assert one.fits_probability >= 0.85, (document, one.name)
            for change in one.changes:
                assert change.instruction is not None or change.key not in _NO_KEYS, (document, change.key)
                assert not isinstance(change.new, dict), change
            if document["gpu"] == "M2 Ultra" and not any(c.remedy == "other-gpu" for c in one.changes):
                assert not one.job.offload, document
    assert seen > 20


def test_host_memory_limits_offload() -> None:
    base = {"model": "Qwen2.5-14B", "method": "full", "gpu": "RTX 4090", "gpus": 8, "sharding": "zero3"}
    wide = plan(Job.from_document({**base, "host_gib": 1024}))
    narrow = plan(Job.from_document({**base, "host_gib": 64}))
    assert any("optimizer" in (p.job.offload or ()) for p in wide.plans)
    for one in narrow.plans:
        assert one.estimate.host_bytes <= 64 * 2**30


def test_the_largest_is_never_zero() -> None:
    from oomdoc.planner import plan_document, plan_job

    document = plan_document(plan_job("", "", {"model": "Qwen2.5-72B", "method": "full", "gpu": "T4", "gpus": 7}), "en")
    assert 0 not in document["largest"].values()
    assert document["sentences"][0].startswith("No: ")


def test_virtual_tokens_over_a_frozen_base_need_no_states_of_it() -> None:
    """6.24e9 parameters of 2 bytes are 11.6 GiB; full training would need 46 GiB of states."""
    estimate = oomdoc.diagnose("Does p-tuning of ChatGLM3-6B fit on a V100 32GB at 512 tokens?").document()["estimate"]
    assert 11.6 < estimate["needed_gib"] < 20
