"""Servers: what they are asked to hold, what their own logs say, and plans that keep to both.

Expected figures are worked out by hand in the comments, from model sizes and the engines' own messages.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import oomdoc
from oomdoc.diagnosis.planning.table import fits_table
from oomkb.catalog import models
from oomkb.memory.job import Job
from oomkb.pricing import price

GIB = 2**30


def diagnosed(text: str) -> dict[str, Any]:
    return oomdoc.diagnose(text).document()


@pytest.mark.parametrize(
    ("question", "cache_gib"),
    [
        # 32 layers x 2 x 32 heads x 128 x 2 bytes = 0.5 MiB a token
        ("vLLM, Llama-2-7b-chat fp16 on one A10G: does it fit with 16 concurrent requests of 4096 tokens?", 32.0),
        ("一张 A10G 用 vLLM 部署 Llama-2-7b fp16，8 个并发，每个上下文 4096，够吗？", 16.0),
        ("Does Llama-2-7b fp16 in vLLM on an A10G hold 4 requests at the same time, context 2048?", 4.0),
    ],
)
def test_requests_at_once_all_need_their_cache(question: str, cache_gib: float) -> None:
    document = diagnosed(question)
    served = document["estimate"]["serving"]
    assert served["kv_needed_gib"] == pytest.approx(cache_gib, rel=0.01)
    assert document["outlook"]["answer"] == ("fits" if cache_gib < 5 else "does-not-fit")


def test_what_does_not_fit_at_once_says_how_many_do() -> None:
    text = oomdoc.diagnose("Can vLLM serve Qwen2.5-7B with 32 concurrent users of 8k context on one RTX 3090?").text()
    assert text.startswith("No: serving Qwen2.5-7B")
    # (0.92 x 23.69 - 14.2 of weights - 0.4 to 1.5 of buffers) / 8192 x 57,344 bytes: 11 to 16
    assert 10 <= int(re.search(r"room for about (\d+) requests", " ".join(text.split()))[1]) <= 17


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("deepseek-ai/DeepSeek-V3", "fp8"),
        ("openai/gpt-oss-20b", "mxfp4"),
        ("moonshotai/Kimi-K2-Thinking", "int4-experts"),
    ],
)
def test_a_checkpoint_is_priced_as_it_is_stored(name: str, stored: str) -> None:
    job = price(Job.from_document({"model": name, "objective": "inference", "framework": "vllm", "gpu": "H200"})).job
    assert job.quant == stored
    assert models.stored_quant(models.find(name).config) == stored
    bf16 = price(Job.from_document({"model": f"{name}-bf16", "objective": "inference", "framework": "vllm"})).job
    assert bf16.quant == "none"


def test_nothing_is_proposed_that_is_so_already() -> None:
    document = diagnosed(
        "python3 -m sglang.launch_server --model deepseek-ai/DeepSeek-V3 --tp 8 --mem-fraction-static 0.5\n8*H200\n"
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
    )
    changes = {c["key"]: c for plan in document["plans"] for c in plan["changes"]}
    assert "quant" not in changes
    assert "--quantization" not in changes
    # 671 GB over 8 cards: 78 GiB of 139.8, so 0.56 holds the weights alone
    assert changes["--mem-fraction-static"]["to"] >= 0.7


def test_a_file_of_llama_cpp_has_its_own_size() -> None:
    """``CUDA0 model buffer size = 17524.42 MiB`` for the Q4_K_M file of Qwen3-30B-A3B, ``CPU_Mapped`` 166.92."""
    document = diagnosed(
        "./llama-server -m Qwen3-30B-A3B-Q4_K_M.gguf -ngl 99 -c 32768 on an RTX 4080\n"
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 17524.42 MiB on device 0: cudaMalloc failed: "
        "out of memory\nllama_model_load: error loading model: unable to allocate CUDA0 buffer\n"
    )
    load = document["estimate"]["phases"]["load"]["total_gib"]
    assert load == pytest.approx(17524.42 / 1024, rel=0.015)
    assert document["causes"][0]["cause"] == "weights-load"
    for plan in document["plans"]:
        assert plan["fits_probability"] >= 0.5
        assert any(c.get("fields", {}).get("quant") or "-ngl" in str(c) or "Run on" in str(c) for c in plan["changes"])


@pytest.mark.parametrize(
    ("model", "quant", "printed_mib"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "q4_k_m", 4403.49),
        ("Qwen/Qwen2.5-14B-Instruct", "q4_k_m", 8148.38),
        ("Qwen/Qwen2.5-72B-Instruct", "q4_k_m", 44556),  # 47.42 GB less an embedding in Q4_K: rows of 29,568
    ],
)
def test_the_embedding_of_a_file_stays_with_the_processor(model: str, quant: str, printed_mib: float) -> None:
    """``CUDA0 model buffer size`` of whole models on one card."""
    job = {"model": model, "quant": quant, "framework": "llama.cpp", "gpu": "H200", "objective": "inference"}
    load = price(Job.from_document(job)).estimate.phases["load"].total_bytes
    assert load / 2**20 == pytest.approx(printed_mib, rel=0.015)


def test_one_process_spreads_the_layers_and_context_and_file_are_found_together() -> None:
    """70B on two cards of 24 GB: half of the layers each, and of the context what is left, before other cards."""
    document = diagnosed(
        "llama-server -m Llama-3.3-70B-Instruct-Q5_K_M.gguf -ngl 99 -c 65536 -np 2 on 2x4090, will it fit?"
    )
    weights = document["estimate"]["phases"]["load"]["total_gib"]
    assert weights == pytest.approx(70.6e9 * 5.66 / 8 / 2 / GIB, rel=0.03)
    first, *others = document["plans"]
    fields = {n: v for c in first["changes"] for n, v in c["fields"].items()}
    assert "gpu" not in fields
    assert fields["quant"] in ("q4_k_m", "iq4_xs", "q3_k_m")
    assert fields.get("serving.max_model_len", 65536) >= 8192
    assert first["fits_probability"] >= 0.9
    spilled = next(p for p in others if p["name"] == "spilled")
    assert " Or: " in document["summary"]
    count = int(str(spilled["changes"][0]["instruction"]).rsplit("-ngl ", 1)[1].split()[0])
    assert 40 <= count < 80


@pytest.mark.parametrize(
    ("text", "settings", "lowest"),
    [
        (  # 48 GB: 47.5 x 0.93 is taken, and 401 MiB are left of what 742 asks for; 27.5 of weights, 3 of one request
            "python3 -m sglang.launch_server --model-path Qwen/Qwen2.5-14B-Instruct --mem-fraction-static 0.93 "
            "--context-length 16384\n(RTX 6000 Ada 48GB)\n"
            "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 742.00 MiB. GPU 0 has a total "
            "capacity of 47.50 GiB of which 401.00 MiB is free.\n",
            ("--cuda-graph-max-bs", "--mem-fraction-static"),
            0.65,
        ),
        (
            "vllm serve Qwen/Qwen2.5-32B-Instruct --gpu-memory-utilization 0.97 --max-model-len 16384  # A100 80GB\n"
            "vllm 0.12.0\n"
            '  File "/opt/vllm/v1/worker/gpu_model_runner.py", line 3412, in capture_model\n'
            "    self._capture_cudagraphs(\n"
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 594.00 MiB. GPU 0 has a total capacity of "
            "79.25 GiB of which 310.94 MiB is free.\n",
            ("--max-cudagraph-capture-size", "--gpu-memory-utilization"),
            0.84,
        ),
    ],
)
def test_a_capture_that_fails_gets_room_beside_the_pool(text: str, settings: tuple[str, str], lowest: float) -> None:
    """Smaller graphs or a smaller share come first, graphs switched off last; what only fills the pool helps nothing."""
    document = diagnosed(text)
    assert document["causes"][0]["cause"] == "cuda-graph"
    here = [p for p in document["plans"] if p["name"] != "more-hardware"]
    keys = [c["key"] for p in here for c in p["changes"]]
    assert keys
    assert set(keys) <= set(settings)
    for plan in document["plans"]:
        for change in plan["changes"]:
            assert change["key"] != settings[1] or lowest <= change["to"] < change["from"]
    assert f"{settings[1]} not below about" in str(here[0]["notes"])
    alone = [f["key"] for f in document["single_fixes"]]
    assert not {"serving-length", "serving-kv-dtype", "serving-batched-tokens"} & {
        f["remedy"] for f in document["single_fixes"]
    }
    off = next(i for i, key in enumerate(alone) if key in ("--disable-cuda-graph", "--enforce-eager"))
    assert min(alone.index(key) for key in settings if key in alone) < off


def test_no_share_makes_room_for_a_request_of_many_cards() -> None:
    """A square of 32 heads x 32,768 x 32,768 x 4 bytes: 128 GiB, which no share of a card of 24 leaves."""
    document = diagnosed(
        "vllm serve Qwen/Qwen2.5-VL-3B-Instruct --max-model-len 32768 on an RTX 3090\n"
        '  File "/opt/vllm/v1/attention/ops/vit_attn_wrappers.py", line 202, in apply_sdpa\n'
        "    output = F.scaled_dot_product_attention(\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 GiB. GPU 0 has a total capacity of "
        "23.69 GiB of which 12.10 GiB is free.\n"
    )
    assert not [c for p in document["plans"] for c in p["changes"] if "utilization" in c["key"]]


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        ("gpt-oss-20b", ["mxfp4"]),
        ("Kimi-K2-Thinking", ["int4"]),
        ("DeepSeek-R1", ["fp8", "int4"]),
        ("Qwen3-32B", ["bf16", "fp8", "int4"]),
    ],
)
def test_the_table_has_the_formats_that_a_model_is_published_in(model: str, rows: list[str]) -> None:
    assert diagnosed(f"Can I serve {model} on 8x H200 with vLLM?")["grid"]["rows"] == rows


_TGI = (
    "docker run ghcr.io/huggingface/text-generation-inference:{version} --model-id mistralai/Mistral-7B-Instruct-v0.3 "
    "--max-input-tokens 30000 --max-total-tokens 32000 {further}\none A10G 24GB, does it fit?"
)


def test_a_whole_prompt_is_one_pass_before_chunks() -> None:
    """Text Generation Inference before 3: ``max_batch_prefill_tokens`` must be >= ``max_input_tokens``."""
    document = diagnosed(_TGI.format(version="2.3.1", further="--max-batch-prefill-tokens 32000"))
    to = {c["key"]: c["to"] for c in document["plans"][0]["changes"]}
    assert to["--max-input-tokens"] < to["--max-total-tokens"] <= 16384
    assert to["--max-batch-prefill-tokens"] >= to["--max-input-tokens"]
    chunked = diagnosed(_TGI.format(version="3.0.1", further="--max-batch-prefill-tokens 32000"))
    assert min(f["to"] for f in chunked["single_fixes"] if f["key"] == "--max-batch-prefill-tokens") < 30000

    def passes(further: str) -> float:
        found = diagnosed(_TGI.format(version="2.3.1", further=further))
        return float(found["estimate"]["phases"]["serving"]["terms"]["activations"])

    assert passes("--max-batch-prefill-tokens 30000") == pytest.approx(passes(""), rel=0.01)


@pytest.mark.parametrize("framework", ["llama.cpp", "ollama"])
def test_a_model_released_in_four_bits_has_files_of_four_bits(framework: str) -> None:
    """gpt-oss-20b: 12.8 GiB whole, of which the embedding of 201,088 x 2,880 in 16 bits stays with the processor."""
    job = {"model": "openai/gpt-oss-20b", "framework": framework, "objective": "inference", "gpu": "RTX 4090"}
    found = price(Job.from_document(job))
    assert found.job.quant == "mxfp4"
    assert 11.5 * GIB < found.estimate.phases["load"].total_bytes < 13 * GIB


def test_experts_are_what_goes_to_the_host() -> None:
    """Qwen3-235B-A22B: of 132 GiB in Q4_K_M all but 4 % are experts; a card of 96 GB holds two thirds of them."""
    document = diagnosed("llama-server -m Qwen3-235B-A22B-Q4_K_M.gguf -c 16384 on an RTX PRO 6000 96GB: does it fit?")
    plan = next(p for p in document["plans"] if p["name"] == "spilled")
    count = int(re.search(r"--n-cpu-moe (\d+)", str(plan["changes"]))[1])  # type: ignore[index]
    assert 25 <= count <= 45
    assert 35 <= plan["host_gib"] <= 60
    assert plan["needed_gib"] < 96


@pytest.mark.parametrize("name", ["gemma2:27b-instruct-q6_K", "gemma-2-27b-it-Q6_K.gguf", "gemma-2-27b-it.Q6_K"])
def test_the_name_says_how_a_file_is_stored(name: str) -> None:
    job = {"model": name, "framework": "ollama", "objective": "inference", "gpu": "H100"}
    estimate = price(Job.from_document(job))
    assert estimate.job.quant == "q6_k"
    assert estimate.estimate.phases["load"].total_bytes == pytest.approx(27.2e9 * 6.56 / 8, rel=0.02)


def test_what_ollama_has_is_proposed_in_its_words() -> None:
    document = diagnosed("ollama run qwen2.5:32b, num_ctx 65536, on an RTX 3090 with 24GB: does it fit?")
    said = str(document["plans"])
    assert "num_ctx" in said
    assert "num_gpu" in said
    assert "iq" not in {str(c.get("fields", {}).get("quant"))[:2] for p in document["plans"] for c in p["changes"]}
    document = diagnosed("ollama run qwen2.5:32b with num_ctx 22000 on an RTX 3090 with 24GB: does it fit?")
    assert "OLLAMA_KV_CACHE_TYPE=q8_0" in str(document["plans"])


def test_its_cache_is_that_of_the_context_and_no_more() -> None:
    """``llama_kv_cache_unified: CUDA0 KV buffer size = 16384.00 MiB`` for 131,072 tokens of Llama 3.1 8B."""
    job = {"model": "meta-llama/Llama-3.1-8B", "framework": "llama.cpp", "quant": "q4_k_m", "gpu": "RTX 3090",
           "serving": {"max_model_len": 131072}}  # fmt: skip
    estimate = price(Job.from_document(job)).estimate
    assert estimate.served.cache_bytes == estimate.served.needed_bytes == 16 * GIB
    assert estimate.phases["serving"].terms_bytes["activations"] == pytest.approx(258.5 / 1024 * GIB, rel=0.01)


@pytest.mark.parametrize("stored", [9000, 16896, 40000])
def test_the_length_that_an_engine_says_it_holds_is_taken(stored: int) -> None:
    document = diagnosed(
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 131072   (one L4)\n"
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored "
        f"in KV cache ({stored}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`.\n"
    )
    lengths = [c["to"] for p in document["plans"][:1] for c in p["changes"] if "max-model-len" in c["key"]]
    if lengths:  # a higher share may make room instead
        assert 0.75 * stored <= lengths[0] <= stored


DISK = "error: RPC failed; curl 56 recv error (-9)\nfatal: write error: No space left on device\n"


@pytest.mark.parametrize(
    "text",
    [
        f"$ git lfs clone https://huggingface.co/Qwen/Qwen2.5-72B-Instruct\n{DISK}",
        "The process was killed -9 by the node.\nOSError: [Errno 28] No space left on device: '/data/model.safetensors'\n",
        "Error: Could not create backend\nCaused by: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")\n"
        "docker run --gpus all ghcr.io/huggingface/text-embeddings-inference --model-id Alibaba-NLP/gte-Qwen2-7B-instruct",
        "RuntimeError: CUDA out of memory. Tried to allocate 130674.91 GiB (GPU 0; 79.15 GiB total capacity)",
        "my gpu runs out of memory but nvidia-smi shows it empty\nsegmentation fault (core dumped)\n",
    ],
)  # fmt: skip
def test_headline_outcome_and_first_cause_agree(text: str) -> None:
    document = diagnosed(text)
    first = document["causes"][0]["cause"] if document["causes"] else None
    if document["verdict"] in ("device-oom", "host-oom", "shared-memory"):
        assert first != "not-oom"
    if document["verdict"] == "not-oom":
        assert first == "not-oom"
        assert document["other_failure"] is not None


@pytest.mark.parametrize(
    "text",
    [
        "vLLM started fine, nvidia-smi shows 72GB of 80GB used for an 8B model. Is that a leak?",
        "Why does vLLM take 22GB of my 3090 for a 1.5B model?",
        "Why does SGLang use almost all of the memory of the H100?",
    ],
)
def test_the_share_of_an_engine_is_no_leak(text: str) -> None:
    document = diagnosed(text)
    assert document["verdict"] == "no-failure"
    assert re.search(r"No leak|by design", document["summary"])


def test_requests_that_are_put_off_are_no_failure() -> None:
    document = diagnosed("KV cache pool is full. Retract requests. #retracted_reqs: 4\nIs that an OOM?")
    assert document["verdict"] == "no-failure"
    assert "No memory failure" in document["summary"]


def test_weights_larger_than_the_card_are_the_cause() -> None:
    # 20 billion parameters in 16 bits are 37 GiB
    document = diagnosed(
        "lmdeploy serve api_server internlm/internlm2_5-20b-chat --cache-max-entry-count 0.8 on RTX 4090 (24GB)\n"
        "RuntimeError: [TM][ERROR] CUDA runtime error: out of memory /opt/lmdeploy/src/turbomind/utils/memory_utils.cu:32"
    )
    assert document["causes"][0]["cause"] == "weights-load"
    assert document["plans"][0]["changes"][0]["key"] != "--tp"


def test_an_answer_of_no_names_what_is_too_small() -> None:
    """Where the card would hold it, the engine's share of the card is what does not."""
    text = oomdoc.diagnose("Will two RTX 3090s run Qwen2.5-72B-Instruct-AWQ with vLLM at 8k context?").text()
    assert text.startswith("No, not as it is")
    assert "the engine takes" in text


