"""What a turn does is read by its words: values that it only mentions change nothing, of several acts each is done."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from talking import answers_of, talk

from oomdoc.chat.acts import in_two
from oomdoc.chat.turn_words import ACT_WEIGHTS, ACTS, VIEW_WEIGHTS, VIEWS, acts_of, model, views_of

SERVED = "vllm serve Qwen/Qwen2.5-32B-Instruct --tensor-parallel-size 2 --max-model-len 32768 on two A100 80GB, fits?"
TRAINED = "full fine-tuning of Llama-3.1-8B with TRL, ZeRO-3 on 4x A100 40GB, 8192 tokens, batch 1, checkpointing on"
TUNED = "LLaMA-Factory QLoRA Qwen2.5-7B，单卡 RTX 4090，cutoff_len 4096，bs 1，开了梯度检查点，放得下吗？"


@pytest.mark.parametrize(("weights", "names"), [(ACT_WEIGHTS, ACTS), (VIEW_WEIGHTS, VIEWS)])
def test_the_weights_are_those_of_the_labelled_turns(
    load_bench: Callable[[str], ModuleType], weights: str, names: tuple[str, ...]
) -> None:
    bench = load_bench("train_turns")
    assert model(weights).key == bench.key(), "run bench/train_turns.py --write"
    assert model(weights).names == names


def test_probabilities_are_those_of_exclusive_classes() -> None:
    for odds in (acts_of("put the batch at 2 please"), views_of("and the whole command?")):
        assert sum(odds.values()) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(
    ("start", "turn"),
    [
        (SERVED, "that 34000 figure, is it per request or all of them together?"),
        (SERVED, "so you are saying 8 users at 32k fit, is that right?"),
        (TRAINED, "cpu offload is a no-go here, we tried optimizer offload in spring and it crawled"),
        (TRAINED, "hmm, doesn't gradient accumulation 16 take 16 times the memory?"),
        (TRAINED, "we might get another node next month, how would it look then?"),
        (TUNED, "max_length 默认 1024 指的是截断后的长度还是 padding 的长度？"),
        (TUNED, "也就是说 24G 跑 14B 的 QLoRA 也够，对吧？"),
    ],
)
def test_what_is_only_mentioned_changes_nothing(start: str, turn: str) -> None:
    _, (_, reply) = talk(start, turn)
    assert reply["changed"] == {}


@pytest.mark.parametrize(
    ("start", "turns", "expected"),
    [
        # What is turned down, held or reported first, and then something else.
        (TRAINED, ["no offload, it's too slow on this box. batch 2 then"], {"micro_batch": 2, "offload": None}),
        (TUNED, ["又爆了，那长度改 2048"], {"seq_len": 2048}),
        # What is decided, and then a question about something else.
        (TRAINED, ["batch 2, and what if we had 8 of these cards?"], {"micro_batch": 2, "gpus": 4}),
        # A conversation's own words for numbers.
        (TRAINED, ["batch 1 to 4, the effective batch stays the same", "micro batch 2, keep the global batch"], {}),
        (TRAINED, ["I only get 2 of the 4 tomorrow"], {"gpus": 2}),
        (TRAINED, ["can the eval batch go to 16? set it to that"], {"micro_batch": 1}),
        (TUNED, ["14b 吧，还是这张卡"], {"model": "Qwen2.5-14B"}),
        (SERVED, ["we also run an embedding model next to it, about 6 GB"], {"model": "Qwen/Qwen2.5-32B-Instruct"}),
        # What is left for later, put aside, or corrected.
        (TRAINED.replace("ZeRO-3", "ZeRO-2"), ["zero3 先不换，长度改 4096"], {"seq_len": 4096, "sharding": "zero2"}),
        (TRAINED, ["forget llama, go with Qwen3-8B"], {"model": "Qwen3-8B"}),
        (TUNED, ["不是 7B，是 14B"], {"model": "Qwen2.5-14B"}),
        # A question about a split, then about the cards: the split follows them.
        (SERVED, ["would one card with tp 1 start?", "no, two cards it is. context 8192"], {"gpus": 2, "tp": 2}),
        # A flag's dashes are no negation.
        (SERVED, ["add --enforce-eager"], {"serving.cuda_graphs": None}),
        # "算了" is to give up, or to have counted.
        (TUNED, ["长度 2048", "激活那部分到底算了些什么"], {"seq_len": 2048}),
        # A value put back is a value, and the other settings stay.
        (TRAINED, ["batch 2, 4096 tokens", "put the length back at 8192"], {"micro_batch": 2, "seq_len": 8192}),
        # The eight bits of an optimizer are not those of the weights.
        (TRAINED, ["switch the optimizer to the 8-bit version"], {"optimizer": "adamw_8bit", "quant": None}),
    ],
)
def test_the_run_after_the_turns(start: str, turns: list[str], expected: dict[str, Any]) -> None:
    session, _ = talk(start, *turns)
    got = {name: session.job.get(name) for name in expected}
    assert {n: v or None for n, v in got.items()} == expected


def test_what_may_not_change_is_in_no_proposal() -> None:
    session, answers = answers_of(TRAINED.replace("8192", "65536"), "offloading is out, we tried it and it was useless")
    assert "offload" in session.held
    assert not any("offload" in line for line in answers[-1].splitlines() if "fit" in line.lower() and "→" in line)


def test_two_things_without_a_known_form_stand_side_by_side_and_one_is_taken_by_its_name() -> None:
    session, replies = talk(
        TRAINED,
        "we could do 8bit adam, or offload the optimizer to cpu. which would you take?",
        "go with the 8bit one",
    )
    assert replies[1]["changed"] == {}
    assert sum(line.startswith("- ") for line in replies[1]["answer"].splitlines()) >= 2
    assert session.job.optimizer == "adamw_8bit"
    assert not session.job.offload


@pytest.mark.parametrize(
    "turn", ["give me the whole SFTConfig with that in it", "把现在这套的完整启动参数写给我", "full launch line pls"]
)
def test_the_configuration_is_asked_for_in_many_words(turn: str) -> None:
    _, answers = answers_of(TRAINED, turn)
    assert "```" in answers[-1]


def test_a_turn_is_two_only_where_it_does_two_things() -> None:
    assert in_two("batch 2, 4096 tokens, checkpointing on") is None
    assert in_two("不要量化，改成 tp 4 吧") == ("不要量化，", "改成 tp 4 吧")


def test_what_something_else_holds_is_no_model_of_the_run() -> None:
    session, _ = talk(SERVED, "bge-m3 也要放在同一张卡上，大概占 4G")
    assert session.job.model == "Qwen/Qwen2.5-32B-Instruct"
    share = session.job.get("serving.gpu_memory_utilization")
    assert share is not None
    assert share <= 0.95


def test_a_part_that_says_nothing_is_not_answered_where_the_other_did_something() -> None:
    _, replies = talk(TRAINED, "we have room, it seems. swap in the 70B, same settings. does it go?")
    assert replies[1]["changed"]["model"].endswith("70B")
    assert "nothing is changed" not in replies[1]["answer"]


def test_a_failure_within_a_conversation_keeps_the_stored_bits_and_the_framework() -> None:
    start = "unsloth/gemma-2-9b-bnb-4bit with unsloth on a T4, max_seq_length 2048, batch 1, lora r=16, does it fit?"
    session, replies = talk(start, "ValueError: Your setup doesn't support bf16/gpu. You need Ampere GPU")
    assert session.job.quant == "nf4"
    assert replies[1]["answer"].count("GiB of 14.") <= 1


def test_a_setting_that_stays_is_one_that_the_figures_count() -> None:
    _, answers = answers_of(TUNED, "batch 改成 2，cutoff_len 别动")
    assert "没有算它" not in answers[-1]


@pytest.mark.parametrize("question", ["how many full 32k requests at the same time?", "能同时跑几条满长的？"])
def test_one_request_at_a_time_is_an_answer(question: str) -> None:
    start = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 32768 on one 4090"
    _, answers = answers_of(start, question)
    assert "32,768" in answers[-1].splitlines()[0]


def test_what_another_program_prints_on_a_mac_gets_no_variable_of_pytorch() -> None:
    text = (
        "macbook m1 max 32gb, llama-server -m qwen2.5-32b-instruct-q4_k_m.gguf -c 32768 -ngl 99\n"
        "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
    )
    _, answers = answers_of(text)
    assert "PYTORCH_MPS" not in answers[0]


@pytest.mark.parametrize("turn", ["how many at the same time without it?", "不加这个的话能同时跑几条？"])
def test_what_is_asked_about_without_a_proposal_drops_it(turn: str) -> None:
    session, _ = talk(SERVED, "what would an fp8 kv cache do?", turn)
    assert not session.proposed
    assert session.job.get("serving.kv_dtype") is None


def test_a_command_is_written_without_the_sentence_behind_it_and_with_what_that_says() -> None:
    start = "vllm serve Qwen/Qwen2.5-7B-Instruct on one 4090, context 32k, does it fit?"
    _, answers = answers_of(start, "the command please")
    assert "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 32768" in answers[-1]
    assert "4090" not in answers[-1]
