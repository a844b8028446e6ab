"""Signs of states, of small cards and of what is beside the trained model; and texts that must not have them."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.rules import RULES
from oomdoc.intake import read_text

BY_CAUSE = {rule.CAUSE: rule for rule in RULES}


def weights(cause: str, text: str) -> dict[str, float]:
    reasons = BY_CAUSE[cause].weigh(view_of(read_text(text))[0])
    return {reason.message.key.removeprefix(f"cause.{cause}."): reason.log_odds for reason in reasons}


OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate {ask} (GPU 0; {card} total capacity; {held} already allocated)"
)

HAS = [
    ("hardware-limit", "small-card", OOM.format(ask="24.00 MiB", card="3.94 GiB", held="3.10 GiB")),
    ("hardware-limit", "how-much", "CUDA out of memory with the demo. How much VRAM is needed for it?"),
    ("hardware-limit", "how-much", "跑这个项目爆显存了，请问训练得用多少显存？"),
    ("hardware-limit", "larger-one", "It runs out of memory on my laptop. Do I need a better GPU?"),
    ("hardware-limit", "larger-one", "一运行就爆显存，除了换更好的显卡还有别的办法吗"),
    ("hardware-limit", "old-card", "out of memory on a GTX 960"),
    ("hardware-limit", "old-card", "MX150 显卡，一跑就 out of memory"),
    ("hardware-limit", "small-told", "I have a card with 6 GB of VRAM and get out of memory"),
]  # fmt: skip

HAS_NOT = [
    ("hardware-limit", "small-card", OOM.format(ask="24.00 MiB", card="23.69 GiB", held="22.10 GiB")),
    ("hardware-limit", "how-much", "LoRA SFT of Qwen2.5-7B, out of memory. How much VRAM is needed for it?"),
    ("hardware-limit", "larger-one", "It runs out of memory. A larger batch is better for the loss."),
    ("hardware-limit", "old-card", "out of memory on a RTX 4090 after 960 steps"),
    ("hardware-limit", "small-told", "I have a card with 16 GB of VRAM, the model needs 8 GB of VRAM, and get out of memory"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "sign", "text"), HAS)
def test_a_sign_is_read(cause: str, sign: str, text: str) -> None:
    assert sign in weights(cause, text)


@pytest.mark.parametrize(("cause", "sign", "text"), HAS_NOT)
def test_a_sign_is_not_read(cause: str, sign: str, text: str) -> None:
    assert sign not in weights(cause, text)


# A training whose states may have run out, and what the same training does not say when they are not the matter.
UNSIZED = [
    ("Training YOLO on two GTX 3090 runs out of memory", "Training a 7B on two GTX 3090 runs out of memory"),
    ("训练分割网络爆显存", "训练 13b 模型爆显存"),
]

REFUTES = [
    "The context is 128k tokens.",
    "Training itself works fine, only the inference after it does not.",
    "训练没问题，推理的时候才爆",
    "只有一张卡占满，其他卡占用都很低",
    "It is a small one of 6M parameters.",
]


@pytest.mark.parametrize(("unsized", "sized"), UNSIZED)
def test_states_of_an_unknown_model_count_only_where_it_is_large(unsized: str, sized: str) -> None:
    assert sum(weights("model-states", unsized).values()) < sum(weights("model-states", sized).values())


@pytest.mark.parametrize("more", REFUTES)
def test_what_is_no_matter_of_states(more: str) -> None:
    text = "Full fine-tuning of a 7B with deepspeed, out of memory."
    assert sum(weights("model-states", f"{text} {more}").values()) < sum(weights("model-states", text).values())


def test_one_large_tensor_on_a_small_card_says_less_of_the_card() -> None:
    small = weights("hardware-limit", OOM.format(ask="24.00 MiB", card="3.94 GiB", held="3.10 GiB"))
    large = weights("hardware-limit", OOM.format(ask="1.90 GiB", card="3.94 GiB", held="1.10 GiB"))
    assert large["small-card"] < small["small-card"]