def test_an_8_bit_cache_is_no_8_bit_model() -> None:
    for text in ("with fp8 kv cache", "--kv-cache-dtype fp8", "and an fp8 KV cache"):
        question = f"How many tokens of context do I get for Llama-3.1-8B on an A10 with vLLM {text}?"
        assert diagnosed(question)["estimate"]["phases"]["load"]["total_gib"] == pytest.approx(14.96, rel=0.01)


def test_memory_of_a_mac_is_the_share_that_its_gpu_may_use() -> None:
    document = diagnosed("Can an M3 Max with 64GB run llama-3.3-70b Q4_K_M in llama.cpp with 16k context?")
    assert document["estimate"]["capacity_gib"] == 48.0


def test_the_host_memory_of_engines_is_read_and_said() -> None:
    document = diagnosed(
        "llama-70b-7c9d-x2x4l  0/1  OOMKilled  4  12m\nlimits: {cpu: 8, memory: 48Gi, nvidia.com/gpu: 4}\n"
        'args: ["--model=meta-llama/Llama-3.3-70B-Instruct","--tensor-parallel-size=4"]\nimage: vllm/vllm-openai:v0.7.2\n'
    )
    assert document["facts"]["host_gib"]["value"] == 48
    # 141 GB of weights are 131 GiB
    assert int(re.search(r"(\d+)Gi", str(document["plans"][0]["changes"]))[1]) >= 131


