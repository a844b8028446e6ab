"""What follows from what is told, and words that are mistaken for facts."""

from __future__ import annotations

import pytest

from oomdoc.intake import read_text

COMMAND = "torchrun --nproc_per_node 4 finetune.py --model_name_or_path a/llama-7b --per_device_train_batch_size 2 --bf16 True {0}\nOOM"

FACTS = [
    # The method that a trainer's options imply.
    (COMMAND.format(""), {"method": "full"}),
    (COMMAND.format("--use_lora True"), {"method": "lora"}),
    (COMMAND.format("--freeze_backbone True"), {"method": None}),
    (COMMAND.format("--fix_encoder True"), {"method": None}),
    ("We fine-tune with BitsAndBytesConfig(load_in_4bit=True) and SFTTrainer, CUDA OOM", {"method": "qlora"}),
    ("vllm serve a/llama-7b, CUDA OOM", {"method": None}),
    ("step 3: lora_dim 4, actor_zero_stage 3, OOM", {"method": "lora", "objective": "ppo"}),
    # What a run is for.
    (
        "make sure the associated word embeddings are fine-tuned or trained.\nllama-server OOM",
        {"objective": "inference"},
    ),
    ("A fine-tuned model, OOM when it is served: vllm serve a/b-7b", {"objective": "inference"}),
    ("The fine-tuning goes out of memory", {"objective": "sft"}),
    ("Fine-tuning of my own model is OOM", {"objective": "sft"}),
    ("OOM: lm_eval --model hf --model_args pretrained=a/b --tasks x", {"objective": "inference"}),
    ("第三步（RLHF）显存不足", {"objective": "ppo"}),
    ("data set hh-rlhf for tuning, OOM in the SFT of a 7B", {"objective": "sft"}),
    # Models.
    ("Loading a 70b model: even two cards are not enough, OOM", {"model": None, "params_b": 70.0}),
    ("OOM with train_ppo_llama.sh:", {"model": None}),
    ("run examples/llama and it is OOM", {"model": None}),
    ("OOM in preallocated temp fragmentation:       124B (0.00%)", {"params_b": None}),
    # Cards and batches.
    ("2 nodes, 8x H20 per node, OOM", {"gpu_count": 16}),
    ("OOM on this one:\n|   3  Tesla V100S-PCI...  Off  | 00000000:00:06.0 Off |", {"gpu_count": None}),
    ("an A-100 (80GB) is not enough, OOM", {"gpu": "A-100", "capacity_gib": 80.0}),
    ("a 48GB NPU, OOM", {"capacity_gib": 48.0}),
    ("imgs_per_gpu=6, workers_per_gpu=2, OOM", {"micro_batch": 6}),
    ("I decreased `per_device_train_batch_size` into 2 and still OOM", {"micro_batch": 2}),
    ("batch size 相关的都调成 1，还是 OOM", {"micro_batch": 1}),
]


@pytest.mark.parametrize(("text", "facts"), FACTS)
def test_what_is_read(text: str, facts: dict[str, object]) -> None:
    found = read_text(text).facts
    stated = {name: fact.value for name, fact in found.items() if fact.stated}
    assert {name: stated.get(name) for name in facts} == facts
