"""No input crashes it, and no input takes more than linear work."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoc.evidence import Source
from oomdoc.intake import read, read_text
from oomkb.errors import InputError

PIECES = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of",
    "(GPU 0; 10.00 GiB total capacity;",
    "Traceback (most recent call last):",
    '  File "/home/x/a.py", line 3, in forward',
    "    loss.backward()",
    "[rank0]: ",
    "8×A100 80G",
    "4 张 V100",
    "--per_device_train_batch_size 4 \\",
    "deepspeed: ds_z3.json",
    '{"zero_optimization": {"stage": 3}}',
    "exits with return code = -9",
    "transformers==4.57.1",
    "爆显存",
    "max seq len (29000) is larger than",
    "hf_abcdefghijklmnopqrstuvwxyz012345",
    "\x1b[31m",
    "\r",
    "：，。",
    "```yaml",
]


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=30)), max_size=25), st.sampled_from(["\n", " ", ""])
)
def test_any_mixture_is_read(parts, glue):
    text = glue.join(parts)
    try:
        evidence = read_text(text)
    except InputError:
        return
    assert len(evidence.digest.encode()) <= 4096
    for fact in evidence.facts.values():
        assert 0 <= fact.confidence <= 1
        assert fact.span.line >= 1
        assert len(fact.span.text) <= 300


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    try:
        read([Source("x", data.decode("latin-1"))])
    except InputError as refused:
        error = refused
    else:
        return
    assert error.where == "x"


HOSTILE = [
    "a" * 1000,
    "(" * 1000,
    "8 x " * 250,
    "A100 " * 200,
    "1" * 1000,
    "1." * 500,
    "-" * 1000,
    "--a " * 250,
    " " * 1000,
    "/" * 1000,
    "a/" * 500,
    "a.b-c_d" * 140,
    "qwen-" * 200,
    "7b " * 330,
    "Tried to allocate 1 " * 50,
    "GiB " * 250,
    "CUDA out of memory " * 52,
    '"' * 1000,
    "{" * 1000,
    "key=" * 250,
    "a: " * 330,
    "@" * 1000,
    "a@" * 500,
    "a@b." * 250,
    "1.2.3." * 160,
    "a:" * 500,
    "https://" * 125,
    "token " * 160,
    "\\" * 1000,
    "爆" * 1000,
    "显存" * 500,
    "，" * 1000,
    "when save " * 100,
    'File "' * 160,
    "→ a" * 330,
    "batch size is " * 70,
    "zero stage " * 90,
    "[rank0]: " * 110,
    "(a pid=1) " * 100,
    "max seq len (" * 75,
    "Process 1 has " * 70,
    "2025-01-01 12:00:00 " * 50,
]


@pytest.mark.parametrize("unit", HOSTILE, ids=lambda unit: repr(unit[:12]))
@pytest.mark.parametrize("newline", ["", "\n"])
def test_work_grows_no_faster_than_the_input(unit, newline):
    """Eight times the input may take some sixteen times as long, not sixty-four; and little is little."""

    def seconds(times: int) -> float:
        text = (unit + newline) * times
        start = time.process_time()
        read_text(text)
        return time.process_time() - start

    # CPU time, and the best of three: other processes on the machine decide nothing.
    assert any(seconds(64) < max(20 * seconds(8), 1.0) for _ in range(3))
