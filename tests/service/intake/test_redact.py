"""Masking: what is hidden, what must stay, and that it can be undone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoc.intake import read_text
from oomdoc.intake.redact import mask

SECRETS = [
    ("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345", "hf_abcdefghijklmnopqrstuvwxyz012345"),
    ("export OPENAI_API_KEY=sk-proj-abcdefghijklmnop1234567890", "sk-proj-abcdefghijklmnop1234567890"),
    ("key AKIAIOSFODNN7EXAMPLE used", "AKIAIOSFODNN7EXAMPLE"),
    ("Authorization: Bearer abc.def-ghi_jkl123", "abc.def-ghi_jkl123"),
    ("wandb_key: 0123456789abcdef0123456789abcdef01234567", "0123456789abcdef0123456789abcdef01234567"),
    ("password=hunter2secret", "hunter2secret"),
    ("https://hooks.slack.com/services/T000/B000/XXXXXXXX", "T000/B000"),
    ("https://oapi.dingtalk.com/robot/send?access_token=abcdef123456", "abcdef123456"),
    ("https://open.feishu.cn/open-apis/bot/v2/hook/1234-5678-90ab", "1234-5678-90ab"),
    ("mail me at jane.doe@example.com please", "jane.doe@example.com"),
    ('File "/home/jdoe/train.py", line 3', "jdoe"),
    (r"C:\Users\Jane\run.py failed", "Jane"),
    ("ssh root@gpu-node-17:~# python", "gpu-node-17"),
    ("MASTER_ADDR=node1.cluster.local", "node1.cluster.local"),
    ("Memory on the node (IP: 10.20.49.141, ID: 4)", "10.20.49.141"),
    ("connect to 192.168.10.60 failed", "192.168.10.60"),
    ("git clone https://bob:s3cr3tpw@github.com/x/y", "s3cr3tpw"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_hidden_and_restored(text, secret):
    masked = mask(text)
    assert secret not in masked.text
    assert masked.restore() == text


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. GPU 3 has a total capacity of 31.74 GiB of which 1.41 GiB is free.",
        "NCCL version 2.21.5.1 cuda 12.4.1.0 driver 535.54.03",
        "nvidia-cublas-cu12==12.4.5.8",
        "tokenizer: qwen, max_tokens: 4096, eos_token: </s>, pad_token=<pad>",
        "--max-batch-prefill-tokens 10000 --max-total-tokens 11000",
        "server on 127.0.0.1:8000 and 0.0.0.0",
        "2025-01-01 12:00:00 loss=1.0 tokens/s=123",
        "gradient_checkpointing: true  key: value",
    ],
)
def test_numbers_and_settings_stay(text):
    assert mask(text).text == text


def test_equal_things_get_equal_placeholders_and_masking_twice_changes_nothing():
    once = mask("/home/jdoe/a and /home/jdoe/b and /home/other/c")
    assert once.text.count("<path-user-1>") == 2
    assert mask(once.text).text == once.text


def test_one_table_over_several_files():
    first = mask("/home/jdoe/a")
    second = mask("/home/anna/a /home/jdoe/b", first.table)
    assert "<path-user-1>/b" in second.text
    assert "<path-user-2>/a" in second.text


def test_evidence_holds_no_secret():
    evidence = read_text(
        'HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345\nI am jane.doe@example.com\n  File "/home/jdoe/train.py", line 3, in main\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.'
    )
    held = repr(evidence)
    assert not any(word in held for word in ("jdoe", "jane.doe", "hf_abc"))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from([text for text, _ in SECRETS] + ["plain words", "a=1", "<ip-1>", "", "/home/x/y"]), max_size=8
    ),
    st.text(max_size=40),
)
def test_always_reversible(parts, noise):
    text = "\n".join([*parts, noise])
    masked = mask(text)
    assert masked.restore() == text
    assert masked.text.count("\n") == text.count("\n")