def test_an_engine_beside_another_is_given_what_is_free() -> None:
    document = diagnosed(
        "vllm serve BAAI/bge-m3 --gpu-memory-utilization 0.5\nValueError: Free memory on device (38.11/79.25 GiB) on "
        "startup is less than desired GPU memory utilization (0.5, 39.62 GiB)."
    )
    share = re.search(r"--gpu-memory-utilization (0\.\d+)", str(document["plans"]))
    assert 0.4 <= float(share[1]) <= 38.11 / 79.25


@pytest.mark.parametrize(
    "text",
    [
        "How many concurrent users of 4k context can vLLM serve with Llama-3.1-8B on one L4?",
        "LMDeploy 部署 Qwen2.5-7B-Instruct，单张 A100 80G，上下文 8192，可以同时处理多少个请求？",
    ],
)
def test_how_many_requests_is_answered_first(text: str) -> None:
    first = oomdoc.diagnose(text).text().splitlines()[0]
    assert re.search(r"requests of 4,096|8,192 token 的请求同时可放", first)


def test_a_context_that_nobody_stated_is_the_models_own_and_can_be_lowered() -> None:
    # Qwen2.5-72B: 80 layers x 2 x 8 heads x 128 x 2 bytes = 0.3125 MiB a token, half of it on each of two cards: 5 GiB
    # at 32,768 tokens beside 19.3 GiB of weights.
    text = (
        "vllm serve Qwen/Qwen2.5-72B-Instruct-AWQ --tensor-parallel-size 2\n2 x RTX 3090\n"
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
    )
    document = diagnosed(text)
    assert document["estimate"]["serving"]["kv_needed_gib"] == pytest.approx(5.0, rel=0.01)
    assert document["plans"][0]["changes"][0]["key"] == "--max-model-len"


