"""What a remedy does not offer: settings that are on, that the card lacks, that the framework has no key for."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoc.diagnosis.fixes import REMEDIES, Context, Variant
from oomdoc.diagnosis.planning.moves import variants_on
from oomdoc.diagnosis.planning.prices import Prices
from oomkb.catalog import gpus
from oomkb.frameworks import has
from oomkb.memory.job import Job

BY_NAME = {r.name: r for r in REMEDIES}
V100, A100, MI300 = gpus.find("V100-PCIE-16GB"), gpus.find("A100-80GB"), gpus.find("MI300X")


def job(**fields: Any) -> Job:
    base = {"model": "Qwen/Qwen2.5-7B", "objective": "sft", "method": "full", "framework": "transformers"}
    return Job.from_document(
        {**base, "micro_batch": 4, "grad_accum": 2, "seq_len": 4096, "optimizer": "adamw", **fields}
    )


def offers(name: str, document: Job, **context: Any) -> list[Variant]:
    given: dict[str, Any] = {"device": A100, "framework": document.framework, **context}
    return variants_on(BY_NAME[name], document, Context(**given))


def values(found: list[Variant], field: str) -> list[Any]:
    return [v.fields[field] for v in found if field in v.fields]


def test_micro_batch_takes_divisors_only() -> None:
    assert values(offers("micro-batch", job(micro_batch=6)), "micro_batch") == [3, 2, 1]
    assert offers("micro-batch", job(micro_batch=1)) == []


def test_accumulation_does_not_give_a_contrastive_loss_its_negatives_back() -> None:
    contrastive = job(model="Qwen/Qwen3-0.6B", objective="embedding", micro_batch=8)
    found = offers("micro-batch", contrastive)
    assert values(found, "micro_batch") == [4, 2, 1]
    assert {(v.safety, v.notes[0].key) for v in found} == {("changed-training", "fixes.micro-batch.contrastive")}
    assert offers("fused-ce", contrastive) == []  # no logits over the words


def test_no_fused_loss_for_an_encoder_and_a_decoder() -> None:
    for model, count in (("openai/whisper-large-v3", 0), ("Qwen/Qwen2.5-1.5B", 1)):
        document = job(model=model, seq_len=448, micro_batch=16)
        shape = Prices(document).shape
        assert len(offers("fused-ce", document, shape=shape)) == count


def test_the_evaluation_batch_is_halved_where_it_is_stated() -> None:
    assert values(offers("eval-micro-batch", job(eval_micro_batch=8)), "eval_micro_batch") == [4, 2, 1]
    assert offers("eval-micro-batch", job(eval_micro_batch=1)) == []
    assert offers("eval-micro-batch", job()) == []
    assert offers("eval-micro-batch", job(eval_micro_batch=8, framework="megatron")) == []


@pytest.mark.parametrize(("card", "kernels"), [(V100, ["sdpa"]), (A100, ["sdpa", "flash2"]), (None, ["sdpa"])])
def test_flash_attention_only_where_the_card_has_it(card: Any, kernels: list[str]) -> None:
    found = offers("attention", job(attention="eager", autocast="fp16"), device=card)
    assert values(found, "attention") == kernels


@pytest.mark.parametrize("name", ["half-weights", "mixed-precision", "lora", "qlora", "zero"])
def test_no_bf16_on_a_card_without_it(name: str) -> None:
    for autocast in ("none", "fp16", "bf16"):
        document = job(param_dtype="fp32", autocast=autocast, sharding="ddp", world=4)
        for variant in offers(name, document, device=V100):
            assert "bf16" not in variant.fields.values(), (name, autocast)


def test_zero_needs_several_processes() -> None:
    assert offers("zero", job(sharding="none", world=1)) == []
    assert values(offers("zero", job(sharding="zero2", world=4)), "sharding") == ["zero3"]


def test_zero3_and_four_bit_weights_do_not_meet() -> None:
    four_bit = job(method="qlora", quant="nf4", sharding="ddp", world=4)
    assert "zero3" not in values(offers("zero", four_bit), "sharding")
    assert offers("qlora", job(sharding="zero3", world=4)) == []


def test_llama_factory_has_no_fused_loss_for_dpo() -> None:
    assert offers("fused-ce", job(framework="llama-factory", objective="dpo")) == []
    assert offers("fused-ce", job(framework="llama-factory")) != []
    assert offers("fused-ce", job(framework="trl", objective="dpo"), versions={"trl": "0.29.0"}) != []
    assert offers("fused-ce", job(framework="trl", objective="dpo"), versions={"trl": "0.9.6"}) == []


def test_precomputed_reference_only_where_the_framework_can() -> None:
    preference = {"objective": "dpo", "extra_models": [{"role": "reference"}]}
    assert offers("reference-precompute", job(framework="llama-factory", **preference)) == []
    assert values(offers("reference-precompute", job(framework="trl", **preference)), "extra_models") == [[]]


def test_allocator_settings_only_against_fragmentation() -> None:
    assert offers("allocator", job(), causes=("logits",)) == []
    found = offers("allocator", job(), causes=("fragmentation",))
    assert "expandable_segments" in found[0].instruction.values["line"]  # type: ignore[union-attr]
    on = job(env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    (beside,) = offers("allocator", on, causes=("fragmentation",))
    assert beside.instruction is not None
    assert beside.instruction.key == "fixes.allocator.shapes"
    old = offers("allocator", job(), causes=("fragmentation",), versions={"torch": "1.13.1"})
    assert "max_split_size_mb" in old[0].instruction.values["line"]  # type: ignore[union-attr]


def test_bitsandbytes_needs_its_vendor() -> None:
    """NVIDIA's and, from 0.50, AMD's of today; its paged states are CUDA's managed memory."""
    assert offers("optimizer-8bit", job(), device=gpus.find("Gaudi 2")) == []
    assert offers("optimizer-8bit", job(), device=gpus.find("MI50 32GB")) == []
    assert values(offers("optimizer-8bit", job(), device=MI300), "optimizer") == ["adamw_8bit"]
    assert offers("optimizer-paged", job(), device=MI300) == []
    assert offers("optimizer-8bit", job(offload=["optimizer"], sharding="zero2", world=2)) == []


