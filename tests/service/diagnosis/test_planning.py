"""The planner on jobs whose answers are known."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoc.diagnosis.planning.planner import plan, whatif
from oomdoc.diagnosis.planning.prices import Planning
from oomdoc.diagnosis.planning.table import fits_table
from oomkb.errors import JobError
from oomkb.memory.job import Job
from oomkb.pricing import price

LORA_4090 = {
    "framework": "llama-factory",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "objective": "sft",
    "method": "lora",
    "micro_batch": 4,
    "grad_accum": 4,
    "seq_len": 2048,
    "autocast": "bf16",
    "gpu": "RTX 4090",
    "gpus": 7,
    "world": 7,
}
DPO_V100 = {
    "framework": "llama-factory",
    "model": "Qwen/Qwen2.5-0.5B",
    "objective": "dpo",
    "method": "full",
    "micro_batch": 1,
    "grad_accum": 8,
    "seq_len": 4096,
    "autocast": "fp16",
    "sharding": "zero3",
    "offload": ["optimizer", "param"],
    "gpu": "V100-PCIE-16GB",
    "gpus": 8,
    "world": 8,
}


def planned(document: dict[str, Any], **changes: Any) -> Planning:
    return plan(Job.from_document({**document, **changes}))


def fields(planning: Planning, number: int = 0) -> dict[str, Any]:
    return {n: v for c in planning.plans[number].changes for n, v in c.fields.items()}


def test_replicated_weights_are_sharded() -> None:
    found = planned(LORA_4090)
    sharded = [p for n, p in enumerate(found.plans) if fields(found, n).get("sharding") in ("zero3", "fsdp")]
    assert sharded
    assert all(p.fits_probability >= 0.9 and p.safety == "same-numbers" for p in sharded)
    assert found.plans[0].fits_probability >= 0.9
    assert found.plans[0].safety == "same-numbers"


def test_smaller_micro_batch_keeps_the_global_batch() -> None:
    found = planned(LORA_4090)
    single = next(s for s in found.singles if s.change.remedy == "micro-batch")
    assert single.change.fields == {"micro_batch": 1, "grad_accum": 16}
    assert single.change.saves_bytes > 5 << 30


def test_logits_of_a_preference_pair() -> None:
    found = planned(DPO_V100)
    everything = {(n, str(v)) for p in found.plans for c in p.changes for n, v in c.fields.items()}
    assert fields(found)["seq_len"] <= 2048
    assert not {n for n, _ in everything} & {"fused_ce", "attention"}
    assert "bf16" not in {v for _, v in everything}
    lora = next(s for s in found.singles if s.change.remedy == "lora")
    assert not lora.fits


def test_what_fits_needs_no_plan() -> None:
    found = planned(LORA_4090, micro_batch=1, gpu="A100-80GB")
    assert found.plans == ()
    assert found.nothing_fits is None
    assert found.largest["micro_batch"] >= 1
    assert found.largest["seq_len"] >= 2048


def test_the_largest_fits_and_one_more_does_not() -> None:
    document = {**LORA_4090, "micro_batch": 1, "gpu": "A100-80GB"}
    largest = planned(document).largest["micro_batch"]
    fits, over = (planned(document, micro_batch=n) for n in (largest, largest + 1))
    assert fits.plans == ()
    assert over.plans != ()


def test_when_nothing_fits_the_smallest_hardware_is_named() -> None:
    found = planned(LORA_4090, model="meta-llama/Llama-3.1-70B", method="full", gpus=1, world=1, seq_len=4096)
    assert found.nothing_fits is not None
    assert found.hardware is not None
    assert found.hardware.gpus * found.hardware.nodes > 1
    closest = [p for p in found.plans if p.name == "closest"]
    assert all(p.fits_probability < 0.9 for p in closest)


def test_plans_differ_in_kind() -> None:
    found = planned(LORA_4090)
    kinds = [frozenset(c.remedy for c in p.changes) for p in found.plans]
    assert len(set(kinds)) == len(kinds)
    assert len({p.name for p in found.plans}) == len(kinds)


def test_a_host_without_room_gets_no_offload() -> None:
    document = {**LORA_4090, "method": "full", "model": "Qwen/Qwen2.5-14B", "gpus": 4, "world": 4}
    small = planned(document, host_gib=16.0)
    assert all("offload" not in c.fields for p in small.plans if p.name != "more-hardware" for c in p.changes)


def test_whatif_prices_both() -> None:
    before, after = whatif(Job.from_document(LORA_4090), {"micro_batch": 1})
    assert after.process_bytes < before.process_bytes
    with pytest.raises(JobError):
        whatif(Job.from_document(LORA_4090), {"no_such_field": 1})


def test_a_job_without_a_model_is_refused() -> None:
    with pytest.raises(JobError):
        plan(Job.from_document({"micro_batch": 4}))


def test_the_table_before_a_run() -> None:
    table = fits_table(Job.from_document({**LORA_4090, "gpu": "RTX 4090", "gpus": 7, "world": 7}))
    assert table.fits is False
    assert table.planning.plans
    bought = {k.change.remedy: k for k in table.knobs}
    assert bought["micro-batch"].change.saves_bytes > 0
    assert all(k.peak_bytes <= table.estimate.process_bytes for k in table.knobs if k.change.saves_bytes > 0)
    assert fits_table(Job.from_document({**LORA_4090, "gpu": "H200", "gpus": 8, "world": 8})).fits is True


@pytest.mark.parametrize("framework", ["megatron", "nemo", "deepspeed", "llama-factory", "torchtune"])
def test_where_nothing_fits_the_named_hardware_does(framework: str) -> None:
    job = Job.from_document(
        {
            **{"framework": framework, "model": "meta-llama/Llama-3.1-70B", "objective": "pretrain", "method": "full"},
            **{
                "micro_batch": 4,
                "grad_accum": 1,
                "seq_len": 8192,
                "gpu": "RTX 4090",
                "gpus": 2,
                "world": 2,
                "host_gib": 64.0,
            },
        }
    )
    found = plan(job)
    assert found.nothing_fits is not None
    assert found.hardware is not None
    place = found.hardware
    layout = {"gpu": place.gpu, "gpus": place.gpus, "nodes": place.nodes, "world": place.gpus * place.nodes, "dp": None}
    there = job.with_fields({**layout, "sharding": place.sharding, **place.changes})
    fits = price(there).estimate.fits_probability
    assert fits is not None
    assert fits >= 0.9
