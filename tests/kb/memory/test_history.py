"""What releases of libraries did to memory, and what decides whether a run fits."""

from __future__ import annotations

from typing import Any

import pytest

from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.memory.releases import checkpoints_parts, fused_kernels
from oomkb.pricing import price

LLAMA: dict[str, Any] = {"model": "meta-llama/Meta-Llama-3-8B", "gpu": "A100-80GB", "gpus": 1, "seq_len": 2048}


def estimated(**fields: Any) -> Estimate:
    return price(Job.from_document({**LLAMA, **fields})).estimate


def qlora(version: str) -> Estimate:
    return estimated(method="qlora", quant="nf4", grad_ckpt=False, versions={"bitsandbytes": version})


def test_old_bitsandbytes_keeps_inputs_of_quantized_products() -> None:
    """PR 1270: norms' outputs, attention's output and the gated product of every layer, two bytes an element."""
    more = qlora("0.43.0").allocated_bytes - qlora("0.43.2").allocated_bytes
    inputs = 2048 * 32 * 14336 * 2  # the largest of them is kept by nothing else
    assert more >= 0.9 * inputs


def test_int8_products_keep_their_inputs() -> None:
    """bitsandbytes 0.50.2 ``MatMul8bitLt.forward``: ``ctx.tensors = (CAt, subA, A)``; ``MatMul4Bit`` lets go of it."""
    same = {"method": "lora", "grad_ckpt": False, "autocast": "bf16", "versions": {"bitsandbytes": "0.50.2"}}
    held = {
        quant: estimated(quant=quant, **same).phases["loss"].terms_bytes["activations"] for quant in ("int8", "nf4")
    }
    inputs = 2048 * 32 * 14336 * 2  # what the last product of every layer reads
    assert held["int8"] - held["nf4"] >= 0.9 * inputs


def test_fused_loss_in_place_needs_one_copy_less() -> None:
    same = {"method": "lora", "grad_ckpt": True, "micro_batch": 4, "versions": {"transformers": "4.45.2"}}
    plain = estimated(framework="transformers", **same).allocated_bytes
    fused = estimated(framework="fms-acceleration", **same).allocated_bytes
    copy = 4 * 2048 * 128256 * 4
    assert copy <= plain - fused <= 2 * copy


@pytest.mark.parametrize(
    ("stated", "dropout", "fuses"),
    [
        ({"versions": {"axolotl": "0.9.1"}}, 0.0, False),
        ({"versions": {"axolotl": "0.12.0"}}, 0.0, True),
        ({"versions": {"axolotl": "0.12.0"}}, 0.05, False),  # PR 2655
        ({"versions": {"axolotl": "0.16.0"}}, 0.05, True),  # PR 3528
        ({"versions_text": "2023-08"}, 0.0, False),
        ({"quant": "int8"}, 0.0, False),
        ({"lora_mlp_kernel": True, "versions": {"axolotl": "0.9.0"}}, 0.05, True),
        ({}, 0.05, True),
    ],
)
def test_when_axolotl_takes_its_own_kernels(stated: dict[str, Any], dropout: float, fuses: bool) -> None:
    job = Job.from_document({"framework": "axolotl", "method": "lora", "lora": {"dropout": dropout}, **stated})
    assert fused_kernels(job, True, "none") == ("adapters" if fuses else "")


def test_a_stated_liger_kernel_holds_in_any_framework() -> None:
    for stated, found in ((True, "liger"), (False, "")):
        job = Job.from_document({"framework": "somebody's own", "method": "full", "use_liger_kernel": stated})
        assert fused_kernels(job, False, "none") == found


def test_automodel_checkpoints_layers_of_transformers_whole_since_0_5() -> None:
    """PR 2840 of July 2026; layers of its own (Llama's) stay checkpointed in parts."""
    old, new = ({"framework": "NeMo Automodel", "versions": {"automodel": v}} for v in ("0.4.0", "0.5.0"))
    assert checkpoints_parts(Job.from_document(old), "gemma3_text")
    assert not checkpoints_parts(Job.from_document(new), "gemma3_text")
    assert checkpoints_parts(Job.from_document(new), "llama")


def test_batches_without_padding_are_not_taken_as_full() -> None:
    """One sample as long as the limit, the others a quarter of it; the interval reaches down to short ones."""
    same = {"method": "lora", "packing": True, "attention": "flash2", "grad_ckpt": True, "micro_batch": 8}
    full, loose = estimated(**same), estimated(**same, padding_free=True)
    shares = [e.phases["loss"].terms_bytes["logits and loss"] for e in (loose, full)]
    assert shares[0] / shares[1] == pytest.approx((1 + 7 / 4) / 8, rel=0.01)
    assert loose.intervals["allocated"].low_bytes < 0.75 * loose.allocated_bytes


@pytest.mark.parametrize(
    ("framework", "fused", "least", "most"),
    [
        ("ms-swift 1.x", False, 4.0, 8.0),
        ("ms-swift 1.x", True, 0.0, 0.5),  # a loss that makes no logits
        ("transformers", False, 0.0, 0.5),  # the limit is more than most batches are
    ],
)
def test_changing_lengths_leave_blocks_of_logits_behind(framework: str, fused: bool, least: float, most: float) -> None:
    """ms-swift 1's table shows them; of 51 runs of 19 other sources the limit is as much on the other side."""
    same = {"method": "lora", "micro_batch": 2, "grad_ckpt": True, "framework": framework, "fused_ce": fused}
    more = estimated(**same, packing=False).reserved_bytes - estimated(**same, packing=True).reserved_bytes
    logits = 2 * 2048 * 128256 * 4
    assert least * logits <= more <= most * logits


