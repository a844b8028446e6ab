"""Tables of memory that programs print: read, and no failure."""

from __future__ import annotations

import oomdoc
from oomdoc.intake.read import read_text

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


CARDS = """\
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   38C    P0             67W /  400W |   {first}MiB /  81920MiB |     22%      Default |
|   1  NVIDIA A100-SXM4-80GB          On  |   00000000:0B:00.0 Off |                    0 |
| N/A   39C    P0             71W /  400W |   40960MiB /  81920MiB |     25%      Default |
"""


def test_cards_in_use_are_read_from_nvidia_smi() -> None:
    text = oomdoc.diagnose(f"{CARDS.format(first='51200')}\nanything wrong here?", language_model=False).text()
    assert "GPU 0 50.00 GiB of 80.00 GiB, GPU 1 40.00 GiB of 80.00 GiB" in text
    assert "30.00 GiB of the fullest are free" in " ".join(text.split())


def test_a_card_without_any_memory_is_no_card() -> None:
    text = oomdoc.diagnose("|  41021MiB / 000MiB |\nis this ok?", language_model=False).text()
    assert "GiB of the fullest" not in text


def test_the_command_above_its_output_is_no_question() -> None:
    report = oomdoc.diagnose(f"nvidia-smi\n{CARDS.format(first='80896')}", language_model=False)
    assert not report.document().get("topics")
    assert "Only 1.00 GiB of the fullest are free" in " ".join(report.text().split())


def test_a_run_that_ended_says_its_peak() -> None:
    text = oomdoc.diagnose(
        "{'train_runtime': 812.4, 'train_samples_per_second': 3.1, 'train_loss': 0.73, 'epoch': 3.0}\n"
        "100%|██████████| 325/325 [13:32<00:00,  2.50s/it]\nPeak reserved memory = 9.857 GB.\n",
        language_model=False,
    ).text()
    assert "step 325 of 325" in text
    assert "9.86 GiB" in text


def test_mlx_prints_its_peak_in_decimal_units_and_is_answered_in_its_own_flags() -> None:
    evidence = read_text(
        "python -m mlx_lm lora --model mlx-community/Mistral-7B-Instruct-v0.3-4bit --train --data d --batch-size 8\n"
        "Iter 20: Train loss 1.204, Learning Rate 1.000e-05, It/sec 0.310, Tokens/sec 201.7, Trained Tokens 13011, "
        "Peak mem 12.500 GB\n"
        "RuntimeError: [METAL] Command buffer execution failed: Insufficient Memory "
        "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\nMacBook Air M3 24GB\n"
    )
    assert evidence.framework == "mlx-lm"
    (printed,) = evidence.find("memory-printed")
    assert dict(printed.data) == {"allocated_bytes": 12_500_000_000, "peak": True}