def test_offload_follows_the_engine() -> None:
    assert offers("offload-optimizer", job(sharding="ddp", world=4)) == []
    assert values(offers("offload-optimizer", job(sharding="zero2", world=4)), "offload") == [["optimizer"]]
    assert offers("offload-param", job(sharding="zero2", world=4)) == []
    assert values(offers("offload-param", job(sharding="zero3", world=4)), "offload") == [["optimizer", "param"]]


def test_one_process_per_gpu() -> None:
    alone = job(framework="ms-swift", method="lora", sharding="zero2", gpus=4, world=1)
    found = offers("all-processes", alone)
    assert found[0].fields["world"] == 4
    assert "NPROC_PER_NODE=4" in found[0].notes[0].values["line"]
    assert offers("all-processes", job(gpus=4, world=4)) == []


def test_serving_remedies_leave_training_alone() -> None:
    for remedy in REMEDIES:
        if remedy.kinds == {"serving"}:
            assert variants_on(remedy, job(), Context(device=A100, framework="transformers")) == []


def test_fp8_cache_only_where_the_card_multiplies_it() -> None:
    server = Job.from_document({"objective": "inference", "framework": "vllm", "serving": {"max_model_len": 8192}})
    assert offers("serving-kv-dtype", server, device=A100, serving=True) == []
    assert values(offers("serving-kv-dtype", server, device=gpus.find("H100"), serving=True), "serving.kv_dtype")


@pytest.mark.parametrize(
    ("name", "cause", "line"),
    [
        ("kill-processes", "other-process", "nvidia-smi"),
        ("shm-size", "shared-memory", "--shm-size"),
        ("evaluation", "eval", "eval_accumulation_steps"),
        ("find-leak", "leak", "item()"),
        ("worst-batch-first", "long-sample", "length"),
    ],
)
def test_instructions_come_with_the_line_to_type(name: str, cause: str, line: str) -> None:
    assert offers(name, job()) == []
    found = offers(name, job(), causes=(cause,))
    assert found
    assert line in found[0].instruction.values["line"]  # type: ignore[union-attr]


def test_workers_that_copy_data_are_fewer_only_where_they_are_shown() -> None:
    assert offers("host-memory", job(), causes=("host-ram",)) == []
    found = offers("host-memory", job(), causes=("host-ram",), facts={"object_workers": True})
    assert any("dataloader_num_workers" in str(v.instruction.values.get("line")) for v in found)  # type: ignore[union-attr]


def test_save_settings_fit_the_engine() -> None:
    found = offers("save-settings", job(sharding="zero3", world=8), causes=("checkpoint-save",))
    assert "stage3_gather_16bit_weights_on_model_save" in found[0].instruction.values["line"]  # type: ignore[union-attr]
    found = offers("save-settings", job(sharding="fsdp", world=8), causes=("checkpoint-save",))
    gathered, sharded = (str(v.instruction.values["line"]) for v in found[:2])  # type: ignore[union-attr]
    assert "rank0_only=True" in gathered
    assert "SHARDED_STATE_DICT" in sharded


def test_versions_up_and_down() -> None:
    known = {"package": "deepspeed", "used": "0.16.4", "fixed": "0.16.8", "last_good": "0.15.4"}
    found = offers("change-version", job(), causes=("version-regression",), facts={"regressions": [known]})
    assert [v.instruction.values["version"] for v in found] == ["0.16.8", "0.15.4"]  # type: ignore[union-attr]
    asked = offers(
        "change-version", job(), causes=("version-regression",), facts={"regressions": [{**known, "used": None}]}
    )
    assert asked[0].instruction.key == "fixes.change-version.check"  # type: ignore[union-attr]


def test_features_know_versions() -> None:
    assert has("trl", "fused_ce.preference", {"trl": "0.18.0"})
    assert not has("trl", "fused_ce.preference", {"trl": "0.12.0"})
    assert has("llama-factory", "grad_ckpt.offload", {})
    assert not has("megatron", "zero", {})
    assert has("some-script", "zero", {})


def test_a_script_that_generates_is_offered_what_a_script_can_do() -> None:
    script = job(objective="inference", method=None, framework=None, param_dtype="fp32")
    halved = offers("half-weights", script, serving=True, script=True)
    assert values(halved, "param_dtype") == ["bf16"]
    assert values(offers("half-weights", script, device=V100, serving=True, script=True), "param_dtype") == ["fp16"]
    assert values(offers("serving-quant", script, serving=True, script=True), "quant") == ["int8", "nf4"]
    assert offers("serving-tensor-parallel", script, serving=True, script=True, spare_gpus=3) == []


def test_a_mac_has_one_gpu_and_no_bitsandbytes() -> None:
    mac = gpus.find("Apple M2 Pro")
    script = job(objective="inference", method=None, framework=None, param_dtype="fp32")
    assert offers("serving-quant", script, device=mac, serving=True, script=True) == []
    assert offers("serving-tensor-parallel", script, device=mac, serving=True, spare_gpus=3) == []
