"""What rules out a cause that another sign would suggest, in the words of people who describe a failure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.rules import RULES
from oomdoc.diagnosis.view import View
from oomdoc.intake import read_text

BY_CAUSE = {rule.CAUSE: rule for rule in RULES}


def seen(text: str) -> View:
    return view_of(read_text(text))[0]


def support(cause: str, text: str) -> float:
    return sum(reason.log_odds for reason in BY_CAUSE[cause].weigh(seen(text)))


def speaks(cause: str, sign: str, text: str) -> bool:
    return any(r.message.key == f"cause.{cause}.{sign}" for r in BY_CAUSE[cause].weigh(seen(text)))


# Cause -> a text that suggests it, and what is added to the text that takes (some of) it back.
REFUTED = [
    ("weights-load", "llama-server dies while loading the model, 24 GB card", "graph_reserve: failed to allocate compute buffers"),
    ("weights-load", "vLLM OOM when loading", "It only happens after warmup."),
    ("weights-load", "vLLM 加载模型时爆显存", "模型可以正常加载成功，发请求才爆"),
    ("checkpoint-save", "OOM around the checkpoint when saving", "The file itself is saved successfully each time."),
    ("checkpoint-save", "保存模型时显存不够", "权重保存成功"),
    ("model-states", "full fine-tuning of a 7B, batch size 1 still OOM, 2x A100 80GB", "It is intermittent."),
    ("model-states", "全参数微调 7B，batch 已经最小 还是爆显存", "时好时坏"),
    ("model-states", "full fine-tuning of a 7B, batch size 1 still OOM", "It had trained for two hours, then died"),
    ("model-states", "全参数微调 7B，batch 已经最小 还是爆显存", "坚持了两个多小时才挂"),
    ("activations", "SFT of a 7B with LoRA, OOM; a smaller batch is fine", "It dies after two hours, around step 4100"),
    ("activations", "LoRA 微调 7B 爆显存，batch 调小 可以", "训练了三个小时之后才挂"),
    ("model-states", "accelerate launch, 8 processes, full 7B, batch size 1 still OOM, --per_device_train_batch_size 1", "-m lmms_eval --tasks mme"),
    ("kv-cache", "lmdeploy serve api_server, kv cache OOM", "--cache-max-entry-count 0.001"),
    ("zero3-gather", "rank 3: OOM in all_gather of the forward", 'Traceback (most recent call last):\n  File "/w/tp.py", line 8, in forward\n    x = DifferentiableAllGather.apply(x, g)'),
    ("not-oom", "the runner stops with a segmentation fault", "num_ctx 262144"),
    ("vision-tokens", "a video of 129 frames at 720p resolution, OOM", "HunyuanVideo with diffusers"),
    ("vision-tokens", "生成 5 秒视频就爆显存，分辨率 720p", "用的是文生视频模型"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "suggests", "refutes"), REFUTED)
def test_what_takes_a_cause_back(cause: str, suggests: str, refutes: str) -> None:
    before = support(cause, suggests)
    assert before > 0 or cause == "model-states"
    assert support(cause, f"{suggests}\n{refutes}") < before


def test_a_size_of_a_model_is_no_version() -> None:
    assert not speaks("version-regression", "comparison", "It works with 1.3b and fails with 6.7b of the same family.")
    assert not speaks("version-regression", "comparison", "换成 1.8b 的模型就正常，用 7.1b 的模型就爆")
    assert speaks("version-regression", "comparison", "It works with 1.3 and fails with 1.4 of the same package.")


def test_a_key_of_a_config_is_no_gather() -> None:
    pasted = (
        '"zero_optimization": {"stage": 2, "allgather_bucket_size": 5e8, "overlap_comm": true, "reduce_scatter": true}'
    )
    assert not speaks("zero3-gather", "said", f"OOM with {pasted}")
    assert not speaks("zero3-gather", "trace", f"OOM with {pasted}")
    assert speaks("zero3-gather", "said", "OOM since I raised reduce_bucket_size to two billion")


def test_one_rank_with_the_optimizer_elsewhere_says_less() -> None:
    told = seen("deepspeed ZeRO-3 full training, Qwen2.5-7B, 1 GPU, CUDA out of memory")
    moved = replace(told, job=told.job.with_fields({"offload": ("optimizer",)}))

    def weight(view: View) -> float:
        reasons = BY_CAUSE["model-states"].weigh(view)
        return sum(r.log_odds for r in reasons if r.message.key == "cause.model-states.one-rank")

    assert 0 < weight(moved) < weight(told)


def test_a_server_with_room_for_few_tokens_is_full_of_weights() -> None:
    few, many = (f"Not enough memory to handle {n} prefill tokens" for n in (512, 16384))
    assert speaks("weights-load", "little-room", few)
    assert not speaks("kv-cache", "engine-says", few)
    assert speaks("kv-cache", "engine-says", many)
    assert not speaks("weights-load", "little-room", many)


def test_a_driver_that_counts_nothing_accuses_nobody() -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 0 has a total capacity of 24.00 GiB"
        " of which 0 bytes is free. Including non-PyTorch memory, this process has {} memory in use. Of the allocated"
        " memory 9.10 GiB is allocated by PyTorch, and 0.40 GiB is reserved by PyTorch but unallocated."
    )
    assert not speaks("other-process", "held", text.format("0 bytes"))
    assert speaks("other-process", "held", text.format("10.00 GiB"))


def test_a_script_is_no_traceback() -> None:
    script = "my script:\n    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16)\n"
    trace = '  File "/w/run.py", line 7, in main\n' + script.partition("\n")[2]
    message = "CUDA out of memory. Tried to allocate 2.00 GiB"

    def weight(text: str) -> float:
        reasons = BY_CAUSE["weights-load"].weigh(seen(text))
        return max((r.log_odds for r in reasons if r.message.key == "cause.weights-load.trace"), default=0.0)

    assert weight(script + message) < weight(f"Traceback (most recent call last):\n{trace}torch.{message}")


@pytest.mark.parametrize(
    ("cause", "sign", "text"),
    [
        ("attention-scores", "trace", "  layers/sparse_indexer.py forward out = fp8_mqa_logits(q, k, w)"),
        ("rollout-engine", "colocated-said", "OOM at the weight sync, in experts.7.down_proj.weight"),
        ("rollout-engine", "colocated-said", "第一轮训练后同步权重到 sglang 时爆显存"),
        ("host-ram", "data", "dataset.map with num_proc=32 gets stuck, there are fewer and fewer workers"),
        ("host-ram", "data", "num_proc 设为 64 做分词，进程越来越少，最后卡住"),
        ("host-ram", "said", "跑到一半打爆了整个服务器的内存，显存一直没变"),
        ("long-sample", "at-step", "微调了三个多小时之后报显存不足"),
        ("long-sample", "at-step", "it runs for about two hours and then: out of memory"),
    ],
)
def test_signs_told_in_words(cause: str, sign: str, text: str) -> None:
    assert speaks(cause, sign, text)


def test_a_family_of_models_is_no_package() -> None:
    assert not speaks("version-regression", "comparison", "It runs fine with Qwen2.5, the larger one does not start.")
    assert not speaks("version-regression", "comparison", "With llama-3.1 it works, with the other family it is OOM")
    assert speaks("version-regression", "comparison", "It runs fine with vllm 0.6.1, the next one does not start.")


def test_swap_space_of_an_engine_is_the_machines() -> None:
    assert speaks("host-ram", "mentioned", "the default swap_space of the engine is too much for my laptop")
