"""What holds for every plan of every job: no framework, card or setting is special."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from oomdoc.diagnosis.fixes import REMEDIES
from oomdoc.diagnosis.fixes._job import global_batch
from oomdoc.diagnosis.planning import Planning, plan
from oomdoc.diagnosis.planning._changes import plain
from oomdoc.diagnosis.planning._moves import settable
from oomdoc.diagnosis.planning._prices import Prices
from oomdoc.diagnosis.result import Plan
from oomkb.errors import OomdocError
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.pricing import price

TRAINERS = [
    *["transformers", "trl", "llama-factory", "ms-swift", "axolotl", "openrlhf", "verl", "torchtune"],
    *["megatron", "nemo", "unsloth", "xtuner", "deepspeed", "accelerate", "fsdp", "somebody-elses-script"],
]
CARDS = ["V100-PCIE-16GB", "T4", "RTX 3090", "RTX 4090", "A100-40GB", "A100-80GB", "H100", "MI300X"]
SHARDINGS = {
    "megatron": ["none", "distributed-optimizer"],
    "nemo": ["none", "distributed-optimizer"],
    "verl": ["fsdp", "fsdp2"],
    "torchtune": ["none", "fsdp2"],
    "fsdp": ["fsdp", "shard-grad-op"],
    "unsloth": ["none"],
    "openrlhf": ["zero2", "zero3"],
    "xtuner": ["none", "zero2", "zero3"],
}
SIZES = [(512, 4, 8000), (2048, 16, 32000), (4096, 32, 128256), (8192, 80, 152064)]


@st.composite
def trainings(draw: st.DrawFn) -> dict[str, Any]:
    framework = draw(st.sampled_from(TRAINERS))
    hidden, layers, vocab = draw(st.sampled_from(SIZES))
    gpus = 1 if framework == "unsloth" else draw(st.sampled_from([1, 2, 3, 4, 8]))
    method = "full" if framework == "megatron" else draw(st.sampled_from(["full", "lora", "qlora"]))
    job = {
        "framework": framework,
        "model": {
            "model_type": draw(st.sampled_from(["llama", "qwen2"])),
            "hidden_size": hidden,
            "intermediate_size": hidden * 7 // 2,
            "num_hidden_layers": layers,
            "num_attention_heads": hidden // 128,
            "num_key_value_heads": max(1, hidden // 512),
            "vocab_size": vocab,
        },
        "objective": draw(st.sampled_from(["sft", "sft", "dpo", "grpo", "pretrain"])),
        "method": method,
        "micro_batch": draw(st.integers(1, 16)),
        "grad_accum": draw(st.integers(1, 8)),
        "seq_len": draw(st.sampled_from([512, 2048, 8192, 32768])),
        "autocast": draw(st.sampled_from(["bf16", "fp16", "none"])),
        "gpu": draw(st.sampled_from(CARDS)),
        "gpus": gpus,
        "world": gpus,
        "sharding": draw(st.sampled_from(SHARDINGS.get(framework, ["none", "zero1", "zero3", "fsdp"]))),
    }
    assume(not (method == "qlora" and job["sharding"] in ("zero3", "fsdp")))
    optional = {
        "grad_ckpt": st.booleans(),
        "attention": st.sampled_from(["eager", "sdpa", "flash2"]),
        "param_dtype": st.sampled_from(["fp32", "bf16"]),
        "optimizer": st.sampled_from(["adamw", "adamw_8bit", "sgd", "adafactor"]),
        "fused_ce": st.booleans(),
        "host_gib": st.sampled_from([32.0, 512.0]),
    }
    job |= {name: draw(values) for name, values in optional.items() if draw(st.booleans())}
    return job


@st.composite
def servings(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "framework": draw(st.sampled_from(["vllm", "sglang"])),
        "model": draw(st.sampled_from(["Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-70B"])),
        "objective": "inference",
        "gpu": draw(st.sampled_from(CARDS)),
        "gpus": draw(st.sampled_from([1, 2, 4, 8])),
        "serving": {
            "gpu_memory_utilization": draw(st.sampled_from([0.5, 0.9, 0.95])),
            "max_model_len": draw(st.sampled_from([2048, 32768])),
            "max_num_seqs": draw(st.sampled_from([16, 256])),
        },
    }


jobs = st.one_of(trainings(), trainings(), trainings(), servings())
thorough = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def planned(document: dict[str, Any]) -> tuple[Job, Planning]:
    job = Job.from_document(document)
    try:
        return Prices(job).job, plan(job)
    except OomdocError:
        assume(False)
        raise AssertionError from None


@thorough
@given(jobs)
def test_every_plan_keeps_its_promises(document: dict[str, Any]) -> None:
    before, found = planned(document)
    assert len(found.plans) <= 3
    for one in found.plans:
        assert one.changes
        _fits_or_says_so(one)
        _changes_something_the_job_can_take(before, one)
        _suits_the_card(before, one)
        assert global_batch(one.job) == global_batch(before) or "fixes.note.global-batch" in _said(one)
        again = price(one.job).estimate
        assert again.process_bytes == pytest.approx(one.estimate.process_bytes, rel=1e-3)


def _fits_or_says_so(one: Plan) -> None:
    if one.name == "closest":
        assert "fixes.note.still-too-big" in _said(one)
    else:
        assert one.fits_probability >= 0.9


def _said(one: Plan) -> list[str]:
    return [m.key for m in one.notes]


def _changes_something_the_job_can_take(before: Job, one: Plan) -> None:
    for change in one.changes:
        assert change.fields
        for name, value in change.fields.items():
            assert plain(before.get(name)) != value, f"{name} is {value} already"
        assert settable(before.framework, change.fields, before.versions)


def _suits_the_card(before: Job, one: Plan) -> None:
    device = price(one.job).device
    assert device is not None
    for change in one.changes:
        for value in change.fields.values():
            assert value not in ("flash2", "flash3") or device.can(str(value))
            assert value != "bf16" or device.can("bf16")
            assert value != "nf4-double" or device.vendor == "nvidia"
    if one.job.method == "qlora" and before.method != "qlora":
        assert one.job.sharding not in ("zero3", "fsdp", "fsdp2")


@settings(thorough, max_examples=8)
@given(jobs)
def test_the_same_job_gets_the_same_plans(document: dict[str, Any]) -> None:
    first, second = planned(document)[1], planned(document)[1]
    assert first.plans == second.plans
    assert first.singles == second.singles


@thorough
@given(jobs)
def test_no_remedy_raises_what_it_claims_to_lower(document: dict[str, Any]) -> None:
    before, found = planned(document)
    prices, remedies = Prices(Job.from_document(document)), {r.name: r for r in REMEDIES}
    for single in found.singles:
        if single.change.remedy not in remedies:
            continue  # advice that is shown because it does not help
        prefixes, after = remedies[single.change.remedy].reduces, prices.of(single.change.fields)
        if not prefixes or after is None:
            continue
        # Accumulation raised to keep the global batch keeps gradients alive: not the remedy's doing.
        accumulation = after.job.grad_accum
        same = prices.of({"grad_accum": accumulation}) if accumulation != before.grad_accum else prices.base
        assert same is not None
        claimed = [_claimed(p.estimate, prefixes) for p in (same, after)]
        assert claimed[1] <= claimed[0] * 1.001 + (1 << 20), (single.change.remedy, single.change.fields, claimed)


def _claimed(estimate: Estimate, prefixes: tuple[str, ...]) -> float:
    """The claimed terms at their fullest instant."""
    sums = [sum(v for t, v in p.terms_bytes.items() if t.startswith(prefixes)) for p in estimate.phases.values()]
    return max(sums, default=0.0)
