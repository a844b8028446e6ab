"""Texts that name no model, tell of a failure in a few words, describe a run without asking, or are of something else."""

from __future__ import annotations

import pytest

import oomdoc
from oomdoc.chat.conversation import respond
from oomdoc.chat.session import Session


@pytest.mark.parametrize(
    "text",
    [
        "How much VRAM do I need to fine-tune this model?",
        "请问微调一般需要多大的显存？",
        "Is a 3090 enough for training it?",
        "4 张 80G 的卡能跑全参训练吗",
    ],
)
def test_where_no_model_is_named_the_sizes_of_models_are_set_against_uses(text: str) -> None:
    document = oomdoc.diagnose(text).document()
    assert document["verdict"] == "no-failure"
    assert document["grid"]["name"] == "uses-sizes"
    assert not any("serve" in row or "部署" in row for row in document["grid"]["rows"])


def test_such_sizes_stand_beside_a_failure_whose_model_is_not_named() -> None:
    document = oomdoc.diagnose(
        "How much memory does it take? I tried my RTX 4090 and it went out of memory."
    ).document()
    assert document["verdict"] == "device-oom"
    assert document["grid"]["name"] == "uses-sizes"
    assert document["causes"][0]["probability"] <= 0.8


def test_what_a_careful_start_needs_stands_beside_a_failure_that_asks_for_it() -> None:
    report = oomdoc.diagnose("How much does QLoRA of Qwen2.5-14B need? It runs out of memory on my 3090.")
    assert report.document()["verdict"] == "device-oom"
    assert any(message.key == "answer.careful" for message in report.diagnosis.answers)


def test_the_hardware_is_not_to_blame_where_a_mild_form_of_the_run_fits() -> None:
    text = "What GPUs does LoRA of a 14B take? I keep hitting OOM on 8x H100 with FSDP."
    causes = {c["cause"]: c["probability"] for c in oomdoc.diagnose(text).document()["causes"]}
    assert causes.get("hardware-limit", 0.0) < 0.1


@pytest.mark.parametrize("text", ["Llama-2-13B OOM on my 3090", "my 8B on a 4060 goes out of memory"])
def test_a_failure_told_of_without_a_word_of_training_is_a_run_of_the_model(text: str) -> None:
    document = oomdoc.diagnose(text).document()
    assert document["job"]["objective"] == "inference"
    assert document["estimate"]["peak_gib"]["process"] < 40


def test_with_a_word_of_training_it_trains() -> None:
    assert oomdoc.diagnose("fine-tuning a 7B on my 3090 dies with oom").document()["job"]["objective"] != "inference"


@pytest.mark.parametrize(
    "text",
    [
        "vllm 0.8.5, a 1.3B on a V100 32GB, 64 concurrent users",
        "Setup: TRL, LoRA r=16 of Qwen2.5-7B, one A100 80GB, batch 4, 2048 tokens.",
        "我们用 sglang 在两张 A800 上部署 Qwen2.5-32B，上下文 16k，平时十几个人用",
    ],
)
def test_a_description_is_no_complaint(text: str) -> None:
    document = oomdoc.diagnose(text).document()
    assert document["verdict"] == "no-failure"
    assert document["outlook"]["answer"] in ("fits", "tight", "does-not-fit")


@pytest.mark.parametrize(
    "text",
    [
        "Loss goes NaN at step 300, fp16, V100 x8, Falcon 7B, lr 2e-4.",
        "微调之后模型只会重复同一句话，Qwen2.5-7B lora，r=8，3 个 epoch，3090",
        "MMLU dropped from 62 to 41 after my DPO run of Mistral 7B, beta 0.01, 4 A100.",
    ],
)
def test_another_trouble_gets_no_figures(text: str) -> None:
    document = oomdoc.diagnose(text).document()
    assert document["verdict"] in ("no-failure", "not-oom")
    assert "GiB" not in document["summary"]


def test_a_run_behind_a_command_is_answered_whatever_else_is_said() -> None:
    command = "llama-server -m Qwen2.5-7B-Instruct-Q4_K_M.gguf -ngl 99 -c 8192\n# a 7900 XTX, ROCm 6.2"
    assert oomdoc.diagnose(command).document()["outlook"]["answer"] == "fits"