@pytest.mark.parametrize(("layers", "weights", "cache"), [(99, 18.03, 8.0), (50, 13.95, 6.125), (1, 0.60, 0.0)])
def test_layers_on_the_card_carry_their_part_of_the_cache(layers: int, weights: float, cache: float) -> None:
    """Of Qwen2.5 32B, 64 layers of 17.43 GiB together and an output of 0.60: the output counts as the first of -ngl."""
    serving = {"max_model_len": 32768, "gpu_layers": layers}
    job = {"model": "Qwen/Qwen2.5-32B-Instruct", "quant": "q4_k_m", "framework": "llama.cpp", "gpu": "A100 80GB"}
    found = price(Job.from_document(job | {"serving": serving})).estimate
    terms = found.phases["serving"].terms_bytes
    assert terms["weights"] / GIB == pytest.approx(weights, abs=0.02)
    assert terms.get("kv cache", 0.0) / GIB == pytest.approx(cache, abs=0.01)
    assert (terms["weights"] + terms.get("kv cache", 0.0) + found.host_bytes) / GIB == pytest.approx(26.03, abs=0.02)


def test_flags_for_layers_and_experts_are_priced_as_they_stand() -> None:
    """30B-A3B in Q8_0: 28.7 of 31 GiB are experts, of 48 layers alike."""
    command = "llama-server -m Qwen3-30B-A3B-Q8_0.gguf -c 32768 -ngl 99 --n-cpu-moe 24 on a 3090: does it fit?"
    document = diagnosed(command)
    assert document["job"]["serving"]["cpu_expert_layers"] == 24
    assert document["outlook"]["answer"] == "fits"
    assert document["estimate"]["host_gib"] == pytest.approx(28.69 / 2, abs=0.1)
    assert "14.3" in document["summary"]


