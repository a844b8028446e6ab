"""Signs of what is not the job's own GPU memory: each with a text that has it, and one much like it that has not."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.ranking import weigh
from oomdoc.intake import read_text

SIGNS = [
    ("host-ram.ram", "Preparing the index eats all my RAM", "Training runs out of RAM on the GPU: CUDA out of memory"),
    ("host-ram.ram", "the merge needs more RAM", "my card is a GPU with 24 GB of RAM and it needs more RAM"),
    ("host-ram.swapped", "I enlarged the swap file, no change", "vllm serve m --swap-space 4"),
    ("host-ram.converted", "the conversion to gguf takes too much memory", "converting to bf16 fills the GPU memory"),
    ("host-ram.large", "a node with 768GB of memory is not enough", "80GB of memory is not enough"),
    ("host-ram.amount", "The box has 64 GB RAM", "The box has 24 GB VRAM and 64 GB RAM"),
    (
        "host-ram.pinned",
        "RuntimeError: CUDA error: out of memory\nhappens with cpu offload in WSL2",
        "RuntimeError: CUDA error: out of memory\nhappens in the second epoch",
    ),
    ("host-ram.ended", "One of the background workers is no longer alive", "the zombies cannot be killed"),
    ("host-ram.mentioned", "it is the host memory", "- System RAM: 503.51 GB"),
]  # fmt: skip


def keys(text: str) -> set[str]:
    reasons = weigh(view_of(read_text(text))[0])
    return {r.message.key.removeprefix("cause.") for mine in reasons.values() for r in mine if r.log_odds > 0}


@pytest.mark.parametrize(("key", "text", "other"), SIGNS)
def test_sign(key: str, text: str, other: str) -> None:
    assert key in keys(text)
    assert key not in keys(other)
