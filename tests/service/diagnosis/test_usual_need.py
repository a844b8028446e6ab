"""What is open of a failed run is not completed to a run that nobody would have started."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.usual_need import MAX_NEED_OF_CARD, WHY
from oomdoc.library import diagnose

_FAILED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.20 GiB. GPU 0 has a total capacity of 79.15 GiB of "
    "which 1.20 GiB is free.\n"
)
_SHORT = "I fine-tune Qwen/Qwen2.5-7B with LoRA and the Hugging Face Trainer on an A100 80GB, max_length 8192.\n"


@pytest.mark.parametrize("stated", ["", "per_device_train_batch_size: 4\n"])
def test_an_open_switch_is_not_left_at_a_default_that_needs_many_cards(stated: str) -> None:
    document = diagnose(_SHORT + stated + _FAILED, language_model=False).document()
    estimate = document["estimate"]
    assert estimate["assumed"]["grad_ckpt"] == {"value": True, "why": WHY}
    peak, (low, high) = estimate["peak_gib"]["process"], estimate["interval_gib"]["process"]
    assert peak <= MAX_NEED_OF_CARD * 79.15
    assert low <= peak <= high
    assert high >= MAX_NEED_OF_CARD * 79.15 - 1, "the run by its defaults needs more, and is not ruled out"


def test_what_is_supposed_is_still_proposed_and_asked_for() -> None:
    """Nobody said that checkpointing is on: a plan that relied on it would not hold."""
    document = diagnose(_SHORT + "per_device_train_batch_size: 4\n" + _FAILED, language_model=False).document()
    changed = [change["fields"] for change in document["plans"][0]["changes"]]
    assert {"grad_ckpt": True} in changed


def test_a_stated_switch_stays() -> None:
    text = _SHORT + "per_device_train_batch_size: 4\ngradient_checkpointing: false\n" + _FAILED
    estimate = diagnose(text, language_model=False).document()["estimate"]
    assert "grad_ckpt" not in estimate["assumed"]


def test_a_run_that_needs_about_its_card_keeps_the_defaults() -> None:
    text = _SHORT.replace("8192", "1024") + "per_device_train_batch_size: 2\n" + _FAILED
    estimate = diagnose(text, language_model=False).document()["estimate"]
    assert estimate["assumed"]["grad_ckpt"]["why"] != WHY
