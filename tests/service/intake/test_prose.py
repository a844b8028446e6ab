"""Facts from what people write, in English and Chinese; denied and hypothetical values are not facts."""

from __future__ import annotations

import pytest

from oomdoc.intake import read_text
from oomdoc.intake.polarity import doubt

CASES = [
    ("Fine-tuning on 8×A100 80G goes OOM", {"gpu_count": 8, "capacity_gib": 80}),
    ("4x A100 80GB OOMs at startup, budget for H100s was refused", {"gpu": "A100 80GB", "gpu_count": 4}),
    ("4xL4 is all I have and it OOMs", {"gpu_count": 4}),
    ("用 4 张 V100 16GB 微调 llama3 8b 爆显存", {"gpu_count": 4, "capacity_gib": 16, "params_b": 8}),
    ("三张 L40S 训练 OOM", {"gpu_count": 3}),
    ("双 4090 微调 OOM", {"gpu_count": 2}),
    ("我有四张3090显卡，每张卡24G显存", {"gpu_count": 4, "capacity_gib": 24}),
    ("单张 32G V100 OOM", {"gpu_count": 1, "capacity_gib": 32}),
    ("9台机器，每台机器是8*A800 80G", {"gpu_count": 72, "capacity_gib": 80}),
    ("envs: 2*8 H800", {"gpu_count": 16}),
    ("8 GPUs with 24G each", {"gpu_count": 8, "capacity_gib": 24}),
    ("on 32GB GPUs to finetune LLaMA-7B", {"capacity_gib": 32, "params_b": 7}),
    ("Dual A6000 with 48GB each", {"gpu_count": 2, "capacity_gib": 48}),
    ("机器只有 64G 内存，2 块 A6000", {"gpu_count": 2, "capacity_gib": None}),
    ("QLoRA of Yi-34B OOMs", {"method": "qlora", "params_b": 34, "objective": "sft"}),
    ("FSDP without LoRA, training", {"method": "full", "fsdp": True}),
    (
        "全参数微调，zero-2，序列长度是512，batch_size为1",
        {"method": "full", "zero_stage": 2, "seq_len": 512, "micro_batch": 1},
    ),
    ("batch size 设成 1，context len 是 2k", {"micro_batch": 1, "seq_len": 2048}),
    ("batch size 1, gradient accumulation 4, 32k context window", {"micro_batch": 1, "grad_accum": 4}),
    ("GRPO on qwen7b-instruct with 4 A100", {"objective": "grpo", "gpu_count": 4}),
    ("training without gradient checkpointing", {"grad_ckpt": False}),
    ("我们没开梯度检查点", {"grad_ckpt": False}),
    ("with gradient checkpointing and flash attention 2", {"grad_ckpt": True, "attention": "flash2"}),
    ("显卡为 A100-80Gx8，训练几十步后 OOM", {"gpu_count": 8, "capacity_gib": 80}),
    ("sglang 启动报错，2 台 8*H800 80G", {"gpu_count": 16, "capacity_gib": 80}),
    ("OOM on 3 nodes of 8x H100-80GB with a 7B model", {"gpu_count": 24, "params_b": 7}),
    ("单卡（32G），chatglm2 微调几个小时后 OOM", {"gpu_count": 1, "capacity_gib": 32}),
    ("有两张卡，另一张显卡会被占用 20G 显存", {"capacity_gib": None}),
    ("Mixtral-8x7B OOMs", {"params_b": None}),
    (
        "pretrain of a 13B GPT, TP=4 PP=2, micro batch 4, seq 4096",
        {"tp": 4, "pp": 2, "micro_batch": 4, "seq_len": 4096},
    ),
    ("max length 100K with 29k prompts", {"seq_len": 100000}),
    ("4台48G A40卡，加载数据时爆显存", {"gpu_count": None}),
    ("用了7块40G的显卡跑，还是 out of memory", {"gpu_count": 7, "capacity_gib": 40}),
    ("CUDA oom. deepspeed --include=localhost:0 ./train.py --bf16 True", {"gpu_count": 1}),
    ("CUDA oom. deepspeed --include localhost:2,5 ./train.py --bf16 True", {"gpu_count": 2}),
    ("miniCPM-V2.5 全量微调显存溢出", {"params_b": 8.54}),
    (
        "401 Client Error: Unauthorized for url: https://huggingface.co/some-lab/Llama-2-7b-chat/resolve/main/config.json",
        {"model": "some-lab/Llama-2-7b-chat", "params_b": 7},
    ),
    (
        "CUDA OOM. torch.cuda.memory_reserved() = 68.9GB, torch.cuda.memory_allocated() = 41.2GB",
        {"reserved_gib": 68.9, "allocated_gib": 41.2},
    ),
    (
        "verl GRPO OOM at update_actor with 4xA100-40G, max_response_length 8192",
        {"gpu_count": 4, "completion_len": 8192},
    ),
    ("DPO with ZeRO stage 3", {"objective": "dpo", "zero_stage": 3}),
]


