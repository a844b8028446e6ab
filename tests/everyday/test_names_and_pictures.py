"""Questions for the names of settings, for the tokens of pictures, and for models set against each other.

Keys are those of the frameworks' own documentation; tokens are worked out by hand.
"""

from __future__ import annotations

import pytest

import oomdoc


def answered(text: str) -> str:
    return oomdoc.diagnose(text, language_model=False).text()


@pytest.mark.parametrize(
    ("question", "keys"),
    [
        ("How do I enable gradient checkpointing in axolotl?", ["axolotl: gradient_checkpointing: true"]),
        (
            "What is the flag for an 8-bit KV cache in vLLM, SGLang and Ollama?",
            ["vllm: --kv-cache-dtype fp8", "sglang: --kv-cache-dtype fp8_e4m3", "ollama: OLLAMA_KV_CACHE_TYPE=q8_0"],
        ),
        ("Which option limits the context length in vLLM, and in SGLang?", ["--max-model-len", "--context-length"]),
        ("verl 里 rollout 的显存占比是哪个参数", ["actor_rollout_ref.rollout.gpu_memory_utilization"]),
        ("LLaMA-Factory 里怎么开 ZeRO-3？", ["deepspeed: examples/deepspeed/ds_z3_config.json"]),
        ("how to set lora rank to 8 in ms-swift", ["ms-swift: lora_rank: 8"]),
        ("怎么在 axolotl 里开 flash attention？", ["flash_attention: true"]),
        ("8-bit kv cache option in lmdeploy: what is it called?", ["--quant-policy 8"]),
    ],
)
def test_a_question_for_a_key_is_answered_with_it(question: str, keys: list[str]) -> None:
    text = answered(question)
    assert all(key in text for key in keys), text


@pytest.mark.parametrize(
    "text",
    [
        "Will Qwen3-8B QLoRA fit on one RTX 4090 with axolotl?",
        "How do I fit a 70B on two 4090s with vLLM?",
        "Which framework is called axolotl?",
    ],
)
def test_what_asks_no_key_gets_none(text: str) -> None:
    assert "axolotl: " not in answered(text)
    assert "vllm: " not in answered(text)


@pytest.mark.parametrize(
    ("question", "least", "most"),
    [
        # 1920 x 1080 / (28 x 28) = 2,645
        ("How many tokens does a 1920x1080 screenshot take in Qwen2.5-VL-7B?", 2600, 2700),
        ("Qwen2.5-VL-7B 里一张 1080p 截图是多少 token？", 2600, 2700),
        # 4 x 1280 x 720 / (28 x 28) = 4,702
        ("Qwen2.5-VL-7B LoRA on a 24 GB card, 4 images of 1280x720 per sample, how many tokens?", 4600, 4750),
    ],
)
def test_the_size_of_a_picture_decides_its_tokens(question: str, least: int, most: int) -> None:
    document = oomdoc.diagnose(question, language_model=False).document()
    assert least <= document["estimate"]["image_tokens"] <= most
    assert f"{document['estimate']['image_tokens']:,}" in answered(question)


def test_a_shape_is_no_picture() -> None:
    document = oomdoc.diagnose(
        "Is a 4096x4096 weight of Qwen2.5-VL-7B in bf16 32 MiB?", language_model=False
    ).document()
    assert "max_pixels" not in document["job"]


@pytest.mark.parametrize(
    "question",
    [
        "DeepSeek-V3 每个 token 的 KV cache 多大？为啥比 Llama-3.1-70B 还小",
        "How large is the KV cache of DeepSeek-V3 at 8192 tokens, and why is it smaller than that of Llama-3.1-70B?",
    ],
)
def test_a_model_that_is_smaller_than_another_stands_beside_it(question: str) -> None:
    text = answered(question)
    assert "0.54 GiB" in text  # 61 layers x 576 values x 2 bytes x 8,192 tokens
    assert "2.50 GiB" in text  # 80 layers x 2 x 8 heads x 128 x 2 bytes x 8,192 tokens


def test_a_card_without_bf16_runs_fp16() -> None:
    text = answered("Does Qwen3-14B fit on a V100 32GB with vLLM, without quantisation?")
    assert "fp16" in text
    assert "--dtype half" in text
    assert "in bf16" not in text


def test_the_longest_context_is_said_for_a_cache_in_8_bits_too() -> None:
    text = answered("What is the longest context for Qwen2.5-32B-Instruct-AWQ on one RTX 4090 in vLLM?")
    assert "--kv-cache-dtype fp8" in text


def test_a_progress_bar_puts_no_question() -> None:
    text = (
        "Full fine-tuning of Qwen2.5-7B on one A100-80GB dies. What is going on?\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 260.00 MiB. GPU 0 has a total capacity of 79.25 "
        "GiB of which 181.06 MiB is free.\n  0%|          | 0/11250 [00:06<?, ?it/s]\n"
    )
    assert not oomdoc.diagnose(text, language_model=False).document()["further"]


@pytest.mark.parametrize(
    ("question", "sums"),
    [
        # the models' config.json: num_key_value_heads, head_dim, num_hidden_layers; kv_lora_rank, qk_rope_head_dim
        ("为什么 Llama-2-7B 的 kv cache 比 Llama-3-8B 还大好几倍？", ["512 KiB", "128 KiB", "8 个 KV 头"]),
        ("KV cache size of Qwen2.5-7B at 32k?", ["4 KV heads", "56 KiB a token"]),
        ("DeepSeek-V3 的 KV cache 多大，8192 token？", ["512 + 64", "68.62 KiB"]),
    ],
)
def test_a_cache_is_said_as_its_product(question: str, sums: list[str]) -> None:
    text = answered(question)
    assert all(part in text for part in sums), text


def test_another_format_is_named_beside_other_cards() -> None:
    text = answered("DeepSeek-R1, the official fp8 weights: is a single 8x H100 80GB server enough?")
    assert "H200" in text
    assert "int4" in text


def test_a_share_taken_at_the_start_is_no_fault() -> None:
    text = answered(
        "SGLang 起一个 Qwen3-1.7B，nvidia-smi 显示快满了，这么小的模型正常吗？\n\n"
        "python -m sglang.launch_server --model-path Qwen/Qwen3-1.7B\n"
        "|   0  NVIDIA A10                     On  |   00000000:3B:00.0 Off |                    0 |\n"
        "|  0%   38C    P0             58W /  150W |   20480MiB /  23028MiB |      0%      Default |\n"
    )
    assert "--mem-fraction-static" in text
    assert "KV" in text


def test_two_names_of_one_run_are_not_set_against_each_other() -> None:
    text = answered("How many A100 80GB for a full fine-tune of Qwen2.5-32B, AdamW in bf16, FSDP/ZeRO-3, seq 2048?")
    assert "FSDP" not in text.split("\n\n")[0]
    assert text.startswith("8 × A100 80GB at least")
