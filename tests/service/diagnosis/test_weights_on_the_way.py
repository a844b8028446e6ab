"""Weights that are still being put in place, told by one matrix and by what is allocated; settings without effect."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.rules import RULES
from oomdoc.diagnosis.rules._placed import still_placed
from oomdoc.intake import read_text
from oomkb.units import GIB

BY_CAUSE = {rule.CAUSE: rule for rule in RULES}


def weights(cause: str, text: str) -> dict[str, float]:
    reasons = BY_CAUSE[cause].weigh(view_of(read_text(text))[0])
    return {reason.message.key.removeprefix(f"cause.{cause}."): reason.log_odds for reason in reasons}


def refused(ask: str, card: str, held: str) -> str:
    return (
        f"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {ask} (GPU 0; {card} total capacity; "
        f"{held} already allocated; 10.00 MiB free; {held} reserved in total by PyTorch)"
    )


def test_all_weights_of_llama_7b_are_6_74e9_times_two_bytes() -> None:
    """One 11008 x 4096 matrix in 16 bit is 86 MiB; 12.55 GiB are all of them."""
    view = view_of(read_text(f"Chat with meta-llama/Llama-2-7b-hf. {refused('86.00 MiB', '9.77 GiB', '9.30 GiB')}"))[0]
    assert still_placed(view) / GIB == pytest.approx(12.55, abs=0.02)
    assert weights("weights-load", view.text).get("still-placed")


@pytest.mark.parametrize(
    "text",
    [
        # All 12.55 GiB are there: it is not loading any more.
        f"Chat with meta-llama/Llama-2-7b-hf. {refused('86.00 MiB', '23.69 GiB', '22.90 GiB')}",
        # Sharded: a part of the weights is all that this card will ever hold.
        "Training meta-llama/Llama-2-70b-hf with ZeRO-3 on 8 GPUs. " + refused("448.00 MiB", "79.15 GiB", "77.50 GiB"),
        # Not the size of any matrix.
        f"Chat with meta-llama/Llama-2-7b-hf. {refused('62.00 MiB', '9.77 GiB', '9.30 GiB')}",
        # The forward pass of a training: no weight is on its way.
        "Fine-tuning meta-llama/Llama-2-7b-hf\n"
        '  File "modeling_llama.py", line 200, in forward\n    return self.down_proj(x)\n'
        + refused("86.00 MiB", "9.77 GiB", "9.30 GiB"),
    ],
)
def test_placed_weights_are_not_on_their_way(text: str) -> None:
    assert not weights("weights-load", text).get("still-placed")


def test_matrix_of_a_language_model_without_its_name() -> None:
    """27392 x 2048 ... 13696 x 4096 x 2 bytes = 107 MiB, for which the allocator asks 108."""
    assert weights("weights-load", f"What can I change? {refused('108.00 MiB', '11.00 GiB', '10.30 GiB')}")["matrix"]


@pytest.mark.parametrize(
    "text",
    [
        refused("104.00 MiB", "11.00 GiB", "10.30 GiB"),  # of no matrix
        refused("108.00 MiB", "11.00 GiB", "4.30 GiB"),  # another process fills the card
        "Training my network. " + refused("108.00 MiB", "11.00 GiB", "10.30 GiB"),
        refused("26.00 MiB", "11.00 GiB", "10.30 GiB"),  # anything is of that size
    ],
)
def test_no_matrix(text: str) -> None:
    assert "matrix" not in weights("weights-load", text)


def test_weights_beyond_the_card_say_little_in_a_forward_pass() -> None:
    model = "LoRA training of meta-llama/Llama-2-13b-hf"
    early = weights("weights-load", f"{model}, out of memory when loading the model, RTX 4090 24GB")
    late = weights("weights-load", f"{model}, CUDA out of memory in the backward pass, RTX 4090 24GB")
    assert early["too-big"] > late.get("too-big", 0.0)


def test_one_flat_copy_beside_two_and_a_half() -> None:
    """One fp32 copy of 6.74e9 parameters is 25.1 GiB; 2.5 of them are weights in 16 bit, a master and a moment."""
    text = "Fine-tuning llama-2 on every card we have. "
    assert "one-copy" in weights("optimizer-init", text + refused("25.10 GiB", "79.15 GiB", "62.79 GiB"))
    assert "one-copy" not in weights("optimizer-init", text + refused("25.10 GiB", "79.15 GiB", "57.00 GiB"))


def test_a_smaller_batch_that_changed_nothing() -> None:
    def says(text: str) -> float:
        return weights("model-states", f"Full fine-tuning of a 7B model with AdamW, OOM. {text}").get("batch-one", 0.0)

    one = says("Batch size is 1.")
    assert says("I reduced the batch size to 1 and it did not help, still out of memory.") > one >= says("Any advice?")
    assert not says("The batch size is 1 and it still fails, these are long audio files.")


def test_a_hint_of_loading_says_less_than_frames_of_it() -> None:
    frames = (
        'Traceback (most recent call last):\n  File "run.py", line 3, in <module>\n    m = A.from_pretrained(p)\n'
        '  File "modeling_utils.py", line 900, in from_pretrained\n    set_module_tensor_to_device(m, n, d)\n'
    )
    shown = weights("weights-load", frames + refused("62.00 MiB", "9.77 GiB", "9.30 GiB"))
    host = weights("weights-load", "While loading the model the process is killed, the machine has 32 GB of RAM")
    assert shown["phase"] > host.get("phase", 0.0)


def test_all_weights_go_to_one_of_several_cards() -> None:
    text = "Chat with meta-llama/Llama-2-7b-hf on 2 GPUs. " + refused("86.00 MiB", "9.77 GiB", "9.30 GiB")
    assert "all-on-one" in weights("inactive-setting", text)
    assert "all-on-one" not in weights("inactive-setting", text.replace(" on 2 GPUs", ""))


HAS = [
    ("inactive-setting", "other-device", "I asked it not to use the GPU but it is still used and runs out of memory"),
    ("inactive-setting", "other-device", "With n_gpu_layers=0 it still loads 9 GB on the GPU and goes OOM"),
    ("inactive-setting", "other-device", "明明指定用 cpu 推理，还是占满显存报 OOM"),
    ("inactive-setting", "even-so", "Out of memory even with quantization turned on"),
    (
        "inactive-setting",
        "one-gpu",
        "All workers are started on cuda:0 and it runs out of memory, three cards are empty",
    ),
    ("inactive-setting", "said", "GPU memory usage remains unchanged after offload, then out of memory"),
    ("weights-load", "loading", "All four ranks: every rank will load the whole model before FSDP wraps it, OOM"),
    ("optimizer-init", "said", "Training a 3B model: it dies during the step function, out of memory"),
    ("optimizer-init", "said", "Training from a checkpoint: with load optim it is OOM, without it runs"),
    (
        "inactive-setting",
        "uneven",
        "Data parallel on four cards: GPU 0 takes far more memory than the others, then OOM",
    ),
    ("inactive-setting", "uneven", "两张卡训练，gpu0 显存比其他卡高很多，爆显存"),
    ("inactive-setting", "option-named", "out of memory, --cpu-offload is no use at all here"),
    ("zero3-gather", "said", "DPO with sync_ref_model=true under ZeRO-3 jumps in memory at every sync and is OOM"),
    ("zero3-gather", "third-stage", "训练时 ZeRO stage 3 比 stage 2 更耗显存，直接 OOM"),
    ("model-states", "replicated", "Full-parameter fine-tuning of an 8B model with DDP on 4 GPUs, CUDA out of memory"),
    ("weights-load", "loading", "With two instances the server loads multiple copies of the same model, out of memory"),
    ("extra-models", "two-copies", "There is not enough memory for both the speech model and the alignment model, OOM"),
    ("weights-load", "loading", "The text encoder does not load on a card of 12 GB, out of memory"),
]
HAS_NOT = [
    ("model-states", "replicated", "DDP on 4 GPUs, 8B model, OOM while the checkpoint is saved"),
    ("weights-load", "loading", "Loading checkpoint shards: 100%|####| 4/4\nthen the chat starts, and it is out of memory"),
    ("inactive-setting", "other-device", "On the CPU it works, on the GPU it runs out of memory"),
    ("inactive-setting", "option-named", "OOM on long audio. Could it mean that gradient checkpointing does not work here?"),
    ("inactive-setting", "said", "[W] max_output_len is not required and will be ignored. Then CUDA out of memory"),
    ("zero3-gather", "trace", 'File "distributed_c10d.py", line 2728, in all_gather_object\nout of memory'),
    ("optimizer-init", "resume", "CUDA out of memory after resuming quantization of an 8B model"),
    ("optimizer-init", "said", "It is recommended to call prepare for the model before creating the optimizer. OOM"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "key", "text"), HAS, ids=lambda x: str(x)[:30])
def test_sign_is_there(cause: str, key: str, text: str) -> None:
    assert weights(cause, text).get(key, 0.0) > 0


@pytest.mark.parametrize(("cause", "key", "text"), HAS_NOT, ids=lambda x: str(x)[:30])
def test_sign_is_not_there(cause: str, key: str, text: str) -> None:
    assert key not in weights(cause, text)
