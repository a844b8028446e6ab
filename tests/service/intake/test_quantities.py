"""What each number of a text is of. The sentences here are none of those that the reader was fitted on."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

import oomdoc
from oomdoc.intake.numbers import Listed
from oomdoc.intake.quantities import quantities_in
from oomdoc.intake.quantities.fields import at_once, is_possible, lengths_of, refuted
from oomdoc.intake.quantities.reader import model, roles, value_of
from oomdoc.intake.quantities.tokens import tokens_of
from oomdoc.intake.read import read_text


def test_the_weights_are_those_of_the_marked_texts(load_bench: Callable[[str], ModuleType]) -> None:
    assert model().key == load_bench("train_quantities").key(), "run bench/train_quantities.py --write"


def test_every_mark_has_a_role(load_bench: Callable[[str], ModuleType]) -> None:
    bench = load_bench("train_quantities")
    names = {"model", "draft_model", "reference_model", "reward_model", "embedding_model", "other_model", "card"}
    names |= {"method", "engine", "framework", "offload"}
    names |= {f"{of}_format" for of in ("weight", "cache", "optimizer", "compute", "gradient", "other")}
    plain = {"time", "price", "speed", "version", "id", "learning_rate", "image_size", "disk_size", "bits", "other"}
    assert all(definition.strip() for definition in roles().values())
    known = roles().keys() | names | plain | bench.SAME.keys()
    for path in bench.DATA.glob("*.txt"):
        for text in bench.read_marked(path):
            assert {mark[2] for mark in text.marks} <= known, text.name
            assert not {"⟦", "⟧"} & set(text.text), text.name


@pytest.mark.parametrize(
    ("number", "unit", "value"),
    [
        ("8k", "K", 8192),
        ("2万", "K", 20_000),
        ("24576MiB", "M", 24.0),
        ("1.5TB", "T", 1536.0),
        ("85%", "%", 0.85),
        ("1亿", "B", 0.1),
        ("16,384", "n", 16384),
        ("two", "word", 2),
        ("2024.8.1", "n", None),
    ],
)
def test_values(number: str, unit: str, value: float | None) -> None:
    assert value_of(number, unit) == value


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("8x A100 80GB", ["8", "80GB"]),
        ("24 GB L4", ["24 GB"]),
        ("a pair of XYZ9000 and Q4_K_M files", ["pair"]),
        ("tp4pp2", ["4", "2"]),
        ("RTX 4090 and a 3090", []),
    ],
)
def test_numbers_inside_names_are_none(text: str, numbers: list[str]) -> None:
    assert [token.number for token in tokens_of(text) if token.number] == numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("our clinic has 14 nurses on it in the same minute, each chat near 2,300 tokens", {"14": "users"}),
        (
            "the gguf file is 19 GB, laptop with 32 GB of memory",
            {"19 GB": "file_size", "32 GB": "host_memory"},
        ),
        ("两台服务器，每台 8 张卡", {"两": "nodes", "8": "gpus_per_node"}),
        (
            "it held 41 GB before the crash and asked for 3.2 GB more",
            {"41 GB": "used_memory", "3.2 GB": "requested_memory"},
        ),
        ("28 of 41 layers go on the gpu", {"28": "layers_on_card"}),
        ("每个 prompt 采样 6 条", {"6": "generations"}),
    ],
)
def test_roles(text: str, expected: dict[str, str]) -> None:
    found = {q.written: q.role for q in quantities_in(text)}
    assert {written: found.get(written) for written in expected} == expected


def test_a_number_of_another_kind_sets_no_field() -> None:
    text = "14B model, 19 users at once"
    start = text.index("19")
    assert refuted(text, "capacity_gib", start, start + 2)
    assert not refuted(text, "serving.concurrency", start, start + 2)


def test_the_window_and_a_usual_request() -> None:
    text = "30 people at a time, most of them at 5k tokens, window left at 64k"
    assert at_once(text) == 30
    assert lengths_of(text) == (65_536, 5 * 1024)


def test_cards_of_all_machines() -> None:
    text = "Full fine-tuning of Qwen2.5-14B on 3 nodes with 4 A100 80GB in each, does it fit?"
    assert read_text(text).value("gpu_count") == 12


def test_a_size_of_all_cards_is_none_of_one() -> None:
    assert read_text("Hardware: A10*4, 96GB VRAM. vLLM runs out of memory.").value("capacity_gib") != 96


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("With 12 users it holds 30 GB, with 24 users 36 GB, the card has 48 GB. 40 users?", "44.00 GiB"),
        ("KV cache usage is at 30% with 45 sessions. Is 120 ok?", "full at about 150"),
        ("a pool of 120k tokens, 4k per chat: how many at once?", "29 requests"),
        ("显存里固定占 14G，bs 3 时一共 23G，48G 的卡，bs 8 行吗", "38.00 GiB"),
    ],
)
def test_own_figures_of_other_kinds(text: str, says: str) -> None:
    assert says in " ".join(oomdoc.diagnose(text).document()["sentences"])


@pytest.mark.parametrize(
    "text",
    [
        "Qwen3-8B with vLLM on one H100, 6.54 users at once, 4k each, fits?",
        "LoRA of Qwen3-8B with batch size 2.5 and rank 0.5 on 0 GPUs?",
        "tp 99999999999 and pp 0 for Qwen3-8B on 99999999 nodes of 999999 cards",
    ],
)
def test_what_no_run_can_have_is_not_read(text: str) -> None:
    assert oomdoc.diagnose(text).document()["verdict"] == "no-failure"


@pytest.mark.parametrize(
    ("field", "value", "possible"),
    [
        ("serving.concurrency", 6.54, False),
        ("serving.concurrency", 6, True),
        ("tp", 0, False),
        ("micro_batch", 10**12, False),
        ("serving.gpu_memory_utilization", 0.85, True),
        ("serving.gpu_memory_utilization", 2.5, False),
    ],
)
def test_values_that_a_run_can_have(field: str, value: float, *, possible: bool) -> None:
    assert is_possible(Listed(field, value, 0, 1)) is possible
