"""Several questions in one text: each is answered, for the run that the text describes."""

from __future__ import annotations

import pytest
from talking import answers_of

import oomdoc
from oomdoc.intake.several import several_questions

LISTED = """Qwen3-30B-A3B, vLLM, one RTX 4090:
1) does int4 fit?
2) how much KV cache at 32k?
3) which card for a bf16 LoRA?"""


@pytest.mark.parametrize(
    ("text", "further"),
    [
        (LISTED, ("how much KV cache at 32k?", "which card for a bf16 LoRA?")),
        ("Llama-3.1-8B 一张4090。①能跑吗 ②fp8 呢", ("fp8 呢",)),
        ("一台 8 卡 A100。1、够吗 2、不够要几张", ("不够要几张",)),
        ("(a) what takes the most? (b) does fp8 help?", ("does fp8 help?",)),
        ("QLoRA of Qwen3-8B on a 3090, does it fit? And bf16 LoRA?", ("And bf16 LoRA?",)),
    ],
)
def test_questions_are_told_apart(text: str, further: tuple[str, ...]) -> None:
    found = several_questions(text)
    assert found is not None
    assert found.further == further
    assert not any(question in found.first for question in further)


@pytest.mark.parametrize(
    "text",
    [
        "Does Qwen3-8B fit on a 4090?",
        "Which one fits: 1) a 4090 2) an L40S 3) an A100",  # options, no questions
        "To save memory: 1. lower the batch. 2. turn on checkpointing. 3. use LoRA.",
        "torch 2.1.0, python 3.10. CUDA out of memory. Why?",
        "step 1) 12.1 GB step 2) 13.4 GB, is that a leak?",
    ],
)
def test_what_is_no_list_of_questions(text: str) -> None:
    assert several_questions(text) is None


def test_each_item_of_a_list_is_answered_for_its_own_run() -> None:
    report = oomdoc.diagnose(LISTED)
    assert report.diagnosis.job.method is None
    assert report.diagnosis.outlook is not None
    assert report.diagnosis.outlook.answer == "fits"  # not the LoRA of the last item
    answers = dict(report.further)
    assert "3.00 GiB" in answers["how much KV cache at 32k?"]  # 48 layers, 4 heads of 128, 16 bits, 32,768 tokens
    assert "80 GB" in answers["which card for a bf16 LoRA?"]
    assert [one["question"] for one in report.document()["further"]] == list(answers)
    shown = report.text()
    assert all(question in shown for question in answers)


def test_a_further_question_is_answered_beside_the_first() -> None:
    text = "8×A800 80G 全参微调 Qwen2.5-72B-Instruct，deepspeed zero3，seq 4096 bs1，显存够不够？不够的话要几张？"
    assert "24 张" in oomdoc.diagnose(text).text()
    (answered,) = oomdoc.diagnose(text.replace("不够的话要几张", "用 LoRA 的话每张卡占多少")).further
    assert answered[0].startswith("用 LoRA 的话")
    assert "33.39 GiB" in answered[1]


def test_what_was_said_is_not_said_again() -> None:
    report = oomdoc.diagnose("Will QLoRA of Qwen3-8B fit on one RTX 4090? How much would it need?")
    assert not report.further


def test_a_secret_in_a_question_is_masked() -> None:
    key = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ012345ab"
    text = f"Qwen3-8B, vLLM, one RTX 4090. 1) does bf16 fit? 2) and fp8 with my token {key}?"
    assert key not in oomdoc.diagnose(text).json()


def test_own_figures_answer_all_questions_at_once() -> None:
    text = "Batch 2 peaks at 17.4 GB, batch 4 at 22.6 GB on a 48 GB card. 1) what would 10 take? 2) biggest that fits?"
    assert not oomdoc.diagnose(text).further


def test_active_parameters_do_not_make_a_mixture_small() -> None:
    text = "Only 3B are active, so Qwen3-30B-A3B should fit on an 8 GB card in int4, right?"
    sentences = oomdoc.diagnose(text).document()["sentences"]
    assert any("30.5 billion" in sentence for sentence in sentences)


def test_a_turn_with_a_numbered_list_is_several_turns() -> None:
    _, (answer,) = answers_of("Qwen3-8B vllm 一张4090：1）能跑吗 2）fp8 呢 3）同时几个 8k 请求")
    assert [part[:2] for part in answer.split("\n\n")] == ["1)", "2)", "3)"]
