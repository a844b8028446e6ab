"""What is said of networks that are no language models: no optimizer states, no vocabulary and no tokens fill the card."""

import pytest

from oomdoc.diagnosis.engine import diagnose, view_of
from oomdoc.diagnosis.ranking import weigh
from oomdoc.diagnosis.rules import vision_tokens
from oomdoc.diagnosis.view import STRONG
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


def test_a_small_language_model_holds_no_states_to_speak_of() -> None:
    told = "Fine-tuning of bert-base-uncased with a batch of 96 ends in an out-of-memory error.\n" + FULL
    assert "model-states" not in causes(told)[:2]
    assert causes(told)[0] in ("activations", "logits")


def test_a_decoder_of_latents_is_no_reader_of_pictures() -> None:
    assert (
        causes("SDXL ends in CUDA out of memory at the very end, when the VAE decodes the picture")[0] == "activations"
    )


def test_recordings_differ_in_length() -> None:
    told = "Training of a speech recogniser on our own corpus dies with CUDA out of memory in the third epoch."
    assert causes(told)[0] == "long-sample"
    assert "long-sample" not in causes("Transcribing speech ends in CUDA out of memory with the large network.")[:1]


def test_a_model_that_left_the_card_free_is_not_what_fills_it() -> None:
    told = (
        "LoRA training on an A100 40GB.\nAfter loading the model the memory usage is only 5100 MiB.\n"
        "CUDA out of memory. Tried to allocate 256.00 MiB (GPU 0; 39.42 GiB total capacity; 37.39 GiB already allocated)"
    )
    assert "weights-load" not in causes(told)[:1]
    assert "activations" in causes(told)


def test_a_program_whose_temporaries_exceed_its_parameters() -> None:
    told = (
        "Pre-training with JAX on 8 A800 80GB.\nRESOURCE_EXHAUSTED: Out of memory while trying to allocate 70.10GiB\n"
        "BufferAssignment stats:\n             parameter allocation:    2.10GiB\n"
        "preallocated temp allocation:   70.10GiB"
    )
    assert causes(told)[0] == "activations"


def test_smaller_pictures_that_change_nothing_take_picture_tokens_back() -> None:
    told = "Full fine-tuning of Qwen2-VL-7B on two A100 80GB ends in CUDA out of memory. {}"
    with_large = told.format("The images have a high resolution.")
    in_vain = told.format("I reduced the images to a low resolution and it still fails.")
    assert causes(with_large)[0] == "vision-tokens"
    large, vain = (
        sum(r.log_odds for r in vision_tokens.weigh(view_of(read_text(t))[0])) for t in (with_large, in_vain)
    )
    assert vain < large - STRONG


def test_where_nothing_says_that_a_model_is_trained_its_layers_keep_nothing() -> None:
    told = (
        "Llama-3.1-8B on a 4090 does not work.\n"
        "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 23.64 GiB"
    )
    reasons = weigh(view_of(read_text(told))[0])
    assert not [r for r in reasons["activations"] if r.message.key == "cause.peak-share"]


@pytest.mark.parametrize(
    "text",
    [
        "ResourceExhaustedError: OOM when allocating tensor with shape[24,96,384,384] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [[node conv2d_4/Conv2D]]",
        f"Upscaling one 8K photo with the super-resolution network, no tiling.\n{FULL}",
        f"3D 分割网络训练，patch size 160，显存不够\n{FULL}",
    ],
)
def test_features_over_a_picture_are_activations(text: str) -> None:
    assert causes(text)[0] == "activations"


def test_a_square_of_positions_stays_one() -> None:
    told = (
        "Self-attention over 384 frames ends in: OOM when allocating tensor with shape[24,16,384,384] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
    )
    assert causes(told)[0] == "attention-scores"


def test_after_many_iterations_at_random_it_is_a_batch() -> None:
    told = (
        "Training the detector goes out of memory randomly after several thousand iterations, boxes differ in number."
    )
    assert causes(told)[0] == "long-sample"


def test_a_model_that_reads_pictures_is_known_by_its_name_in_the_text() -> None:
    told = "The demo of CogVLM2 with one picture of 2048x2048 ends in CUDA out of memory on a 4090."
    said = [r.message for r in vision_tokens.weigh(view_of(read_text(told))[0])]
    assert [m.values["model"] for m in said if m.key.endswith(".model")] == ["CogVLM2"]
