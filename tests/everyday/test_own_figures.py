"""What a person measured answers without a model: lists of sizes and peaks, one figure, what nvidia-smi shows."""

from __future__ import annotations

import pytest

import oomdoc

_BY_LENGTH = [
    "Peaks: 18 GB at 1024 tokens, 24 at 2048, 36 at 4096. Is 8192 ok on the 80GB card?",
    "seq 1024 -> 18GB, 2048 -> 24GB, 4096 -> 36GB (bs=1), card has 80 GB. does 8192 fit?",
    "实测：长度 1024 占 18G，2048 占 24G，4096 占 36G，80G 的卡，8192 行吗",
]


@pytest.mark.parametrize("text", _BY_LENGTH)
def test_a_list_of_lengths_is_carried_on(text: str) -> None:
    """18, 24, 36 lie on a line of 6 per 1,024 tokens and 12 at zero: 60 at 8,192."""
    found = oomdoc.diagnose(text).document()
    assert found["outlook"]["answer"] == "fits"
    assert "60.00 GiB" in " ".join(found["sentences"])


def test_the_largest_batch_by_a_list() -> None:
    """5 a sample and 10 at zero: 6 samples take 40 of 45.6 usable, 8 take 50."""
    text = "measured on a 48GB card: bs 1 15G, bs 2 20G, bs 4 30G. can i go to 8?"
    found = oomdoc.diagnose(text).document()
    assert found["outlook"]["answer"] == "does-not-fit"
    assert "50.00 GiB" in " ".join(found["sentences"])
    assert "batch 7" in " ".join(found["sentences"])


def test_the_length_beside_a_list_of_batches_is_no_batch() -> None:
    text = "Lora, seq 2048, A100 40G\nbs=1 22G\nbs=2 27G\nwhat is the largest batch size?"
    assert "2,048" not in " ".join(oomdoc.diagnose(text).document()["sentences"])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("My run takes 20GB at bs 2 on an 80GB card, is bs 4 ok?", "fits"),  # at most 40
        ("My run takes 35GB at bs 4 on an A100 40GB. is bs 6 ok?", "tight"),  # 35 to 52.5
    ],
)
def test_one_figure_bounds(text: str, answer: str) -> None:
    assert oomdoc.diagnose(text).document()["outlook"]["answer"] == answer


def test_what_tensors_take_decides_on_a_smaller_card() -> None:
    """PyTorch gives its cache back before an allocation fails: 41 GiB of tensors and a context fit 48."""
    text = "nvidia-smi shows 74 GB, max_memory_allocated is 41 GB, card is an 80GB one. would a 48 GB card do?"
    assert oomdoc.diagnose(text).document()["outlook"]["answer"] == "fits"
    text = "nvidia-smi shows 74 GB, max_memory_allocated is 47 GB, card is an 80GB one. would a 48 GB card do?"
    assert oomdoc.diagnose(text).document()["outlook"]["answer"] == "tight"


@pytest.mark.parametrize("text", ["4 GPUs 66GB, 8 GPUs 40GB each", "step 100 22GB, step 200 24GB, step 300 26GB"])
def test_other_lists_are_no_sizes_of_a_run(text: str) -> None:
    from oomdoc.intake.read import read_text

    assert not list(read_text(text).find("worked-at"))
