"""What comments and words in brackets say of a run, and what they must not be taken for."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoc.evidence import Source
from oomdoc.intake import read
from oomdoc.intake.plain_text import plain

CONFIG = "model_name_or_path: Qwen/Qwen3-4B\nfinetuning_type: full\ncutoff_len: 4096\nper_device_train_batch_size: 1\n"


def facts(text: str, name: str = "input") -> dict[str, Any]:
    return {name: fact.value for name, fact in read([Source(name, text)]).facts.items()}


@pytest.mark.parametrize(
    ("head", "cards"),
    [
        ("# FORCE_TORCHRUN=1 NPROC_PER_NODE=8 llamafactory-cli train x.yaml\n", 8),
        ("# torchrun --nproc_per_node 4 train.py\n", 4),
        ("# tune run --nproc_per_node 2 full_finetune_distributed --config x.yaml\n", 2),
    ],
)
def test_the_command_in_the_first_comment_counts_the_cards(head: str, cards: int) -> None:
    assert facts(head + CONFIG, "x.yaml")["gpu_count"] == cards


def test_a_question_in_a_comment_is_the_person_s() -> None:
    found = read(
        [Source("input", f"{CONFIG}deepspeed: ds_z2_config.json\nbf16: true\n# 4x H100 80G, will this run?\n")]
    )
    assert found.prose == "4x H100 80G, will this run?" or "will this run?" in found.prose
    assert found.facts["gpu_count"].value == 4
    assert found.outcome is not None
    assert found.outcome.kind == "question"


def test_a_release_that_is_installed() -> None:
    script = '# pip install "transformers==4.57.1" datasets\nfrom transformers import Trainer\n'
    assert read([Source("train.py", script)]).versions["transformers"] == "4.57.1"


def test_words_in_brackets_behind_a_command() -> None:
    found = facts(
        "torchrun --nproc_per_node=4 sft.py (trl, Qwen2.5-32B, LoRA r=64, seq 8192, batch size 1) 4x A100 80GB\n"
    )
    assert found["model"] == "Qwen2.5-32B"
    assert found["seq_len"] == 8192
    assert found["gpu"] == "A100 80GB"


def test_a_command_that_goes_on_below_is_not_one_that_a_terminal_broke() -> None:
    first = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --seq-length 81"
    line = f"{first:<98} \\"
    assert len(line) == 100
    assert plain(f"{line}\n  --bf16 --use-distributed-optimizer\n").split("\n")[:2] == [
        line,
        "  --bf16 --use-distributed-optimizer",
    ]


@pytest.mark.parametrize("text", ["vllm serve m --max-num-seqs 64", "max num seqs 256 with vllm"])
def test_a_number_of_sequences_is_no_length(text: str) -> None:
    assert "seq_len" not in facts(text)


def test_a_checkpoint_that_is_stored_in_four_bits() -> None:
    found = read([Source("input", "LoRA on unsloth/Meta-Llama-3.1-8B-bnb-4bit with unsloth, T4. Does it fit?")])
    from oomdoc.intake.configs import to_job

    job = to_job(found.facts, found.framework, found.versions)
    assert (job.method, job.quant) == ("qlora", "nf4")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It trains fine, but I see 74GB on each GPU. Why?", 74),
        ("nvidia-smi shows 51 GB after a few steps, why so much?", 51),
        ("训练正常，但显存占了 62G，为什么", 62),
        ("I have an A100 80GB and 64GB of RAM, will 7B LoRA fit?", None),
        ("the file is using 14 GB-of disk, will it fit a 4090?", None),
    ],
)
def test_what_is_seen_in_use(text: str, shown: int | None) -> None:
    found = next(read([Source("input", text)]).find("in-use"), None)
    assert (None if found is None else found.data["shown_bytes"] >> 30) == shown