def test_what_nobody_stated_of_lengths_is_no_bound() -> None:
    stated = estimated(method="lora", packing=True, micro_batch=4, grad_ckpt=False).intervals["process"]
    open_ = estimated(method="lora", packing=True, micro_batch=4, seq_len=None, grad_ckpt=False)
    assert open_.intervals["process"].low_bytes < 0.6 * stated.low_bytes
    assert open_.intervals["process"].high_bytes >= stated.high_bytes


def test_log_probabilities_keep_no_fp32_copies() -> None:
    same = {"method": "lora", "grad_ckpt": True, "micro_batch": 4, "sharding": "none", "autocast": "none"}
    loss = estimated(objective="sft", **same).phases["loss"].terms_bytes["logits and loss"]
    rows = estimated(objective="grpo", prompt_len=1024, completion_len=1024, **same)
    logits = rows.phases["loss"].terms_bytes["logits and loss"]
    assert logits < loss / 3
    assert logits == pytest.approx(2 * 4 * 1024 * 128256 * 2, rel=0.01)


def test_grpo_on_three_a10_fits() -> None:
    """A public thread: ms-swift, Qwen2-7B, LoRA rank 8, ZeRO-3 over three A10, a fourth for vLLM, batch 7: it ran."""
    job = {
        "model": "Qwen/Qwen2-7B-Instruct",
        "objective": "grpo",
        "method": "lora",
        "lora": {"r": 8},
        "framework": "ms-swift",
        "param_dtype": "bf16",
        "autocast": "bf16",
        "sharding": "zero3",
        "world": 3,
        "gpus": 3,
        "micro_batch": 7,
        "grad_ckpt": True,
        "gpu": "A10",
        "completion_len": 1024,
        "rollout": {"engine": "vllm", "colocated": False, "gpu_memory_utilization": 0.9},
    }
    found = price(Job.from_document(job)).estimate
    assert found.fits_probability is not None
    assert found.fits_probability > 0.9


def test_adapters_on_an_8b_fit_a_24_gb_card() -> None:
    found = estimated(method="lora", micro_batch=1, grad_ckpt=True, autocast="bf16", gpu="RTX 4090")
    assert found.fits_probability is not None
    assert found.fits_probability > 0.9


def test_no_figure_exceeds_the_card_it_fits() -> None:
    found = estimated(method="lora", micro_batch=1, grad_ckpt=True, autocast="bf16", gpu="RTX 4090")
    assert found.capacity_bytes is not None
    assert found.intervals["process"].high_bytes <= found.capacity_bytes


FSDP: dict[str, Any] = {
    "framework": "trl",
    "method": "full",
    "param_dtype": "bf16",
    "autocast": "bf16",
    "gpus": 8,
    "micro_batch": 1,
    "grad_ckpt": True,
}


def shards(**fields: Any) -> float:
    found = estimated(**{**FSDP, **fields})
    return found.phases["load"].terms_bytes["weights"] / found.params * 8


def test_accelerate_keeps_shards_in_fp32_under_mixed_precision() -> None:
    """Accelerate v0.30.0 ``Accelerator.prepare_model`` (PR 2674), v1.6.0 ``fsdp2_prepare_model``; 0.29.3 did not."""
    assert shards(sharding="fsdp") == pytest.approx(4, rel=0.01)
    assert shards(sharding="fsdp2") == pytest.approx(4, rel=0.01)
    assert shards(sharding="fsdp", versions={"accelerate": "0.29.3"}) == pytest.approx(2, rel=0.01)
    assert shards(sharding="fsdp", autocast="none") == pytest.approx(2, rel=0.01)
    assert shards(sharding="fsdp", framework="torchtitan") == pytest.approx(2, rel=0.01)


def test_accelerate_upcast_whole_models_under_fsdp2_before_1_14() -> None:
    """PR 3985 (v1.14.0) upcasts what is trained only; until then a frozen base went to fp32 with its adapters."""
    lora = {"method": "lora", "lora": {"r": 8}, "sharding": "fsdp2"}
    assert shards(**lora, versions={"accelerate": "1.13.0"}) == pytest.approx(4, rel=0.01)
    assert shards(**lora, versions={"accelerate": "1.14.0"}) == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize("said", [{"optimizer_in_bwd": True, "optimizer": "paged_adamw_8bit"}, {"optimizer": "lomo"}])
def test_gradients_that_are_applied_as_they_come_are_never_all_there(said: dict[str, Any]) -> None:
    """torchtune PR 527: Llama-2 7B in bf16 peaked at 13.99 GB, 12.55 GiB of it weights."""
    peak = estimated(**said, framework="torchtune", param_dtype="bf16", grad_ckpt=True, seq_len=512).phases["backward"]
    assert peak.terms_bytes["gradients"] < 0.15 * peak.terms_bytes["weights"]
