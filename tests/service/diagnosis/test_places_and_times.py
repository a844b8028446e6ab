"""Signs of causes that are bound to a place or a time: loading, a save, an evaluation, a conversation."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.ranking import weigh
from oomdoc.intake import read_text

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 320.00 MiB."


def signs(cause: str, text: str) -> set[str]:
    reasons = weigh(view_of(read_text(text))[0])[cause]
    return {r.message.key.removeprefix(f"cause.{cause}.") for r in reasons if r.log_odds > 0}


@pytest.mark.parametrize(
    ("cause", "sign", "text"),
    [
        ("checkpoint-save", "interval", f"python train.py --stage sft --model_name_or_path Qwen/Qwen2-7B --save_steps 200 --learning_rate 1e-4\n 10%|█ | 399/4000 [1:00:00<9:00:00, 9.0s/it]\n{OOM}"),
        ("checkpoint-save", "interval", f"Training with transformers dies here:\n 25%|█ | 500/2000 [10:00<30:00, 1.2s/it]\n{OOM}"),
        ("eval", "interval", f"Fine-tuning, always OOM at step 100.\npython train.py --model_name_or_path Qwen/Qwen2-7B --eval_steps 100\n{OOM}"),
        ("eval", "epoch-end", "Training runs, but it is out of memory after the first epoch"),
        ("eval", "test-phase", "In the testing phase CUDA is out of memory, training was fine"),
        ("eval", "collected", "It seems to accumulate all the logits over the entire dataset before the metric"),
        ("checkpoint-save", "said", "With ModelCheckpoint callback it is OOM, with model checkpointing off it is not"),
        ("kv-cache", "turns", "推理时，几轮对话之后显存就溢出"),
        ("kv-cache", "turns", "The chatbot answers, but after five questions CUDA is out of memory"),
        ("kv-cache", "turns", "VRAM rises as the conversation gets longer until inference is out of memory"),
        ("kv-cache", "named", "With use_cache=False the OOM of generate goes away"),
        ("cuda-graph", "compiler", "compile mode reduce-overhead is OOM after some shapes"),
        ("kv-cache", "shape", "ResourceExhausted: OOM when allocating tensor with shape[8,36,2,20,512,64] and type float"),
        ("weights-load", "resumed", "When resuming I must use a smaller batch size, or CUDA is out of memory"),
    ],
)  # fmt: skip
def test_fires(cause, sign, text):
    assert sign in signs(cause, text)


@pytest.mark.parametrize(
    ("cause", "sign", "text"),
    [
        ("checkpoint-save", "interval", f"python train.py --stage sft --model_name_or_path Qwen/Qwen2-7B --save_steps 200 --learning_rate 1e-4\n 10%|█ | 343/4000 [1:00:00<9:00:00, 9.0s/it]\n{OOM}"),
        ("eval", "interval", f"Fine-tuning, always OOM after 600-700 steps.\n\neval_steps: 100\n\n{OOM}"),
        ("eval", "epoch-end", "Memory grows a little after every epoch of the training"),
        ("checkpoint-save", "said", "Loading a full state dict into FSDP is out of memory on rank 0"),
        ("kv-cache", "turns", "训练对话模型，几轮对话的数据，显存溢出"),
        ("kv-cache", "shape", "OOM when allocating tensor with shape[2,3,512,512] and type float"),
        ("weights-load", "trace", "I call model.to('cpu') after each step and CUDA is still out of memory"),
    ],
)  # fmt: skip
def test_is_silent(cause, sign, text):
    assert sign not in signs(cause, text)


def test_weights_that_are_in_are_not_what_ran_out():
    asked = "After `model = AutoModel.from_pretrained(...)` nvidia-smi shows only 4700 MiB; then CUDA is out of memory"
    reasons = weigh(view_of(read_text(asked))[0])["weights-load"]
    assert any(r.log_odds < 0 and r.message.key == "cause.ran-first" for r in reasons)


def test_weights_that_leave_little_of_an_engines_card_leave_it_to_the_cache():
    """Llama-2-13B in 16 bit: 13,015,864,320 parameters (its weights' index), 24.2 GiB of a card of 32."""
    asked = "vllm: serving meta-llama/Llama-2-13b-hf in float16 on one V100 32GB is out of memory at start-up"
    assert "little-left" in signs("kv-cache", asked)
    assert "too-big" not in signs("weights-load", asked)
    small = asked.replace("13b", "7b")
    assert "little-left" not in signs("kv-cache", small)
