"""Signs that are sums: sizes, defaults of scripts, and the age of a library that a message's format tells."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.ranking import weigh
from oomdoc.intake import read_text

OLD = "(GPU 0; 15.90 GiB total capacity; {held} GiB already allocated; 0.31 GiB free; 14.90 GiB reserved in total by PyTorch)"
NEW = (
    "GPU 0 has a total capacity of 15.90 GiB of which 0.31 GiB is free. Of the allocated memory {held} GiB is allocated"
)

SIGNS = [
    (
        "cause.attention-scores.round",
        "my fine-tuning run of the chat model stops. RuntimeError: CUDA out of memory. Tried to allocate 4.00 GiB "
        + OLD.format(held="11.20"),
        "my fine-tuning run of the chat model stops. RuntimeError: CUDA out of memory. Tried to allocate 4.00 GiB. "
        + NEW.format(held="11.20"),
    ),
    (
        "cause.attention-scores.round",
        "my fine-tuning run of the chat model stops. RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB "
        + OLD.format(held="11.20"),
        "my fine-tuning run of the chat model stops. RuntimeError: CUDA out of memory. Tried to allocate 1.46 GiB "
        + OLD.format(held="11.20"),
    ),
    (
        "cause.attention-scores.requested",
        "python run_clm.py --model_name_or_path gpt2 --do_train --per_device_train_batch_size 4\n"
        "RuntimeError: CUDA out of memory. Tried to allocate 192.00 MiB " + OLD.format(held="14.70"),
        "python run_clm.py --model_name_or_path gpt2 --do_train --per_device_train_batch_size 4\n"
        "RuntimeError: CUDA out of memory. Tried to allocate 226.00 MiB " + OLD.format(held="14.70"),
    ),
    (
        "cause.attention-scores.before-fused-training",
        "fairseq-train of a summarizer: out of memory on my 24GB 3090 with --max-source-positions 9000 --max-tokens 9000",
        "fairseq-train of a summarizer: out of memory on my 24GB 3090 with --max-source-positions 512 --max-tokens 9",
    ),
]


def keys(text: str) -> set[str]:
    reasons = weigh(view_of(read_text(text))[0])
    return {r.message.key for found in reasons.values() for r in found if r.log_odds > 0}


@pytest.mark.parametrize(("key", "text", "other"), SIGNS)
def test_sign(key: str, text: str, other: str) -> None:
    assert key in keys(text)
    assert key not in keys(other)
