"""What programs print and what is asked of them: labels of ranks, formats of the cache, and what cannot help."""

from __future__ import annotations

from typing import Any

import pytest

import oomdoc


def answer(text: str) -> str:
    """The first screen, without its line breaks."""
    return " ".join(str(oomdoc.diagnose(text)).split())


def job_of(text: str) -> dict[str, Any]:
    found = oomdoc.diagnose(text).document()["job"]
    assert isinstance(found, dict)
    return found


SGLANG = """[2025-09-03 11:20:01 TP0] Load weight begin. avail mem=77.80 GB
[2025-09-03 11:21:44 TP0] Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=9.73 GB
[2025-09-03 11:21:44 TP1] Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=9.73 GB
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.
Qwen2.5-72B-Instruct on 2x H100, --mem-fraction-static 0.8"""


def test_the_label_of_a_rank_is_no_size() -> None:
    assert job_of(SGLANG)["tp"] == 2  # both cards, and not "TP 1"
    assert "--tp-size: 1" not in answer(SGLANG)


@pytest.mark.parametrize("text", ["[Bug] [TP2] Llama 70B runs out of memory", "Llama 70B with TP2 runs out of memory"])
def test_a_size_in_brackets_stays_one(text: str) -> None:
    assert job_of(text)["tp"] == 2


@pytest.mark.parametrize(
    "cache",
    ["the kv cache stays at its default (bf16)", "kv cache in bf16", "we keep the kv cache as is, bf16 kv cache"],
)
def test_the_format_of_the_cache_is_not_that_of_the_weights(cache: str) -> None:
    job = job_of(f"How many users at 16k can Qwen2.5-72B in FP8 serve on 4x H100 80GB with vLLM? {cache}.")
    assert job["quant"] == "fp8"
    assert "param_dtype" not in job


def test_fewer_requests_do_not_help_one_that_does_not_fit() -> None:
    text = answer(
        "ValueError: To serve at least one request with the models's max seq len (40960), (10.00 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (6.40 GiB). Based on the available memory, the estimated "
        "maximum model length is 26208. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`.\n"
        "vllm serve Qwen/Qwen3-32B"
    )
    assert "--max-model-len" in text
    assert "--max-num-seqs" not in text


LLAMA_CPP = """llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3090) - 23800 MiB free
load_tensors:        CUDA0 model buffer size = 13800.00 MiB
llama_context: n_ctx         = 65536
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 32000.00 MiB on device 0: cudaMalloc failed: out of memory
init: failed to allocate buffer for kv cache"""


def test_a_context_is_cut_to_what_the_weights_leave_whatever_the_model() -> None:
    # (23,800 - 13,800) of 32,000 MiB hold 20,480 tokens; with four fifths for the cache 16,384.
    assert "--ctx-size: 65536 → 16384" in answer(LLAMA_CPP)


def test_a_file_that_is_pasted_is_not_asked_for() -> None:
    text = answer(
        "deepspeed --num_gpus 4 sft.py --model_name_or_path Qwen/Qwen3-14B --deepspeed z.json --bf16 True\n\n"
        'z.json:\n{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}\n\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 13.76 GiB. GPU 0 has a total capacity of 39.39 GiB "
        "of which 4.10 GiB is free. 4x A100 40GB."
    )
    assert "z.json as well" not in text
    assert "zero_optimization.stage: 2 → 3" in text


def test_a_cache_in_8_bits_is_named_where_it_reaches_further() -> None:
    text = "vLLM on one {} with Llama-3.1-8B-Instruct: what is the largest --max-model-len?"
    assert "With the cache in 8 bits" not in answer(text.format("L40S 48GB"))  # the model's own limit fits
    assert "With the cache in 8 bits" in answer(text.format("RTX 4090"))


def test_two_engines_on_one_card_share_it() -> None:
    text = answer(
        "vllm serve Qwen/Qwen3-8B --port 8000\nvllm serve BAAI/bge-m3 --port 8001\n"
        "ValueError: Free memory on device (1.60/23.69 GiB) on startup is less than desired GPU memory utilization (0.9, "
        "21.32 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )
    assert "Start both with shares that together stay below 1" in text
    alone = answer(
        "vllm serve BAAI/bge-m3 --port 8001\n"
        "ValueError: Free memory on device (1.60/23.69 GiB) on startup is less than desired GPU memory utilization (0.9, "
        "21.32 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )
    assert "Start both" not in alone


def test_machines_that_are_counted_beside_the_ranks_of_a_log_divide_them() -> None:
    job = job_of(
        "using world size: 32, data-parallel size: 2, tensor-model-parallel size: 8, pipeline-model-parallel size: 2\n"
        "  micro_batch_size ................................ 1\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 3 has a total capacity of 79.11 GiB "
        "of which 46.25 MiB is free.\n4 nodes of 8 h100 each, Megatron, llama3 70b"
    )
    assert (job["world"], job["nodes"], job["gpus"]) == (32, 4, 8)


def test_the_longest_is_not_answered_with_the_length_that_is_assumed() -> None:
    text = answer(
        "I bought a 5090. Can I QLoRA Qwen3-14B on it? rank 16, batch 1, gradient checkpointing. What is the max seq len I "
        "can use?"
    )
    assert "The longest that fits" in text
    assert "nobody said" not in text
