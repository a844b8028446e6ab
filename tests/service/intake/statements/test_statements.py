"""What people say is read by one classifier, whose weights belong to the examples they were fitted on."""

from __future__ import annotations

from importlib import util
from pathlib import Path

import pytest

from oomdoc.evidence import Source
from oomdoc.intake.lines import Line, read_lines
from oomdoc.intake.statements import read_statements, statements
from oomdoc.intake.statements.concepts import MAX_ITEMS, Lexicon, features_of, items_of
from oomdoc.intake.statements.reader import model
from oomdoc.intake.statements.sentences import parts_of, sentences_of

_spec = util.spec_from_file_location(
    "statement_examples", Path(__file__).parents[4] / "bench" / "statement_examples.py"
)
assert _spec is not None
assert _spec.loader is not None
shipped = util.module_from_spec(_spec)
_spec.loader.exec_module(shipped)


def lines(text: str) -> list[Line]:
    return list(read_lines(Source("report", text)))


def said(text: str, least: float = 0.5) -> set[str]:
    return {statement.name for statement in read_statements(lines(text), least=least)}


def test_the_weights_belong_to_the_examples() -> None:
    assert model().key == shipped.examples_hash(), "an example or a concept changed: run bench/train_statements.py"
    assert model().names == tuple(statements())


def test_every_statement_has_examples_of_both_kinds() -> None:
    tables = {example.table for example in shipped.examples()}
    assert tables >= statements().keys()
    assert 40 <= len(statements()) <= 80
    assert all(definition.strip() for definition in statements().values())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("It died at 3 am, eleven hours into the run, with no VRAM left.", "fails-after-long-run"),
        ("Going from vllm 0.8.1 to 0.9.0 is what broke it, on 0.8.1 all was well.", "worked-before-upgrade"),
        ("I brought the batch down to one and it is still out of memory.", "smaller-batch-does-not-help"),
        ("每迭代一次显存就多一点，最后撑不住爆了", "grows-with-steps"),
        ("验证的时候爆显存，训练本身没有问题", "fails-while-evaluating"),
        ("How many 4090s would be needed to fine-tune this?", "asks-for-hardware"),
    ],
)
def test_sentences_that_are_no_examples(text: str, name: str) -> None:
    assert name in said(text)


@pytest.mark.parametrize(
    "text",
    [
        "Should I try a smaller batch size?",
        "Would ZeRO-3 help in this case?",
        "要不要试试更短的序列？",
        "transformers 4.44.0, torch 2.4.1, CUDA 12.4",
        "We train with batch size 8 and a sequence length of 4096 on 8 A100 GPUs.",
        "Thanks a lot for this project!",
    ],
)
def test_questions_plans_and_settings_say_nothing(text: str) -> None:
    assert said(text) <= {"asks-for-hardware"} if "?" in text else not said(text)


def test_polarity_decides() -> None:
    assert "smaller-batch-helps" in said("With batch size 1 it runs, with 2 it goes out of memory.")
    assert "smaller-batch-does-not-help" in said("With batch size 1 it goes out of memory as well.")
    assert "smaller-batch-helps" not in said("With batch size 1 it goes out of memory as well.")


def test_a_statement_keeps_its_line_and_stands_once() -> None:
    text = "We use 4 cards.\nHello. Memory slowly climbs with each step until it crashes.\nIt grows with every step."
    found = [s for s in read_statements(lines(text)) if s.name == "grows-with-steps"]
    assert len(found) == 1
    assert found[0].span.source == "report"
    assert found[0].span.line in (2, 3)
    assert 0.3 <= found[0].probability <= 1
    assert found[0].span.text.startswith(("Memory slowly", "It grows"))


def test_wrapped_lines_are_one_sentence_and_long_ones_are_cut() -> None:
    wrapped = "The training runs without any problem for several thousand steps and\nthen it goes out of memory."
    assert [s.text for s in sentences_of(lines(wrapped))] == [wrapped.replace("\n", " ")]
    long = "we use this, " * 60
    assert len(parts_of(long)) > 3
    assert all(len(part) < 400 for part in parts_of(long))


def test_numbers_and_identifiers_are_read_as_what_they_count() -> None:
    assert features_of("per_device_train_batch_size=1") == features_of("per device train batch size = 1")
    assert features_of("batch 16 fails") == features_of("batch 24 fails")
    assert features_of("batch 1 fails") != features_of("batch 2 fails")
    assert len(items_of("word " * 500)) == 500
    assert len(features_of(" ".join(f"word{i}" for i in range(500)))) <= 2 * MAX_ITEMS + 1


@pytest.mark.parametrize(
    "table",
    [{"a": {"en": "fine", "zh": "好abc"}}, {"a": {"en": "fine||", "zh": "好"}}],
)
def test_a_lexicon_is_checked(table: dict[str, dict[str, str]]) -> None:
    with pytest.raises(ValueError, match=r"concepts\.toml"):
        Lexicon(table)


@pytest.mark.parametrize(
    "text", ["", "\n\n", "a" * 4000, "，" * 3000, "(" * 3000, "a " * 2000, "1." * 2000, "是" * 4000]
)
def test_hostile_lines(text: str) -> None:
    read_statements(lines("\n".join([text] * 50)))
