"""Inference engines against what they logged when they started: figures published in issue threads and reports.

Every row names its source. The tolerances are those of the whole set; ``bench/serving_starts.py`` prints every row.
"""

import json
import statistics
from pathlib import Path

import pytest

from oomkb.frameworks import complete
from oomkb.memory.engines import engine_of, outside_bytes, static_share
from oomkb.memory.job import Job
from oomkb.memory.serving import largest_max_model_len, serving_bytes, start_probability
from oomkb.memory.setting import resolve_setting
from oomkb.memory.shape import ModelShape
from oomkb.pricing import device_of, price, shape_of
from oomkb.units import GIB

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "serving_starts.jsonl").read_text().splitlines()]


def figures(document):
    job = complete(Job.from_document(document))
    shape, device = shape_of(job), device_of(job)
    s = resolve_setting(job, shape)
    found = serving_bytes(s, shape, device)
    return {
        "weights_gib": found.weights / GIB,
        "activation_gib": found.activations / GIB,
        "non_torch_gib": outside_bytes(engine_of(job, s), s, device)[0] / GIB,
        "kv_gib": found.cache_bytes / GIB,
        "kv_tokens": found.tokens,
        "kv_needed_gib": found.needed_bytes * s.pp / GIB,
        "max_concurrency": found.cache_bytes / found.needed_bytes,
    }


def test_the_figures_come_from_many_sources_engines_and_cards():
    assert len(ROWS) >= 90
    assert len({row["source"] for row in ROWS}) >= 25
    assert len({row["job"]["gpu"] for row in ROWS}) >= 8
    assert {row["job"]["framework"] for row in ROWS} == {"vllm", "sglang"}


@pytest.mark.parametrize(
    ("name", "mean", "median"),
    [
        ("weights_gib", 0.015, 0.005),
        ("activation_gib", 0.03, 0.01),
        ("kv_gib", 0.03, 0.01),
        ("kv_tokens", 0.07, 0.025),
        ("max_concurrency", 0.08, 0.02),
        ("kv_needed_gib", 0.002, 0.001),
    ],
)
def test_start_up_figures(name, mean, median):
    errors = [abs(figures(r["job"])[name] / r["logged"][name] - 1) for r in ROWS if name in r["logged"]]
    assert statistics.mean(errors) <= mean
    assert statistics.median(errors) <= median


def test_what_lies_outside_of_torch_is_known_to_a_quarter_gib():
    off = [
        abs(figures(r["job"])["non_torch_gib"] - r["logged"]["non_torch_gib"])
        for r in ROWS
        if "non_torch_gib" in r["logged"]
    ]
    assert statistics.mean(off) <= 0.06
    assert max(off) <= 0.25


@pytest.mark.parametrize("row", [r for r in ROWS if "starts" in r["logged"]], ids=lambda r: r["id"])
def test_a_server_that_did_not_start_does_not_fit(row):
    estimate = price(Job.from_document(row["job"])).estimate
    assert estimate.fits is row["logged"]["starts"]
    assert estimate.fits_probability < 0.5
    assert any(w.key in ("estimate.short-cache", "estimate.no-cache") for w in estimate.warnings)


def test_the_largest_length_starts_and_the_next_block_does_not():
    base = {
        "model": "Qwen/Qwen3-8B", "framework": "vllm", "versions": {"vllm": "0.11.0"}, "gpu": "RTX 4090",
        "serving": {"max_model_len": 131072, "gpu_memory_utilization": 0.9},
    }  # fmt: skip
    priced = price(Job.from_document(base))
    length = largest_max_model_len(resolve_setting(priced.job, priced.shape), priced.shape, priced.device)
    assert 8192 < length < 131072
    assert priced.estimate.served.largest_length // 16 * 16 == length
    for tokens, starts in ((length, True), (length + 16, False)):
        again = price(Job.from_document({**base, "serving": {**base["serving"], "max_model_len": tokens}})).estimate
        assert again.served.starts is starts


