"""Tables of memory that programs print: read, and no failure."""

from __future__ import annotations

import oomdoc

ALLOCATOR = """|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |
| Allocated memory      |  10240 MiB |  20480 MiB |    900 GiB |    890 GiB |
| GPU reserved memory   |  22528 MiB |  22528 MiB |  22528 MiB |      0 B   |
"""
ESTIMATE = """Estimated memory needed for params, optim states and gradients for a:
SW: Model with 1737M total params.
  per CPU  |  per GPU |   Options
   38.83GB |   3.24GB | offload_optimizer=cpu
   19.42GB |  28.85GB | offload_optimizer=none
"""
PLACEMENT = """NAME          ID              SIZE     PROCESSOR          CONTEXT    UNTIL
llama3:70b    786f3184aec0    40 GB    50%/50% CPU/GPU    4096       4 minutes from now
"""


def said(text: str) -> str:
    answer = oomdoc.diagnose(text).document()
    assert answer["verdict"] == "no-failure"
    return " ".join(answer["sentences"])


def test_the_allocators_own_table_tells_what_is_held_and_what_is_cache() -> None:
    assert all(figure in said(ALLOCATOR) for figure in ("10.00 GiB", "20.00 GiB", "22.00 GiB", "12.00 GiB"))


def test_deepspeeds_estimate_is_read_and_said_to_leave_out_activations() -> None:
    text = said(ESTIMATE)
    assert all(part in text for part in ("28.85 GiB and 19.42 GiB", "3.24 GiB and 38.83 GiB", "activations"))


def test_ollamas_split_says_what_did_not_fit() -> None:
    text = said(PLACEMENT)
    assert all(part in text for part in ("50 %", "20.00 GiB", "num_ctx"))