@pytest.mark.parametrize(("text", "facts"), CASES)
def test_facts(text, facts):
    evidence = read_text(text)
    assert {name: evidence.value(name) for name in facts} == facts


def test_gpu_as_written():
    assert read_text("用 7 块 4090 微调").value("gpu") == "4090"
    assert "910B" in read_text("在昇腾 910B 上推理").value("gpu")
    assert "V100" in read_text("4张Tesla-V100-16G OOM").value("gpu")


@pytest.mark.parametrize(
    "text", ["step 4090 of 9000", "pid 3090 was started", "port=4090", "layer_L4.weight is large", "loss 0.3090"]
)
def test_numbers_that_are_no_gpu(text):
    assert read_text(text).value("gpu") is None


def test_the_run_that_failed_counts_not_the_one_that_worked():
    text = "It works with per_device_train_batch_size=1. With per_device_train_batch_size=8 it goes OOM."
    assert read_text(text).value("micro_batch") == 8


def test_models_and_their_sizes():
    evidence = read_text("OOM when fine-tuning Llama-3.1-70B with LoRA")
    assert evidence.value("model") == "Llama-3.1-70B"
    assert evidence.value("params_b") == 70
    assert read_text("Qwen3-30B-A3B OOMs").value("params_b") == 30
    assert read_text("我用 LLaMA-Factory 训练时 OOM").value("model") is None


def test_a_name_in_a_path_of_a_tool_is_no_model():
    assert read_text("cd /opt/llama.cpp && make  # OOM").value("model") is None


def test_language():
    assert read_text("用 4 张 V100 微调 llama3 8b 爆显存，怎么办？").language == "zh"
    assert read_text("CUDA OOM on a 4090").language == "en"


def test_a_log_behind_a_sentence_does_not_change_its_language():
    log = "\n".join(
        ["pulling manifest", "verifying sha256 digest", "writing manifest", "Loading checkpoint shards"] * 8
    )
    assert read_text(f"为什么加载模型还是爆显存？\n\n{log}").language == "zh"
    assert (
        read_text(
            f"Why is my card full after I load the model? The same settings were fine last week.\n\n{log}\n模型加载完成"
        ).language
        == "en"
    )


def test_a_chinese_question_before_an_english_message_is_chinese():
    message = "You must be logged in to have access to this model. Please log in and accept its terms. " * 3
    assert read_text(f"这是显存不够吗？\n\n{message}").language == "zh"
    assert read_text(f"{message}\n请问这是什么问题").language == "en"


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("the 7B model is fine on this card", True),
        ("the 7B model is fine-tuned on this card", False),
        ("the 7B model was fine tuned on this card", False),
        ("with batch size 2 it runs fine", True),
    ],
)
def test_what_is_tuned_finely_is_not_said_to_work(text, good):
    at = text.index("7B") if "7B" in text else text.index("2")
    assert (doubt(text, at, at + 2) > 0) is good


def test_virtual_tokens_are_no_length_of_samples():
    facts = read_text("OOM with p-tuning v2 of ChatGLM3-6B, pre_seq_len 256, max_source_length 1024").facts
    assert facts["seq_len"].value == 1024
    assert facts["method"].value == "prompt"