def test_requests_that_share_one_cache_wait_and_the_engine_starts() -> None:
    report = oomdoc.diagnose("vllm, Llama-3.1-8B on one 24GB 4090, 40 users, max-model-len 16384")
    said = [message.key for message in report.diagnosis.summary]
    assert said[:2] == ["answer.does-not-fit", "answer.queued"]
    assert "summary.plan" not in said


def test_an_engine_that_fills_the_card_does_what_it_does_by_itself() -> None:
    text = (
        "After the model is loaded all of the remaining GPU memory is allocated. It should not take more than 20GB on "
        "my two A100 80GB. Is that expected?\n\n`text-generation-launcher --model-id meta-llama/Llama-2-7b-hf --num-shard 2`"
    )
    report = oomdoc.diagnose(text)
    assert report.document()["verdict"] == "no-failure"
    assert report.diagnosis.summary[0].key == "answer.reserved"
    assert "--cuda-memory-fraction" in str(report)


def test_host_memory_that_is_named_whole_is_not_the_card_s() -> None:
    text = "Why does vLLM use so much CPU memory? The model is on the GPU, and still 100 GB of system RAM are gone."
    outcome = oomdoc.diagnose(text).diagnosis.evidence.outcome
    assert outcome is not None
    assert outcome.memory in ("host", None)


def test_eight_bits_of_a_base_are_read_in_a_question_about_training() -> None:
    job = oomdoc.diagnose("Can I train a LoRA of a 13B in 8bit on my 3090?").document()["job"]
    assert (job["method"], job["quant"]) == ("lora", "int8")
    job = oomdoc.diagnose("Does LoRA of a 13B with 8-bit Adam fit my 3090?").document()["job"]
    assert job.get("quant") != "int8"


def test_a_script_without_a_fence_is_read_whole() -> None:
    text = """import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

quantized = BitsAndBytesConfig(load_in_8bit=True)
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1", quantization_config=quantized)
print(model.generate(torch.ones(1, 8)))
# on an L4"""
    job = oomdoc.diagnose(text).document()["job"]
    assert (job["quant"], job["gpu"]) == ("int8", "L4")


def test_of_machines_alone_nothing_says_what_they_are_for() -> None:
    session, reply = respond(Session(), "I have two 3090s")
    assert "objective" not in reply.changed
    session, reply = respond(session, "QLoRA of a 13B with 4k context?")
    assert session.job.method == "qlora"
    assert session.job.params_b == 13
    assert "3090" in reply.answer


def test_what_an_engine_holds_by_its_share_is_no_fault_whatever_model_it_serves() -> None:
    text = "After loading with lmdeploy 67 GB of my A800 are in use, with transformers it is 16 GB. Is my code wrong?"
    report = oomdoc.diagnose(text)
    assert report.document()["verdict"] == "no-failure"
    assert report.diagnosis.summary[0].key.startswith("answer.reserved")


def test_an_engine_starts_as_its_script_says() -> None:
    text = (
        "I have four 80G cards and the script always runs out of memory:\n```python\n"
        'llm = LLM(model="Qwen/Qwen2.5-72B-Instruct")\n```\n'
    )
    document = oomdoc.diagnose(text).document()
    assert document["causes"][0]["cause"] == "weights-load"
    assert any("tensor" in change["key"] for plan in document["plans"] for change in plan["changes"])


def test_the_card_that_the_question_names_counts() -> None:
    text = "I saw you used 8 A100 40GB GPUs. Is it possible to train with 4 x RTX A6000 GPUs?"
    job = oomdoc.diagnose(text).document()["job"]
    assert (job["gpu"], job["gpus"]) == ("RTX A6000", 4)


def test_a_year_counts_no_machines() -> None:
    job = oomdoc.diagnose("Can my 2021 MacBook Pro M1 with 16GB run a 7B in 4 bits?").document()["job"]
    assert job.get("gpus") in (None, 1)
