"""Models that are described by their sizes alone."""

import pytest

import oomdoc
from oomdoc.intake import read_text


@pytest.mark.parametrize(
    ("text", "config"),
    [
        (
            "Pretraining a GPT with 24 layers, d_model 2048 and a vocab of 50304, does it fit 40 GB?",
            {"model_type": "gpt2", "n_layer": 24, "n_embd": 2048, "n_head": 16, "vocab_size": 50304},
        ),
        (
            "48 layers, hidden size 6144, 48 heads, 8 kv heads, ffn 16384, vocab 128k: how much for the weights?",
            {
                "model_type": "llama",
                "num_hidden_layers": 48,
                "hidden_size": 6144,
                "num_attention_heads": 48,
                "num_key_value_heads": 8,
                "intermediate_size": 16384,
                "vocab_size": 131072,
            },
        ),
        (
            "从头训练一个 32 层、hidden 4096、32 个头、词表 32000 的模型，放得下吗",
            {
                "model_type": "llama",
                "num_hidden_layers": 32,
                "hidden_size": 4096,
                "num_attention_heads": 32,
                "num_key_value_heads": 32,
                "intermediate_size": 11008,
                "vocab_size": 32000,
            },
        ),
    ],
)
def test_sizes_in_words_are_a_configuration(text: str, config: dict[str, object]) -> None:
    assert read_text(text).value("model_config") == config


@pytest.mark.parametrize(
    "text",
    [
        "Llama-3.1-8B has 32 layers and hidden size 4096, does LoRA fit a 4090?",  # its name says more
        "I offload 24 layers of a 13B to the CPU, is that enough for 16 GB?",
        "32 layers, which width is unknown",
    ],
)
def test_no_configuration_without_layers_and_width_of_an_unnamed_model(text: str) -> None:
    assert read_text(text).value("model_config") is None


def test_it_is_priced_by_its_sizes() -> None:
    """12 x 24 x 2048² + 50,304 x 2,048 are 1.31e9 parameters of 16 bytes: 19.5 GiB of states."""
    text = "Pretrain a GPT-style model (24 layers, d_model 2048, vocab 50304) on one A100 40GB, seq 2048. What micro-batch fits?"
    estimate = oomdoc.diagnose(text).diagnosis.estimate
    assert estimate is not None
    assert estimate.params == pytest.approx(1.31e9, rel=0.01)
