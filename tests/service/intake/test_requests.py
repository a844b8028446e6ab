"""The length of a request, of what goes in and what comes out."""

from __future__ import annotations

import pytest

from oomdoc.intake import read_text
from oomdoc.intake.asked import asked_in


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("how many requests at 6k in + 2k out?", 8192),
        ("2000 in / 400 out, 32 users", 2400),
        ("平均 4k 进 1k 出，能同时跑多少个请求？", 5120),
    ],
)
def test_what_goes_in_and_what_comes_out_are_one_request(text, tokens):
    assert asked_in(text).request_length == tokens


def test_slots_of_llama_cpp_share_the_written_context():
    from oomdoc.diagnosis.engine import diagnose

    text = "llama-server -m Qwen3-32B-Q4_K_M.gguf -ngl 99 -c 32768 -np 4 on a 4090, does it fit?"
    estimate = diagnose(read_text(text)).estimate
    assert estimate is not None
    assert estimate.served is not None
    assert estimate.served.needed_bytes == 32768 * 256 * 1024  # 64 layers x 2 x 8 heads x 128 x 2 bytes a token
