"""What works with less of it and fails with more of it: batches, lengths, pictures."""

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.rules import activations
from oomdoc.diagnosis.rules._compared import decided_by
from oomdoc.intake import read_text


def decided(text: str) -> frozenset[str]:
    return decided_by(view_of(read_text(text))[0])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Training is fine with batch size 12, but with batch size 24 I get out of memory.", "batch"),
        ("When batchsize is 64 it crashes with OOM. When I set batchsize to 20 it works.", "batch"),
        ("batch_size 设为 4 可以正常训练，设为 8 就爆显存", "batch"),
        ("max_length=4096 ends in out of memory, setting 1536 it runs fine", "length"),
        ("上下文长度从 3072 调到 12288 就爆显存", "length"),
        ("Raising the cutoff from 1536 to 6000 goes out of memory", "length"),
        ("per_device_train_batch_size=12 is OOM, 3 works", "batch"),
        ("At 8k context everything is normal. However, at 24k context: OOM.", "length"),
        ("A picture of 640x480 is fine, one of 3840x2160 goes out of memory", "picture"),
    ],
)
def test_a_smaller_one_works_and_a_larger_fails(text: str, kind: str) -> None:
    assert decided(text) == {kind}


@pytest.mark.parametrize(
    "text",
    [
        "Out of memory with batch size 8, and with batch size 4 as well.",
        "Yesterday batch size 8 worked, today batch size 8 fails with OOM.",
        "It works on the large card with batch size 8; batch size 4 fails with OOM on the small one.",
        "We train with batch size 8 and a length of 2048, out of memory.",
    ],
)
def test_what_is_not_smaller_decides_nothing(text: str) -> None:
    assert decided(text) == frozenset()


def signs(text: str) -> set[str]:
    return {r.message.key.rpartition(".")[2] for r in activations.weigh(view_of(read_text(text))[0]) if r.log_odds > 0}


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("Training runs out of memory for any batch size > 6, how do you train it?", "limited"),
        ("After I reduced the batch size to 10 it trains fine, before that CUDA out of memory", "limited"),
        ("训练时 batch size 最多为 6，再大就爆显存", "limited"),
        ("LoRA training goes OOM once I remove gradient checkpointing", "unchecked"),
        ("I forgot to turn on gradient checkpointing and training ran out of memory", "unchecked"),
        ("微调时去掉 gradient checkpointing 就会爆显存", "unchecked"),
    ],
)
def test_what_a_batch_or_checkpointing_changes_is_told(text: str, sign: str) -> None:
    assert sign in signs(text)


@pytest.mark.parametrize(
    "text",
    [
        "A smaller batch did not help: batch size 1 still runs out of memory in training",
        "训练时把 batch 调小也没用，还是爆显存",
        '"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8, training goes OOM',
        "OOM in the epoch's end, with model checkpointing disabled it does not happen",
    ],
)
def test_a_batch_that_changes_nothing_and_a_setting_are_no_signs(text: str) -> None:
    assert not {"limited", "batch", "unchecked"} & signs(text)
