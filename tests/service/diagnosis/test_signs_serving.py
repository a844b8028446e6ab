"""Signs of engines, pictures, allocators and other processes: a text that has each, and one much like it that has not."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.rules import RULES
from oomdoc.intake import read_text

OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory."
SIGNS = [
    (
        "cuda-graph.eager-helps",
        "vLLM OOM at start. It works with --enforce-eager",
        "vLLM OOM even with --enforce-eager",
    ),
    (
        "cuda-graph.eager-helps",
        "启动 vllm 爆显存，加上 enforce_eager 就可以了",
        "vllm 爆显存，参数 enforce_eager=False",
    ),
    (
        "cuda-graph.eager",
        "vLLM is out of memory unless enforce_eager is set",
        "config: seed=0, enforce_eager=False, OOM",
    ),
    ("cuda-graph.compiled", "excessive memory during compilation of my module", "memory grows during the first epoch"),
    (
        "cuda-graph.trace",
        f'File "/x/torch/cuda/graphs.py", line 84, in capture_end\n{OOM}',
        f'File "/x/torch/nn/graphs_of_users.py", line 84, in forward\n{OOM}',
    ),
    ("vision-tokens.sent", "llava is OOM only when I attach an image", "llava is OOM when I attach a debugger"),
    ("vision-tokens.said", "the clips are videos of ten minutes, OOM", "the video memory of my card is full, OOM"),
    (
        "vision-tokens.trace",
        f'File "/x/modeling_qwen2_vl.py", line 3, in forward\n    x = self.visual(pixels)\n{OOM}',
        f"please pass a revision; torchvision 0.19; provisioning more nodes\n{OOM}",
    ),
    (
        "vision-tokens.engine",
        f"vllm serve Qwen/Qwen2.5-VL-7B-Instruct\n{OOM} It fails while the engine starts (profile run).",
        f"vllm serve Qwen/Qwen2.5-7B-Instruct\n{OOM} It fails while the engine starts (profile run).",
    ),
    (
        "fragmentation.setting-helps",
        "OOM at step 9. When I enable expandable segments in the environment, the run goes on and runs fine",
        "OOM at step 9. Expandable segments did not help, it never runs fine",
    ),
    (
        "fragmentation.said",
        "I think the card is fragmented: fragmentation",
        "we ruled out memory fragmentation; the audio is cut in fragments",
    ),
    ("fragmentation.said", "显存碎片太多，申请失败", "preallocated temp fragmentation: 0B (0.00%)"),
    (
        "other-process.taken",
        "OOM at load: most VRAM is occupied by another CUDA process",
        "OOM at load: most VRAM is occupied by the KV cache of the server",
    ),
    (
        "other-process.left-behind",
        "the worker was killed but its GPU processes are not cleaned up, OOM in the next run",
        "the processes are waiting for each other",
    ),
    (
        "other-process.said",
        "OOM: another user runs on this card",
        "Out of memory. Please check whether there is any other process using GPU 0.",
    ),
    (
        "other-process.undead",
        "OOM, yet I do not have any running process",
        "OOM. I don't have any other process running",
    ),
    (
        "kv-cache.named",
        "OOM since I raised max_model_len",
        "cannot support max_model_len=8192: required shared memory 300000",
    ),
    ("kv-cache.named", "llama.cpp OOM, n_ctx = 131072", "llama.cpp OOM, n_ctx      = 512"),
    ("kv-cache.named", "OOM, 40 concurrent users", "OOM, concurrent nvcc threads: 40"),
    ("vision-tokens.clips", "training a LoRA for Wan 2.1, OOM with num_frames = 129", "training a LoRA for SDXL, OOM"),
    (
        "kv-cache.shape",
        "OOM with mii.pipeline\n[INFO] [kv_cache.py:135:__init__] Allocating KV-cache 0 with shape: (32, 700, 64, 2, 8, 128)",
        "OOM with mii.pipeline\nweights of shape: (32, 700, 64, 8)",
    ),
    (
        "kv-cache.engine-says",
        "Aborted due to the lack of CPU swap space, OOM",
        "increase the swap space of the host, OOM",
    ),
    ("kv-cache.turns", "ChatGLM 问两个问题就爆显存", "我想问一下爆显存怎么办"),
    ("kv-cache.trace", "_allocate_kv_cache failed, OOM", "run_generation.py --use_kv_cache is OOM"),
    (
        "kv-cache.weights-fit",
        f"vllm serve Qwen/Qwen2.5-7B-Instruct on an A100 80GB\nINFO the engine starts, profile run\n{OOM}",
        f"vllm serve Qwen/Qwen2.5-72B-Instruct on an A100 80GB\nINFO the engine starts, profile run\n{OOM}",
    ),
]


def signs(text: str, cause: str) -> set[str]:
    rule = next(rule for rule in RULES if cause == rule.CAUSE)
    return {r.message.key for r in rule.weigh(view_of(read_text(text))[0]) if r.log_odds > 0}


@pytest.mark.parametrize(("sign", "text", "other"), SIGNS)
def test_sign(sign: str, text: str, other: str) -> None:
    cause = sign.partition(".")[0]
    assert f"cause.{sign}" in signs(text, cause)
    assert f"cause.{sign}" not in signs(other, cause)


def test_an_engine_without_graphs_is_not_out_of_memory_for_them() -> None:
    rule = next(rule for rule in RULES if rule.CAUSE == "cuda-graph")
    view = view_of(read_text(f"vllm serve Qwen/Qwen2.5-7B-Instruct --enforce-eager\n{OOM}"))[0]
    assert sum(r.log_odds for r in rule.weigh(view)) < 0


def test_states_beyond_the_card_are_not_for_want_of_smaller_pictures() -> None:
    rule = next(rule for rule in RULES if rule.CAUSE == "vision-tokens")
    text = "full fine-tuning of Qwen/Qwen2.5-VL-7B-Instruct with AdamW on one {card}, batch size 1. " + OOM
    small = view_of(read_text(text.format(card="RTX 3090 24GB")))[0]
    assert any(r.log_odds < 0 for r in rule.weigh(small))


def test_a_cache_of_little_size_is_not_what_fills_the_card() -> None:
    rule = next(rule for rule in RULES if rule.CAUSE == "kv-cache")
    log = "llama_new_context_with_model: kv self size  = {size} MB\nggml_metal: error, out of memory"
    small = view_of(read_text(log.format(size="  300.00")))[0]
    large = view_of(read_text(log.format(size="30000.00")))[0]
    assert any(r.log_odds < 0 for r in rule.weigh(small))
    assert not any(r.log_odds < 0 for r in rule.weigh(large))
