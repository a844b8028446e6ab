"""Conversations as people hold them: after each turn the job has the values that were said; a question changes nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from talking import answers_of

from oomdoc.chat.conversation import respond
from oomdoc.chat.session import Session

ROWS = [json.loads(line) for line in (Path(__file__).parent / "conversations.jsonl").read_text("utf-8").splitlines()]
_EMPTY = (None, "none", "", (), [], False)


def _plain(value: Any) -> str:
    return re.sub(r"[^a-z0-9.]", "", str(value).lower())


def _same(name: str, said: Any, found: Any) -> bool:
    if found in _EMPTY and said in _EMPTY:
        return True
    if name == "offload":
        return set(found or ()) == set(said or ())
    if isinstance(said, int | float) and not isinstance(said, bool):
        return found == said
    if name in ("gpu", "model", "framework"):
        return _plain(said) in _plain(found) or _plain(found) in _plain(said)
    return _plain(said) == _plain(found)


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_every_turn_is_understood(row: dict[str, Any]) -> None:
    session = Session()
    for said, expected in row["turns"]:
        session, reply = respond(session, said)
        assert reply.answer, said
        if expected is None:
            assert reply.changed == {}, said
            continue
        wrong = {n: reply.job.get(n) for n, v in expected.items() if not _same(n, v, reply.job.get(n))}
        assert not wrong, said


ONE = "qlora of Qwen/Qwen3-8B with unsloth on one 4090, seq 4096, batch 2"


def test_more_ranks_than_gpus_raise_the_gpus_and_say_so() -> None:
    session, answers = answers_of(
        "vllm serve Qwen/Qwen2.5-32B-Instruct --max-model-len 8192 on one A100 40GB", "tensor parallel 2?"
    )
    assert (session.job.tp, session.job.world) == (2, 2)
    assert "2 GPUs in all" in answers[1]


def test_fewer_gpus_lower_the_ranks() -> None:
    session, _ = answers_of("vllm serve Qwen/Qwen2.5-32B-Instruct -tp 2 on 2 A100 40GB, tp 2", "go back to one gpu")
    assert (session.job.gpus, session.job.tp or 1) == (1, 1)


def test_a_question_is_made_a_change_by_a_yes() -> None:
    session, answers = answers_of(ONE, "would rank 128 fit?", "ok do it")
    assert "apply" in answers[1]
    assert session.job.get("lora.r") == 128


def test_another_card_forgets_the_first_one_s_capacity_until_it_is_back() -> None:
    session, _ = answers_of("lora of Qwen/Qwen3-8B on one A100 40GB, seq 4096, batch 2", "on an H200", "revert the gpu")
    assert session.steps[1].job.capacity_gib is None
    assert session.job.capacity_gib == session.steps[0].job.capacity_gib


def test_values_that_nobody_stated_are_said_to_be_assumed() -> None:
    _, answers = answers_of("full finetuning of Qwen/Qwen3-8B with zero3 on 8 H100s")
    assert "Assumed" in answers[0]
    assert "seq_len" in answers[0]


def test_terms_are_named_in_chinese() -> None:
    _, answers = answers_of("用 unsloth 在一张 4090 上 qlora 微调 Qwen3-8B，长度 4096，batch 2", "显存花在哪了")
    assert "权重" in answers[1]
    assert "weights" not in answers[1]


def test_the_trainer_named_is_the_framework_and_not_its_engine() -> None:
    session, _ = answers_of(
        "verl GRPO Qwen2.5-7B on 8xH100, actor and vllm colocated, rollout gpu_memory_utilization 0.8, OOM"
    )
    assert (session.job.framework, session.job.objective) == ("verl", "grpo")
    assert session.job.get("rollout.gpu_memory_utilization") == 0.8


@pytest.mark.parametrize(
    ("turn", "word"),
    [
        ("thanks!", "welcome"),
        ("who are you?", "oomdoc"),
        ("which one would you pick?", "My order"),
        ("what's the largest batch that fits?", "not even batch 1 fits"),
        ("is that faster than before?", "×"),
    ],
)
def test_questions_beside_the_memory_have_answers(turn: str, word: str) -> None:
    session, _ = answers_of(ONE, "turn off gradient checkpointing")
    session, reply = respond(session, turn)
    assert word in reply.answer
    assert reply.changed == {}


@pytest.mark.parametrize(
    ("turns", "field", "value"),
    [
        (["turn on liger", "switch it off"], "fused_ce", False),
        (["gradient checkpointing off", "selective instead"], "grad_ckpt", "selective"),
        (["rank=-8", "oops, 16"], "lora.r", 16),
        (["梯度检查点关掉", "不行，还是打开"], "grad_ckpt", True),
    ],
)
def test_what_was_changed_last_need_not_be_named(turns: list[str], field: str, value: Any) -> None:
    session, _ = answers_of(ONE, *turns)
    assert session.job.get(field) == value


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("what is my batch size?", "micro_batch is 2"),
        ("how much is it in the backward pass?", "In backward: "),
        ("优化器占多少", "优化器"),
    ],
)
def test_a_question_is_answered_with_what_it_names(question: str, said: str) -> None:
    _, answers = answers_of(ONE, question)
    assert said in answers[1]


def test_a_figure_of_the_diagnosis_is_explained_by_its_sentence() -> None:
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. GPU 0 has a total capacity of 79.11 GiB"
    _, answers = answers_of(f"{ONE}\n{log}", "where do the 4.64 come from?")
    assert answers[1].count("4.64") >= answers[0].count("4.64") > 0


def test_a_proposal_survives_the_store() -> None:
    session, _ = answers_of(ONE, "would rank 128 fit?")
    again = Session.from_document(json.loads(json.dumps(session.document())))
    again, reply = respond(again, "apply it")
    assert reply.changed["lora.r"] == 128


def test_a_number_in_thousands_is_a_length_whatever_was_changed_last() -> None:
    session, _ = answers_of(ONE, "rank 64", "set it to 8k")
    assert (session.job.get("lora.r"), session.job.seq_len) == (64, 8192)


def test_an_answer_may_count_what_was_named() -> None:
    session, _ = answers_of("full finetuning of Qwen/Qwen3-8B with zero3, out of memory", "4 of them, H100")
    assert (session.job.gpus, session.job.gpu) == (4, "H100")


LORA = "LoRA fine-tuning of Qwen2.5-7B on one RTX 4090, seq 2048, batch 1, checkpointing on. Does it fit?"
SERVED = "vLLM serving Qwen2.5-7B-Instruct on one RTX 4090, max-model-len 16384. Does it fit?"


@pytest.mark.parametrize(
    ("turns", "fields"),
    [
        # A run of another purpose is another run on the same machine, and the earlier one is gone back to.
        (
            (SERVED, "now fine-tune it with LoRA on the same card"),
            {"objective": "sft", "method": "lora", "framework": None},
        ),
        (
            (SERVED, "改成训练，qlora，长度 2048"),
            {"objective": "sft", "method": "qlora", "serving.max_model_len": None},
        ),
        ((LORA, "把它部署出去呢"), {"objective": "inference", "method": None, "micro_batch": None}),
        ((LORA, "训完用 vllm 部署"), {"objective": "inference", "framework": "vllm"}),
        ((LORA, "bs 2", "deploy it with sglang", "back to the training"), {"objective": "sft", "micro_batch": 2}),
        # An earlier variant.
        ((LORA, "bs 4", "no, keep the first one"), {"micro_batch": 1}),
        ((LORA, "bs 4", "还是用原来的"), {"micro_batch": 1}),
        ((LORA, "would bs 8 work?", "no, keep the first one"), {"micro_batch": 1}),
        # A correction.
        ((LORA, "not a 4090, an L4"), {"gpu": "L4"}),
        ((LORA, "not 7B but 14B"), {"model": "Qwen2.5-14B"}),
        # A number that stands alone is for what it may be the next value of.
        ((LORA, "host ram is 64 GB", "8192?"), {"seq_len": 8192, "host_gib": 64.0}),
        ((LORA, "4 then"), {"micro_batch": 4}),
        ((LORA, "how large can the batch be?", "4 then, and give me the config"), {"micro_batch": 4}),
        ((LORA, "bs 4", "ok stick with 2, and 4096"), {"micro_batch": 2, "seq_len": 4096}),
        # What others leave of the card, a share without its name, host memory.
        ((SERVED, "a colleague uses 10 GB of the card"), {"serving.gpu_memory_utilization": 0.57}),
        ((LORA, "同事占了 10G"), {"capacity_gib": 13.65}),
        ((SERVED, "设0.75能开多长上下文"), {"serving.gpu_memory_utilization": 0.75}),
        ((LORA, "1.5TB per node"), {"host_gib": 1536.0}),
        ((LORA, "it gets killed when saving the checkpoint"), {"grad_ckpt": True}),
    ],
)
def test_what_the_job_is_after_the_last_turn(turns: tuple[str, ...], fields: dict[str, Any]) -> None:
    session, _ = answers_of(*turns)
    assert {name: session.job.get(name) for name in fields} == fields


@pytest.mark.parametrize(
    ("turns", "said", "unsaid"),
    [
        (
            (
                FULL := "Full fine-tuning of Llama-3.1-8B on 2 A100 80GB with zero2, seq 8192, batch 1. Will it fit?",
                "no offloading",
                "what else?",
            ),
            "paged_adamw_8bit",
            "offload_optimizer",
        ),
        ((FULL, "长度不能动"), "记下了", "max_length: 8192 →"),
        ((FULL, "why?"), "The peak is in", "LoRA saves"),
        ((FULL, "how do I set that?"), "optim: paged_adamw_8bit", "I only know"),
        ((LORA, "still OOM, now at eval"), "evaluation", "I only know"),
        ((LORA, "works, 19.5 GB used"), "they agree", "I only know"),
        ((LORA, "what's the weather in Paris?"), "I only know", "needs about"),
    ],
)
def test_what_the_last_answer_says(turns: tuple[str, ...], said: str, unsaid: str) -> None:
    _, answers = answers_of(*turns)
    assert said in answers[-1]
    assert unsaid not in answers[-1]