def test_with_whole_prompts_the_batch_grows_with_the_length():
    """vLLM before 0.8 on a 3090 (vllm-project/vllm issue 10517): 20k and 24k tokens start, 29k do not."""
    job = {
        "model": "meta-llama/Llama-3.1-8B-Instruct", "framework": "vllm", "versions": {"vllm": "0.6.4"},
        "gpu": "RTX 3090", "capacity_gib": 23.58, "serving": {"max_model_len": 29000, "gpu_memory_utilization": 0.9},
    }  # fmt: skip
    priced = price(Job.from_document(job))
    assert priced.estimate.fits is False
    shorter = price(Job.from_document({**job, "serving": {**job["serving"], "max_model_len": 20000}}))
    assert shorter.estimate.fits is True
    assert shorter.estimate.served.cache_bytes > priced.estimate.served.cache_bytes


def test_windowed_layers_need_their_window_only():
    """gpt-oss: every second layer sees 128 tokens, so a long request costs little more than half."""
    windowed = price(Job.from_document({"model": "openai/gpt-oss-20b", "framework": "vllm", "gpu": "H100-SXM5-80GB",
                                        "serving": {"max_model_len": 131072}})).estimate.served  # fmt: skip
    shape = shape_of(Job(model="openai/gpt-oss-20b"))
    whole = sum(layer.count for layer in shape.layers) * shape.dims.kv_elements_per_token * 2 * 131072
    assert 0.5 < windowed.needed_bytes / whole < 0.56


def test_a_recurrent_mixer_keeps_one_state():
    job = {"model": "Qwen/Qwen3-Next-80B-A3B-Instruct", "framework": "vllm", "tp": 4, "gpu": "H100-SXM5-80GB"}
    one, two = (
        price(Job.from_document({**job, "serving": {"max_model_len": n}})).estimate.served.needed_bytes
        for n in (65536, 131072)
    )
    state = 2 * one - two
    # 36 layers of 32 heads x 128 x 128 and the convolution, in 16 bits, over four GPUs.
    assert state / 2**20 == pytest.approx(36 * (32 * 128 * 128 + 8192 * 3) * 2 / 4 / 2**20, rel=0.02)


def test_a_draft_model_takes_weights_and_cache():
    job = {"model": "meta-llama/Llama-3.1-70B-Instruct", "framework": "vllm", "tp": 4, "gpu": "H100-SXM5-80GB",
           "serving": {"max_model_len": 8192}}  # fmt: skip
    plain = price(Job.from_document(job)).estimate
    draft = {"extra_models": [{"role": "draft", "model": "meta-llama/Llama-3.2-1B-Instruct"}]}
    drafted = price(Job.from_document({**job, **draft})).estimate
    assert drafted.phases["load"].terms_bytes["draft model"] == pytest.approx(1.2358e9 * 2 / 4, rel=0.01)
    per_token = 16 * 2 * 8 / 4 * 64 * 2
    assert drafted.served.needed_bytes - plain.served.needed_bytes == pytest.approx(per_token * 8192, rel=0.01)
    assert drafted.served.largest_length < plain.served.largest_length


def test_sglang_computes_its_share_from_the_card():
    """SGLang 0.5.23 on an 80 GB card reserves 512 + 1.5 x 8192 + 2 x 256 + 128 MiB."""
    assert static_share(80 * GIB, 8192) == pytest.approx(1 - (512 + 12288 + 512 + 128) / 81920, abs=0.001)
    job = price(Job.from_document({"model": "Qwen/Qwen3-8B", "framework": "sglang", "gpu": "RTX 4090"})).job
    assert job.serving.gpu_memory_utilization == pytest.approx(0.70, abs=0.02)
    assert job.serving.max_num_batched_tokens == 4096


def test_latent_attention_is_not_split():
    """DeepSeek-V3 keeps 576 elements a token and layer on every GPU, however many there are."""
    shape = ModelShape.from_config(price(Job.from_document({"model": "deepseek-ai/DeepSeek-V3", "framework": "vllm", "tp": 8,
                                    "gpu": "H200", "serving": {"max_model_len": 1000}})).shape.config)  # fmt: skip
    assert shape.dims.kv_elements_per_token == 576
    needed = {
        tp: price(Job.from_document({"model": "deepseek-ai/DeepSeek-V3", "framework": "vllm", "tp": tp, "gpu": "H200",
                                     "serving": {"max_model_len": 1000}})).estimate.served.needed_bytes
        for tp in (1, 8)
    }  # fmt: skip
    assert needed[1] == needed[8] == 61 * 576 * 2 * 1000


