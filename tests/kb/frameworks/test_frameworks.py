from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomkb.errors import CatalogError
from oomkb.frameworks import FRAMEWORKS, canonical, complete, lineage, supports
from oomkb.frameworks.declared import FOLDER, load
from oomkb.memory.job import Job


def test_registry_is_sorted_and_equals_the_folder():
    names = [f.name for f in FRAMEWORKS]
    assert names == sorted(path.stem for path in FOLDER.glob("*.toml"))


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("LLaMA-Factory", "llama-factory"),
        ("llamafactory", "llama-factory"),
        ("swift", "ms-swift"),
        ("ms-swift 1.x", "ms-swift"),
        ("OpenRLHF", "openrlhf"),
        ("Megatron-LM", "megatron"),
        ("TRL", "trl"),
        ("Accelerate", "accelerate"),
        ("something else", None),
        ("", None),
        (None, None),
    ],
)
def test_names_people_write(written, name):
    assert canonical(written) == name


def test_every_default_names_its_source_and_its_reason():
    for framework in FRAMEWORKS:
        for default in framework.defaults:
            assert default.why
            assert default.source
            assert Job().get(default.field) is None, f"{framework.name}: {default.field} is no optional job field"


def test_llama_factory_full_training_on_one_gpu_keeps_fp32_weights():
    job = complete(Job.from_document({"framework": "llama-factory", "method": "full", "autocast": "bf16"}))
    assert (job.grad_ckpt, job.param_dtype, job.seq_len, job.micro_batch) == (True, "fp32", 2048, 8)
    assert "finetuning" not in job.assumed["grad_ckpt"].why
    assert complete(job) == job


def test_llama_factory_defaults_to_adapters():
    job = complete(Job.from_document({"framework": "llama-factory"}))
    assert (job.method, job.lora.r, job.lora.targets, job.param_dtype) == ("lora", 8, "all-linear", "bf16")
    assert not complete(Job.from_document({"framework": "transformers"})).grad_ckpt


def test_cutoff_len_depends_on_the_version():
    old = Job.from_document({"framework": "llama-factory", "versions": {"llamafactory": "0.8.3"}})
    assert complete(old).seq_len == 1024


def test_trl_checkpoints_since_022():
    for version, on in (("0.21.0", False), ("0.22.0", True)):
        job = Job.from_document({"framework": "trl", "versions": {"trl": version}})
        assert complete(job).grad_ckpt is on


def test_vllm_utilisation_by_version():
    for version, value in (("0.8.5", 0.9), ("0.20.2", 0.92)):
        job = complete(Job.from_document({"framework": "vllm", "versions": {"vllm": version}}))
        assert job.serving.gpu_memory_utilization == value
        assert job.objective == "inference"
        assert job.grad_ckpt is None


def test_deepspeed_engines_hold_sixteen_bits():
    job = complete(Job.from_document({"framework": "openrlhf", "sharding": "zero3"}))
    assert (job.param_dtype, job.autocast, job.attention) == ("bf16", "none", "flash2")


def test_stated_fields_stay():
    job = complete(Job.from_document({"framework": "llama-factory", "grad_ckpt": False, "seq_len": 77}))
    assert (job.grad_ckpt, job.seq_len) == (False, 77)
    assert "seq_len" not in job.assumed


def test_supports():
    assert supports("llama-factory", "fused_ce", True, {"llamafactory": "0.9.1"})
    assert not supports("llama-factory", "fused_ce", True, {"llamafactory": "0.8.0"})
    assert not supports("vllm", "micro_batch")
    assert supports("vllm", "serving.max_model_len")
    assert not supports("openrlhf", "offload", "param")
    assert supports("llama-factory", "offload", ["optimizer", "param"])
    assert not supports("megatron", "method", "lora")
    assert supports("trl", "quant", "nf4")
    # What comes from a base is judged by the base's version, not by that of the framework built on it.
    assert supports("trl", "fused_ce", True, {"trl": "0.29.0"})
    assert supports("trl", "fused_ce", True, {"trl": "0.29.0", "transformers": "4.50.0"})
    assert not supports("trl", "fused_ce", True, {"trl": "0.29.0", "transformers": "4.40.0"})
    assert [f.name for f in lineage("unsloth")] == ["unsloth", "trl", "transformers"]


@given(
    st.sampled_from([f.name for f in FRAMEWORKS] + [None]),
    st.sampled_from([None, "sft", "dpo", "ppo", "grpo", "inference", "pretrain"]),
    st.sampled_from([None, "full", "lora", "qlora"]),
    st.sampled_from([None, "zero2", "zero3", "fsdp2", "none"]),
    st.integers(1, 64),
)
def test_completion_fills_what_pricing_needs(framework, objective, method, sharding, gpus):
    given_fields = {
        "framework": framework,
        "objective": objective,
        "method": method,
        "sharding": sharding,
        "gpus": gpus,
    }
    job = complete(Job.from_document(given_fields))
    for name in ("objective", "method", "quant", "param_dtype", "attention", "sharding", "world", "dp"):
        assert job.get(name) is not None, name
    if job.objective != "inference":
        assert job.micro_batch
        assert job.seq_len
        assert job.grad_ckpt is not None
    for name, value in given_fields.items():
        if value is not None:
            assert job.get(name) == value


@pytest.mark.parametrize(
    ("model", "quant"),
    [
        ("Qwen/Qwen3-32B-AWQ", "awq-int4"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "gptq-int4"),
        ("Qwen/Qwen3-32B", "none"),
    ],
)
def test_a_served_checkpoint_is_stored_as_its_name_says(model: str, quant: str) -> None:
    served = complete(Job(model=model, framework="vllm", objective="inference"))
    assert served.quant == quant
    assert "quant" in served.assumed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("title = 'a'\nkind = 'training'\npackage = 'a'\nsource = 'x'\ncolour = 'red'\n", "unknown field colour"),
        ("title = 'a'\nkind = 'training'\npackage = 'a'\n", "no source"),
        ("title = \n", "cannot be read"),
    ],
)
def test_a_record_that_is_none_is_refused_by_its_place(tmp_path, text, problem):
    path = tmp_path / "thing.toml"
    path.write_text(text)
    with pytest.raises(CatalogError) as error:
        load(path)
    assert problem in str(error.value)
    assert error.value.where == str(path)


def test_an_unknown_framework_has_no_defaults_of_any():
    job = complete(Job.from_document({"framework": "unknown", "params_b": 7}))
    assert {a.why for a in job.assumed.values() if "transformers" in a.why or "Trainer" in a.why} == set()
    assert (job.micro_batch, job.grad_ckpt) == (1, False)


def test_a_pipeline_of_unstated_accumulation_is_filled() -> None:
    stated = {"model": "Qwen/Qwen2.5-7B", "objective": "pretrain", "pp": 4, "world": 8, "micro_batch": 1}
    assert complete(Job.from_document({**stated, "framework": "megatron"})).grad_accum == 4
    assert complete(Job.from_document({**stated, "framework": "megatron", "grad_accum": 1})).grad_accum == 1
    assert complete(Job.from_document({**stated, "framework": "megatron", "pp": 1})).grad_accum == 1
