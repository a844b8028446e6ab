"""What pasting does to a report: broken lines, lost and kept backslashes."""

from __future__ import annotations

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.ranking import weigh
from oomdoc.intake import read_text

KEPT = r"""full training of a 7B runs out of memory
torchrun --nproc_per_node 8 train.py \
    --model_name_or_path Qwen/Qwen2.5-7B \
    --per_device_train_batch_size 1 \
    --learning_rate 1e-5 \
    --bf16
    --deepspeed ds_z3.json
torch.OutOfMemoryError: CUDA out of memory.
"""
LOST = KEPT.replace(" \\\n", "\n")


def _found(text: str) -> list[str]:
    reasons = weigh(view_of(read_text(text))[0])["inactive-setting"]
    return [r.message.key for r in reasons if r.log_odds > 0]


def test_the_one_line_without_a_backslash_ends_the_command():
    assert "cause.inactive-setting.found" in _found(KEPT)


def test_where_all_backslashes_are_lost_it_was_the_pasting():
    assert "cause.inactive-setting.found" not in _found(LOST)


def test_the_allocators_advice_is_no_sign_where_its_line_is_broken():
    text = (
        "the demo stops\nRuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.92 GiB total capacity; 7.10 "
        "GiB already allocated; 7.30 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting\n"
        "max_split_size_mb to avoid fragmentation."
    )
    assert "fragmentation" not in view_of(read_text(text))[0].text


def test_states_are_not_there_while_weights_are_loaded():
    loading = "fine-tuning a 70B dies at 'Loading checkpoint shards: 40%' with CUDA out of memory"
    reasons = weigh(view_of(read_text(loading))[0])["model-states"]
    assert any(r.message.key == "cause.out-of-place" and r.log_odds < 0 for r in reasons)