def served(**fields):
    return price(Job.from_document({"objective": "inference", **fields})).estimate


@pytest.mark.parametrize(
    ("fields", "weights_gib"),
    [
        # 653.9e9 of experts over 8 copies' cards, 11.4e9 of attention on each (fp8), embedding and head in 16 bits
        ({"framework": "vllm", "dp": 8}, (653.9e9 / 8 + 11.4e9 + 2 * 2 * 0.927e9 + 4.2e9) / GIB),
        # attention and the embedding of each card are its own, all else is cut over 8
        (
            {"framework": "sglang", "tp": 8, "dp": 8, "serving": {"attention_dp": True}},
            ((653.9e9 + 4.2e9 + 2 * 0.927e9) / 8 + 11.4e9 + 2 * 0.927e9) / GIB,
        ),
        ({"framework": "sglang", "tp": 8}, (671e9 + 2 * 0.927e9) / 8 / GIB),
    ],
)
def test_what_copies_of_an_engine_share(fields, weights_gib):
    """DeepSeek-V3 on eight H200: vLLM's experts form one group of DP x TP, SGLang's attention has copies of its own."""
    found = served(model="deepseek-ai/DeepSeek-V3", gpu="H200", gpus=8, **fields)
    assert found.phases["load"].total_bytes / GIB == pytest.approx(weights_gib, rel=0.03)


@pytest.mark.parametrize("framework", ["vllm", "sglang"])
def test_copies_take_cards_of_their_own(framework):
    document = {"model": "Qwen/Qwen2.5-7B-Instruct", "framework": framework, "objective": "inference", "tp": 2, "dp": 4}
    assert price(Job.from_document(document)).job.world == 8


def test_a_share_of_the_rest_leaves_the_card_whole():
    """TensorRT-LLM: (card - weights - the largest batch) x 0.9; the process stays on the card, whatever the model."""
    for model, gpu in (("Qwen/Qwen2.5-7B-Instruct", "RTX 4090"), ("Qwen/Qwen3-30B-A3B", "H100-SXM5-80GB")):
        found = served(model=model, framework="tensorrt-llm", gpu=gpu, serving={"max_model_len": 8192})
        assert found.served.of_the_rest
        assert found.served.cache_bytes == pytest.approx(0.9 * found.served.shared_bytes)
        assert found.fits


@pytest.mark.parametrize(("gpu", "length"), [("RTX 3060", 4096), ("RTX 4090", 32768), ("H100-SXM5-80GB", 131072)])
def test_ollama_s_context_follows_the_memory_of_the_card(gpu, length):
    found = served(model="meta-llama/Llama-3.1-8B-Instruct", framework="ollama", gpu=gpu)
    assert found.served.length == length


@pytest.mark.parametrize(
    ("name", "off"), [("vllm-qwen3.5-4b-4090d", 0.035), ("vllm-qwen3.6-27b-fp8-pro6000-mtp3", 0.01)]
)
def test_the_largest_image_is_in_a_profile_run(name, off):
    """Qwen's preprocessors let 16,384 tokens through; without its tower's peak the caches were 7.5 and 0.6 % larger."""
    (row,) = (r for r in ROWS if r["id"] == name)
    assert figures(row["job"])["kv_gib"] == pytest.approx(row["logged"]["kv_gib"], rel=off)


def test_a_share_of_the_rest_is_known_as_much_more_closely():
    """LMDeploy's share is one of what loading leaves: what the weights are off by counts for that share of it."""

    def start(share):
        document = {"model": "Qwen/Qwen2.5-14B-Instruct", "quant": "fp8", "objective": "inference", "gpu": "RTX 4090"}
        serving = {"gpu_memory_utilization": share, "max_model_len": 4096}
        job = complete(Job.from_document(document | {"framework": "lmdeploy", "serving": serving}))
        shape, device = shape_of(job), device_of(job)
        return serving_bytes(resolve_setting(job, shape), shape, device)

    few, much = start(0.2), start(0.8)
    assert few.needed_bytes < few.budget < much.budget
    assert few.cache_spread / much.cache_spread == pytest.approx(0.25)
    assert start_probability(few, few.process, 23.65 * GIB) > 0.95