def test_a_plan_that_leaves_layers_out_is_what_its_own_fields_cost() -> None:
    document = diagnosed("Qwen2.5-32B Q4_K_M in llama.cpp on a 3090 with 32k context: how many layers can I offload?")
    plan = next(p for p in document["plans"] if p["name"] == "spilled")
    (change,) = plan["changes"]
    job = {**document["job"], "serving": document["job"]["serving"] | {"gpu_layers": change["to"]}}
    assert change["fields"] == {"serving.gpu_layers": change["to"]}
    again = price(Job.from_document(job), careful=True).estimate
    assert (again.needed_bytes or 0) / GIB == pytest.approx(plan["needed_gib"], abs=0.02)


@pytest.mark.parametrize("cards", [3, 6, 7])
def test_a_server_on_a_number_of_cards_that_heads_do_not_divide(cards: int) -> None:
    """Gemma 3 27B has 32 heads: tensor parallel over a power of two, the other cards idle."""
    text = f"serve gemma-3-27b-it in int4 with vllm at 16k on {cards} L4s. 1) does it fit? 2) how many chats at once?"
    report = oomdoc.diagnose(text)
    assert report.diagnosis.outlook is not None
    assert report.diagnosis.outlook.answer == "fits"
    ((_, answer),) = report.further
    assert "requests of 16,384 tokens" in answer


