"""What is said of networks that are no language models: no optimizer states, no vocabulary and no tokens fill the card."""

import pytest

from oomdoc.diagnosis.engine import diagnose
from oomdoc.intake import read_text

FULL = (
    "RuntimeError: CUDA out of memory. Tried to allocate 1.20 GiB (GPU 0; 10.92 GiB total capacity; 9.10 GiB already)"
)


def causes(text: str) -> list[str]:
    return [cause.cause for cause in diagnose(read_text(text)).causes][:3]


@pytest.mark.parametrize(
    "text",
    [
        f"My segmentation network does not start to train on one 1080 Ti.\n{FULL}",
        f"Training the deblurring GAN on crops of photographs ends at once.\n{FULL}",
        f"训练一个图像超分网络时报错，该怎么办？\n{FULL}",
    ],
)
def test_a_network_of_pictures_is_filled_by_its_layers(text: str) -> None:
    assert causes(text)[0] == "activations"
    assert "model-states" not in causes(text)
    assert "vision-tokens" not in causes(text)


def test_a_language_model_in_full_is_filled_by_its_states() -> None:
    assert "model-states" in causes(f"Full fine-tuning of a 7B model with AdamW on one card does not start.\n{FULL}")


def test_pictures_of_a_language_model_are_tokens() -> None:
    told = (
        f"LoRA of Qwen2-VL-7B fails as soon as a batch holds images of high resolution, max_pixels is not set.\n{FULL}"
    )
    assert causes(told)[0] == "vision-tokens"
