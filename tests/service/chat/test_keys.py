"""A turn that asks for the name of a setting gets the key of the framework, and changes nothing."""

from __future__ import annotations

import pytest

from oomdoc.chat.conversation import respond
from oomdoc.chat.session import Session


@pytest.mark.parametrize(
    ("first", "question", "key"),
    [
        (
            "LoRA of Qwen3-32B on 2x A100 80G, 8k",
            "how do I turn on the 8-bit optimizer in axolotl?",
            "optim: adamw_8bit",
        ),
        ("vLLM 部署 Qwen3-8B，一张 4090", "上下文长度是哪个参数？", "--max-model-len"),
    ],
)
def test_the_key_is_named_and_nothing_changes(first: str, question: str, key: str) -> None:
    session, before = respond(Session(), first)
    _, reply = respond(session, question)
    assert key in reply.answer
    assert not reply.changed
    assert reply.job == before.job


def test_without_any_framework_no_key_is_invented() -> None:
    session, _ = respond(Session(), "LoRA of Qwen3-8B on one A100 80G, 4k")
    _, reply = respond(session, "which flag turns on gradient checkpointing?")
    assert "gradient_checkpointing: true" not in reply.answer.split("\n")[0]