def test_a_batch_beside_a_gguf_file_trains_nothing() -> None:
    text = " ".join(
        str(oomdoc.diagnose("Mistral-24B Q4_K_M, 16k ctx, no quantised cache, blas batch 256: total GB?")).split()
    )
    assert text.startswith("About 16.")
    assert "serving Mistral-24B in Q4_K_M" in text


def test_what_an_engine_is_started_with_is_said_where_it_is_asked() -> None:
    text = " ".join(
        str(
            oomdoc.diagnose(
                "Will Llama 3.3 70B Instruct in plain bf16 run with vLLM on 2x A100 80GB (tp=2)? We only need 8k context. About "
                "how many requests at the full 8k can be in flight, and what do I have to pass on the command line?"
            )
        ).split()
    )
    assert "Start it with --tensor-parallel-size 2 --max-model-len 8192." in text


def test_the_8_bits_of_a_cache_are_those_that_the_engine_has() -> None:
    job = {"model": "Qwen/Qwen2.5-14B-Instruct-AWQ", "objective": "inference", "gpu": "RTX 4090", "gpus": 1}
    serving = {"max_model_len": 131_072}
    shown = {}
    for framework in ("lmdeploy", "vllm"):
        table = fits_table(Job.from_document(job | {"framework": framework, "serving": serving}))
        found = (knob.change for knob in table.knobs if knob.change.remedy == "serving-kv-dtype")
        shown[framework] = [(change.key, change.new) for change in found]
    assert shown == {"lmdeploy": [("--quant-policy", 8)], "vllm": [("--kv-cache-dtype", "fp8")]}
