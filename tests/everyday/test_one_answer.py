"""One run has one figure, whatever it is told through: a question in either language, or the first words of a chat."""

from __future__ import annotations

import pytest

import oomdoc
from oomdoc.chat.conversation import respond
from oomdoc.chat.session import Session
from oomkb.units import GIB

_SAME = 0.05
"""GiB by which figures of one run may differ: they are rounded on the way."""
TRAINED = [
    (framework, method, gpus)
    for framework, gpus in (
        ("LLaMA-Factory", 1),
        ("TRL", 1),
        ("axolotl", 1),
        ("ms-swift", 1),
        ("DeepSpeed", 8),
        ("", 1),
    )
    for method in ("full fine-tuning", "LoRA", "QLoRA")
]
TRAINED += [("Megatron-LM", "full fine-tuning", 8), ("torchtitan", "full fine-tuning", 8)]
_CHINESE = {"full fine-tuning": "全参微调", "LoRA": "LoRA 微调", "QLoRA": "QLoRA 微调"}
SERVED = [
    (engine, model, gpus, card)
    for engine in ("vLLM", "SGLang", "llama.cpp", "")
    for model, gpus, card in (("Qwen2.5-7B-Instruct", 1, "RTX 4090"), ("Qwen2.5-32B-Instruct", 2, "A100 80GB"))
]
ONLINE = [(framework, gpus) for framework in ("TRL", "verl", "OpenRLHF", "") for gpus in (1, 8)]


def _figures(*questions: str) -> list[float]:
    """GiB of the process, asked as questions and as the first words of a conversation."""
    found = []
    for question in questions:
        estimate = oomdoc.diagnose(question).diagnosis.estimate
        _, reply = respond(Session(), question)
        assert estimate is not None, question
        found += [estimate.process_bytes / GIB, (reply.peak_bytes or 0.0) / GIB]
    return found


@pytest.mark.parametrize(("framework", "method", "gpus"), TRAINED)
def test_training(framework: str, method: str, gpus: int) -> None:
    beside, with_ = (f" with {framework}", f"用 {framework} ") if framework else ("", "")
    sizes = _figures(
        f"Will {method} of Qwen2.5-7B{beside} in bf16 fit on {gpus}x H100 80GB, batch size 2, sequence length 4096?",
        f"{with_}对 Qwen2.5-7B 做{_CHINESE[method]}，bf16，{gpus} 张 H100 80G，batch size 2，长度 4096，显存够吗？",
    )
    assert max(sizes) - min(sizes) < _SAME


@pytest.mark.parametrize(("engine", "model", "gpus", "card"), SERVED)
def test_serving(engine: str, model: str, gpus: int, card: str) -> None:
    beside, with_ = (f" with {engine}", f"用 {engine} ") if engine else ("", "")
    sizes = _figures(
        f"Can I serve {model}{beside} on {gpus}x {card} with 16k context?",
        f"{with_}部署 {model}，{gpus} 张 {card}，上下文 16k，放得下吗？",
    )
    assert max(sizes) - min(sizes) < _SAME * gpus  # cards that share layers, said as such or not


@pytest.mark.parametrize(("framework", "gpus"), ONLINE)
def test_rollouts(framework: str, gpus: int) -> None:
    beside, with_ = (f" with {framework}", f"用 {framework} ") if framework else ("", "")
    sizes = _figures(
        f"Will full-parameter GRPO of Llama-3.1-8B{beside} fit on {gpus}x H200? batch size 1 per GPU, "
        "prompt 1024, response 2048 tokens, gradient checkpointing on, bf16.",
        f"{with_}全参 GRPO 训练 Llama-3.1-8B，{gpus} 张 H200，单卡 batch 1，prompt 1024，回答 2048 token，"
        "开梯度检查点，bf16，放得下吗？",
    )
    assert max(sizes) - min(sizes) < _SAME


def test_the_job_of_an_answer_has_the_answer_s_figure() -> None:
    found = oomdoc.diagnose(
        "Will full fine-tuning of Qwen2.5-7B with LLaMA-Factory fit on an H100 80GB, bf16, 2k tokens?"
    )
    assert found.diagnosis.estimate is not None
    again = oomdoc.estimate(found.document()["job"])
    assert again.peak_gib == pytest.approx(found.diagnosis.estimate.process_bytes / GIB, abs=_SAME)


