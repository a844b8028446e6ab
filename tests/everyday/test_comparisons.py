"""Questions that compare two or more ways, ask for one part, or describe no run at all."""

from __future__ import annotations

import pytest

import oomdoc
from oomdoc.intake.asked import asked_in


@pytest.mark.parametrize(
    ("question", "fields"),
    [
        ("ZeRO-1 or 3 for a full fine-tune of a 7B on 4 A100?", [{"sharding": "zero1"}, {"sharding": "zero3"}]),
        ("full, LoRA or QLoRA for a 7B on 48 GB?", [{"method": "full"}, {"method": "lora"}, {"method": "qlora"}]),
        ("Is SFT cheaper than DPO for Qwen3-8B?", [{"objective": "sft"}, {"objective": "dpo"}]),
        ("q4_k_m还是q8_0，24G显卡跑Qwen3-32B？", [{"quant": "q4_k_m"}, {"quant": "q8_0"}]),
        ("LoRA with bf16 on one A100, does it fit? It works on an H100.", []),
        ("Does Qwen3-8B with LoRA fit on a 4090 or do I need a larger card?", []),
    ],
)
def test_what_is_compared(question: str, fields: list[dict[str, str]]) -> None:
    assert [dict(side.fields) for side in asked_in(question).alternatives] == fields


def test_a_bare_size_names_the_other_model() -> None:
    sides = asked_in("Qwen3-8B vs 14B with QLoRA on an RTX 3090").alternatives
    assert [side.fields["model"] for side in sides] == ["Qwen/Qwen3-8B", "Qwen/Qwen3-14B"]


def test_both_sides_are_answered_and_the_job_is_the_one_that_fits() -> None:
    answer = oomdoc.diagnose("LoRA or QLoRA for Qwen3-14B, bs 1 len 4096, one RTX 4090?").document()
    first = answer["sentences"][0]
    assert "LoRA about" in first
    assert "does not fit" in first
    assert "(fits)" in first
    assert answer["job"]["method"] == "qlora"
    assert answer["job"]["seq_len"] == 4096
    assert answer["grid"]["rows"] == ["LoRA", "QLoRA"]


def test_the_cache_alone() -> None:
    """Llama-3.1-8B: 32 layers, 8 heads of 128, keys and values in 16 bits: 128 KiB a token, 4 GiB at 32,768."""
    answer = oomdoc.diagnose("How big is the KV cache of Llama-3.1-8B at 32k context?").document()
    assert "4.00 GiB for one sequence of 32,768" in answer["sentences"][0]


@pytest.mark.parametrize("text", ["All good now, thank you!", "What does expandable_segments change?"])
def test_where_no_run_is_described_none_is_asked_for(text: str) -> None:
    answer = oomdoc.diagnose(text).document()
    assert answer["outlook"] is None
    assert answer["questions"] == []


@pytest.mark.parametrize(
    ("text", "cards"),
    [("2 nodes (16×H100 in total)", 16), ("3 nodes, 24x A100", 24), ("2 nodes with 8x H100 each", 16)],
)
def test_cards_of_all_machines(text: str, cards: int) -> None:
    job = oomdoc.diagnose(f"Does full SFT of Qwen2.5-32B with ZeRO-3 fit on {text}?").document()["job"]
    assert job.get("gpus", 1) * job.get("nodes", 1) == cards or job.get("world") == cards
