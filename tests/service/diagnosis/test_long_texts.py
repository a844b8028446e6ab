"""Texts and recordings so long that their scores fill a card, where no fused kernel computes attention."""

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.rules import attention_scores
from oomdoc.intake import read_text


def signs(text: str) -> set[str]:
    return {r.message.key.rpartition(".")[2] for r in attention_scores.weigh(view_of(read_text(text))[0])}


@pytest.mark.parametrize(
    "text",
    [
        "Inference of a 7B model with transformers on an A100 80GB: prompts of 30000 tokens run out of memory in generate.",
        "单卡 A100 80G 用 transformers 推理 7B 模型，文本长度 28000 就爆显存",
        "用 transformers 推理 6B 模型，输入 3 万字就显存不足，A100 80G",
    ],
)
def test_a_long_text_through_a_plain_model_fills_the_card_with_scores(text: str) -> None:
    assert "long-text" in signs(text)


@pytest.mark.parametrize(
    "text",
    [
        "vLLM serves a 7B model on an A100 80GB, prompts of 30000 tokens, out of memory in generate.",
        "Inference of a 7B model with transformers on an A100 80GB: prompts of 900 tokens run out of memory in generate.",
        "llama-server with a context of 65536 tokens, out of memory",
    ],
)
def test_engines_and_short_texts_keep_no_such_scores(text: str) -> None:
    assert "long-text" not in signs(text)


def test_versions_before_fused_attention_count() -> None:
    told = "Inference with transformers on an A100 80GB, text length 30000, CUDA out of memory.\ntransformers=={}\ntorch=={}"
    assert "before-fused" in signs(told.format("4.27.1", "1.13.1"))
    assert "before-fused" not in signs(told.format("4.45.0", "2.4.0"))


def test_an_hour_of_sound_in_one_piece() -> None:
    assert "recording" in signs("Transcribing a recording of 2 hours in one piece ends in CUDA out of memory")
    assert "recording" not in signs("Fine-tuning on long recordings ends in CUDA out of memory")


def test_a_request_of_all_parameters_is_no_score() -> None:
    told = (
        "Full fine-tuning of meta-llama/Llama-2-7b-hf.\n"
        "CUDA out of memory. Tried to allocate {} GiB (GPU 0; 31.75 GiB total capacity; 1.00 GiB already allocated)"
    )
    assert "huge" in signs(told.format("18.00"))
    assert "huge" not in signs(told.format("25.10")), "6.74e9 parameters of 4 bytes"