@pytest.mark.parametrize(
    ("command", "fits"),
    [
        ("vllm serve meta-llama/Llama-3.1-8B-Instruct", False),  # 131,072 tokens × 128 KiB = 16 GiB beside 15
        ("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 16384", True),
        ("python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct", True),  # takes what is left
    ],
)
def test_an_engine_s_command_has_the_engine_s_context(command: str, fits: bool) -> None:
    found = oomdoc.diagnose(f"{command}\n\nRTX 4090 24GB, will it start?").document()
    assert (found["outlook"]["answer"] == "fits") is fits


def test_what_is_seen_in_use_corrects_the_estimate() -> None:
    found = oomdoc.diagnose(
        "sft of Qwen2.5-14B with LLaMA-Factory on 4x A100 80GB, deepspeed z3, cutoff_len 8192, "
        "per_device_train_batch_size 2, bf16. It runs, I see 74GB on each GPU. What is eating it?"
    )
    estimate = found.diagnosis.estimate
    assert found.diagnosis.inferred
    assert estimate is not None
    assert estimate.process_bytes / GIB == pytest.approx(74, rel=0.12)


_CARDS = "1x RTX 4090"


@pytest.mark.parametrize(
    ("engine", "said", "quant", "flags"),
    [
        ("vLLM", "in fp8", "fp8", "vllm serve {m} --max-model-len 8192 --quantization fp8"),
        ("TGI", "bitsandbytes nf4", "nf4",
         "text-generation-launcher --model-id {m} --max-total-tokens 8192 --quantize bitsandbytes-nf4"),
        ("SGLang", "in fp8", "fp8",
         "python3 -m sglang.launch_server --model-path {m} --context-length 8192 --quantization fp8"),
        ("llama.cpp", "Q8_0", "q8_0", "llama-server -m Qwen2.5-7B-Instruct-Q8_0.gguf -ngl 99 -c 8192"),
    ],
)  # fmt: skip
def test_a_served_run_through_every_door(engine: str, said: str, quant: str, flags: str) -> None:
    """Question, first words of a chat, command, docker compose and job document."""
    model = "Qwen2.5-7B-Instruct"
    name = {"TGI": "tgi"}.get(engine, engine.lower())
    sizes = _figures(f"Can I serve {model} {said} with {engine} on {_CARDS} with 8192 context?")
    command = flags.format(m=f"Qwen/{model}")
    words = command.split()
    listed = "".join(f"      - {word}\n" for word in words)
    compose = f"services:\n  llm:\n    image: engine\n    command:\n{listed}"
    for text in (command, compose):
        estimate = oomdoc.diagnose(f"{text}\n\n{_CARDS}, will it start?").diagnosis.estimate
        assert estimate is not None
        sizes.append(estimate.process_bytes / GIB)
    _, reply = respond(Session(), f"I want to serve {model} {said} using {engine}, {_CARDS} with 8192 context")
    sizes.append((reply.peak_bytes or 0.0) / GIB)
    job = {"model": f"Qwen/{model}", "framework": name, "quant": quant, "gpu": "RTX 4090", "objective": "inference"}
    sizes.append(oomdoc.estimate({**job, "serving": {"max_model_len": 8192}}).peak_gib)
    assert max(sizes) - min(sizes) < _SAME


@pytest.mark.parametrize(
    "text",
    [
        "vLLM with Llama-3.1-8B on a 4090, max_model_len not set: does it start?",
        "用 vLLM 部署 Llama-3.1-8B，一张 4090，没有设置 max_model_len，放得下吗？",
        "vllm serve meta-llama/Llama-3.1-8B-Instruct\n\nRTX 4090, will it start?",
    ],
)
def test_without_a_length_the_engine_s_own_counts(text: str) -> None:
    document = oomdoc.diagnose(text).document()
    assert document["outlook"]["answer"] == "does-not-fit"
    assert document["estimate"]["serving"]["max_model_len"] == 131072


def test_an_engine_that_does_not_start_is_a_failure_at_its_own_length() -> None:
    document = oomdoc.diagnose("vLLM wont start with Llama-3.1-8B on a 4090, max_model_len not set").document()
    assert document["verdict"] == "device-oom"
    assert document["estimate"]["serving"]["max_model_len"] == 131072
