"""A log reads the same whatever carried it."""

from __future__ import annotations

import html
import json
from collections.abc import Callable

import pytest

from oomdoc.evidence import Evidence
from oomdoc.intake import read_text
from oomdoc.intake.plain_text import plain

LOG = """\
Traceback (most recent call last):
  File "/opt/train/run.py", line 31, in <module>
    trainer.train()
  File "/opt/venv/lib/python3.11/site-packages/transformers/trainer.py", line 2548, in training_step
    self.accelerator.backward(loss, **kwargs)
  File "/opt/venv/lib/python3.11/site-packages/torch/autograd/__init__.py", line 353, in backward
    _engine_run_backward(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 39.39 GiB of \
which 812.00 MiB is free. Of the allocated memory 36.90 GiB is allocated by PyTorch, and 1.02 GiB is reserved by \
PyTorch but unallocated."""
HEAD = "LoRA of Qwen2.5-7B on one A100 40GB dies, per_device_train_batch_size is 4.\n\n"
_NAMES = (
    "tried_gib",
    "capacity_gib",
    "free_gib",
    "allocated_gib",
    "reserved_unallocated_gib",
    "phase",
    "method",
    "gpu",
)


def on_lines(put: Callable[[str], str]) -> str:
    return "\n".join(put(line) for line in LOG.split("\n"))


def at_column(width: int) -> str:
    return "\n".join(line[at : at + width] for line in LOG.split("\n") for at in range(0, len(line), width))


CARRIED = {
    "quoted": on_lines(lambda line: f"> {line}"),
    "quoted-twice": on_lines(lambda line: f"> > {line}"),
    "entities": html.escape(LOG),
    "colours": on_lines(lambda line: f"\x1b[31m{line}\x1b[0m"),
    "colours-without-escape": on_lines(lambda line: f"[31m{line}[0m"),
    "curly": LOG.replace('"', "”"),
    "hard-blanks": LOG.replace("  ", "\u00a0 "),
    "docker": on_lines(
        lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-01-02T03:04:05Z"})
    ),
    "zap": on_lines(lambda line: json.dumps({"level": "error", "ts": 1767323045.1, "msg": line})),
    "one-record": json.dumps({"@timestamp": "2026-01-02T03:04:05Z", "message": LOG}),
    "srun": on_lines(lambda line: f"0: {line}"),
    "compose": on_lines(lambda line: f"trainer-1  | {line}"),
    "pod": on_lines(lambda line: f"[pod/trainer-0/pytorch] {line}"),
    "journal": on_lines(lambda line: f"Jan 02 03:04:05 node-7 train[4123]: {line}"),
    "stamps": on_lines(lambda line: f"2026-01-02 03:04:05,678 {line}"),
    "indented": on_lines(lambda line: f"    {line}"),
    "terminal": at_column(80),
    "narrow-terminal": at_column(97),
}


def told(evidence: Evidence) -> dict[str, object]:
    return {name: evidence.value(name) for name in _NAMES}


@pytest.mark.parametrize("carrier", CARRIED)
def test_what_carries_a_log_changes_nothing(carrier: str) -> None:
    expected, found = read_text(HEAD + LOG), read_text(HEAD + CARRIED[carrier])
    assert expected.root is not None
    assert found.root is not None
    assert found.outcome is not None
    assert found.outcome.name == "torch-cuda-oom"
    assert told(found) == told(expected)
    assert [frame.function for frame in found.root.frames] == [frame.function for frame in expected.root.frames]


@pytest.mark.parametrize(
    "text",
    [
        LOG,
        "1: load the model\n2: start training\n3: it fails",
        ">>> import torch\n>>> torch.ones(1)\n>>> exit()",
        '{"text": "a sample of a data set", "label": 3}\n' * 4,
        "| GPU  Name                 | Memory-Usage |\n|   0  NVIDIA A100-SXM4-40GB | 3MiB / 40960 |\n" * 3,
        "step 100 loss 1.2345 grad_norm 0.1234 lr 1e-5 tokens/s 12345 mem 31.25 GiB\n"
        "step 200 loss 1.2345 grad_norm 0.1234 lr 1e-5 tokens/s 12345 mem 31.25 GiB\n",
        "model_name_or_path: /data/models/Qwen2.5-7B-Instruct-with-a-long-name-of-its-own-x\n"
        "per_device_train_batch_size: 4\ngradient_accumulation_steps: 8\n",
    ],
)
def test_what_nothing_carries_stays(text: str) -> None:
    assert plain(text) == text


def test_lines_keep_their_numbers() -> None:
    for text in CARRIED.values():
        assert plain(text).count("\n") == text.count("\n")


def test_turns_of_a_rendered_conversation_are_data() -> None:
    text = "inputs:\n<|im_start|>user\nCUDA out of memory<|im_end|>\nstep 1"
    assert plain(text) == "inputs:\n\n\nstep 1"
    kept = 'tokenizer.eos_token = "<|im_end|>"'
    assert plain(kept) == kept
