"""Signs of what is not the job's own GPU memory: each with a text that has it, and one much like it that has not."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.ranking import weigh
from oomdoc.intake import read_text

SIGNS = [
    ("host-ram.ram", "Preparing the index eats all my RAM", "Training runs out of RAM on the GPU: CUDA out of memory"),
    ("host-ram.ram", "the merge needs more RAM", "my card is a GPU with 24 GB of RAM and it needs more RAM"),
    ("host-ram.swapped", "I enlarged the swap file, no change", "vllm serve m --swap-space 4"),
    ("host-ram.converted", "the conversion to gguf takes too much memory", "converting to bf16 fills the GPU memory"),
    ("host-ram.large", "a node with 768GB of memory is not enough", "80GB of memory is not enough"),
    ("host-ram.amount", "The box has 64 GB RAM", "The box has 24 GB VRAM and 64 GB RAM"),
    (
        "host-ram.pinned",
        "RuntimeError: CUDA error: out of memory\nhappens with cpu offload in WSL2",
        "RuntimeError: CUDA error: out of memory\nhappens in the second epoch",
    ),
    ("host-ram.ended", "One of the background workers is no longer alive", "the zombies cannot be killed"),
    ("host-ram.mentioned", "it is the host memory", "- System RAM: 503.51 GB"),
    ("other-process.taken", "我的卡已经被占了 15G", "这张卡只有 15G"),
    ("other-process.taken", "one GPU is fully occupied, the job takes it all the same", "the GPU is fully supported"),
    (
        "other-process.left-behind",
        "after I interrupted the run the GPU memory is not released",
        "memory is not released after each step",
    ),
    ("other-process.left-behind", "程序退出之后显存没有释放", "每一轮之后显存越来越多"),
    ("other-process.undead", "nvidia-smi shows a zombie", "nvidia-smi shows my job"),
    ("other-process.contexts", "GPU 0 is used by each of the worker processes", "GPU 0 is used by my job"),
    (
        "other-process.held",
        "CUDA out of memory. Tried to allocate 2.00 MiB (GPU 0; 6.00 GiB total capacity; 2.00 GiB already allocated; "
        "5.00 MiB free; 30.00 MiB cached)",
        "CUDA out of memory. Tried to allocate 2.00 MiB (GPU 0; 2.00 GiB total capacity; 1.20 GiB already allocated; "
        "5.00 MiB free; 30.00 MiB cached)",
    ),
    (
        "other-process.held",
        "Free memory on device (20.0/80.0 GiB) on startup is less than desired GPU memory utilization (0.9, 72.0 GiB).",
        "No available memory for the cache blocks.",
    ),
    (
        "fragmentation.setting-helps",
        "CUDA OOM, but with expandable_segments it works again",
        "expandable_segments did not help, nothing works again",
    ),
    (
        "fragmentation.cached",
        "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 4.00 GiB already allocated; "
        "0 bytes free; 7.50 GiB reserved in total by PyTorch)",
        "CUDA out of memory. Tried to allocate 5.00 GiB (GPU 0; 8.00 GiB total capacity; 4.00 GiB already allocated; "
        "0 bytes free; 7.50 GiB reserved in total by PyTorch)",
    ),
    ("shared-memory.no-space", "NCCL: no space left on device", "saving the checkpoint: no space left on device"),
    ("not-oom.impossible", "CUDA out of memory. Tried to allocate 73400320.00 GiB", "Tried to allocate 73.40 GiB"),
    (
        "not-oom.size",
        "cannot allocate a buffer of size 18446744073709551488",
        "Attempting to allocate 17179869184 bytes, which is more than the largest buffer of 14302248960 bytes",
    ),
    (
        "not-oom.kernel",
        "the kernel does not start (required shared memory 262912 > available shared memory 101376)",
        "the container does not start (no shared memory available)",
    ),
    ("not-oom.crash", "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ("not-oom.pool", "My JAX job occupies 70 GB of the card", "My torch job occupies 70 GB of the card"),
    ("leak.in-training", "Memory use increases as training proceeds", "Memory use increases during evaluation"),
    ("leak.in-training", "训练不断地吃显存", "训练要吃 20G 显存"),
    (
        "leak.not-falling",
        "VRAM rises with a query and does not drop",
        "VRAM rises with a query, then it drops",
    ),
    ("leak.not-falling", "推理之后显存不释放", "推理之后显存就释放"),
    ("leak.again", "the second call fails with out of memory, the first did not", "the second card is out of memory"),
    ("host-ram.in-memory", "It reads all pictures into a list", "It reads all pictures into GPU memory, a list"),
    ("leak.sweep", "an optuna study dies after some trials", "the trial licence is over"),
    ("leak.not-falling", "one has to restart the service every night", "one has to restart with a smaller batch"),
    ("not-oom.quota", "OSError: [Errno 122] Disk quota exceeded", "a quota of GPU hours"),
    ("other-process.shares-card", "test processes share one GPU", "test processes share one script"),
    ("leak.resumed", "resumed from the checkpoint it works for 5 hours, then fails again", "resumed, it fails at once"),
    ("host-ram.killed", "装载到一半就 killed 了", "装载到一半就报 CUDA OOM"),
    ("host-ram.ended", "after an hour the job is then killed by Linux", "after an hour the job is not killed"),
    (
        "host-ram.allocator",
        "GGML_ASSERT: ggml.c:100: ctx->mem_buffer != NULL",
        "GGML_ASSERT: ggml.c:100: tensor->ne[0] != 0",
    ),
    ("host-ram.allocator", "memory allocation of 4294967296 bytes failed", "allocation of tensors failed"),
    ("host-ram.replay", "the replay buffer takes 40 GB of memory", "the replay is 40 seconds long"),
    ("host-ram.said", "all the DRAM of the node is gone", "not enough space for a DRAM buffer across 8 banks"),
    (
        "host-ram.mentioned",
        "It is out of memory on a machine with 128G CPU memory",
        "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 7.40 GiB already allocated; "
        "0 bytes free; 7.50 GiB reserved in total by PyTorch) on a machine with 128G CPU memory",
    ),
    ("shared-memory.said", "Process was signaled to shutdown with signal 7", "Process was shut down by signal 6"),
    (
        "shared-memory.container",
        "It does not start:\n\ndocker run --gpus all ghcr.io/huggingface/text-generation-inference:2.0 --model-id a/b "
        "--num-shard 2",
        "It does not start:\n\ndocker run --gpus all --shm-size 1g ghcr.io/huggingface/text-generation-inference:2.0 "
        "--model-id a/b --num-shard 2",
    ),
    ("eval.harness", "lm_eval --model hf is out of memory", "evalscope perf --parallel 256 is out of memory"),
    (
        "checkpoint-save.switched-on",
        "with save_consolidated=True there is an OOM",
        "there is an OOM, save_total_limit=3",
    ),
    (
        "checkpoint-save.adapter-written",
        "I see that it will assume that the vocabulary was not modified, then it is out of memory",
        "I see that the vocabulary was modified, then it is out of memory",
    ),
    ("host-ram.on-cpu", "I run it on the CPU and it is out of memory", "XPU out of memory, although I run it on CPU too"),
    ("host-ram.computer", "then my laptop runs out of memory", "then the laptop says: CUDA error: out of memory"),
    ("host-ram.heap", "with jemalloc it takes less", "with a smaller heap of books it takes less"),
    ("host-ram.ram", "the loader takes abnormal amounts of RAM", "the loader takes abnormal amounts of time"),
    ("host-ram.swapped", "I raised the swap space, no change", "Aborted due to the lack of CPU swap space."),
    ("host-ram.amount", "The PC has 16 GB RAM", "My M2 has 16 GB RAM"),
    (
        "not-oom.crash",
        "RuntimeError: CUDA error: device-side assert triggered",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    ),
    ("not-oom.kernel", "Ran out of memory in memory space smem", "Ran out of memory in memory space hbm"),
    (
        "not-oom.kernel",
        "It stops with: not enough space in the context's memory pool",
        "It stops with: not enough space for the pool of buffers",
    ),
    ("shared-memory.said", "Shared memory needs 20 GB here", "Triton: out of resource: shared memory is too small"),
    ("eval.collected", "sliding window inference fills the card", "a sliding window of attention fills the card"),
    (
        "hardware-limit.protein",
        "a complex of 2100 residues is out of memory on my card",
        "training on proteins of 2100 residues is out of memory",
    ),
    ("leak.said", "after each iteration 300 MB are allocated", "the first iteration takes 300 MB"),
    ("checkpoint-save.said", "merge_lora.py is out of memory", "/models/merge_lora_step100 is out of memory"),
    ("host-ram.mentioned", "is it the swap space?", "the lack of CPU swap space: is it the swap space?"),
    ("leak.kept", "results.append(outputs) on the GPU", "results.append(outputs.cpu())"),
]  # fmt: skip


def keys(text: str) -> set[str]:
    reasons = weigh(view_of(read_text(text))[0])
    return {r.message.key.removeprefix("cause.") for mine in reasons.values() for r in mine if r.log_odds > 0}


@pytest.mark.parametrize(("key", "text", "other"), SIGNS)
def test_sign(key: str, text: str, other: str) -> None:
    assert key in keys(text)
    assert key not in keys(other)


def test_a_growing_conversation_is_no_leak() -> None:
    def weight(text: str) -> float:
        return sum(r.log_odds for r in weigh(view_of(read_text(text))[0])["leak"] if r.message.key != "cause.worded")

    assert weight("推理时随着多轮对话显存不断增加") < weight("推理时显存不断增加")


def test_a_word_for_both_memories_is_weak_beside_cards() -> None:
    def weight(text: str) -> float:
        return sum(r.log_odds for r in weigh(view_of(read_text(text))[0])["host-ram"] if r.log_odds > 0)

    assert weight("训练时内存不够，batch 改小就可以，显卡是 3090") < 0.5 * weight("训练时服务器内存不够，被杀掉了")


def test_reading_a_state_in_is_no_saving() -> None:
    """``state_dict`` is in the frames of both."""

    def text(line: str) -> str:
        return f'Traceback (most recent call last):\n  File "run.py", line 9, in main\n    {line}\nCUDA out of memory'

    assert "checkpoint-save.trace" in keys(text("state = model.state_dict()"))
    assert "checkpoint-save.trace" not in keys(text("optimizer.load_state_dict(state_dict['optimizer'])"))


def test_merged_before_is_no_merging() -> None:
    assert "checkpoint-save.said" in keys("合并 lora 权重的时候显存不足")
    assert "checkpoint-save.said" not in keys("合并 lora 后再量化，显存不足")


CARD = "CUDA out of memory. Tried to allocate 16.00 MiB (GPU 0; {} GiB total capacity; {} GiB already allocated)"


def test_the_smallest_batch_on_a_modest_card() -> None:
    """Nothing is left to make smaller; on a large card it is a matter of what is trained."""
    told = "I train my segmentation network with a batch size of 1. "
    assert "hardware-limit.least" in keys(told + CARD.format("8.00", "7.40"))
    assert "hardware-limit.least" not in keys(told + CARD.format("79.15", "78.40"))
    assert "hardware-limit.least" not in keys("I train my segmentation network. " + CARD.format("8.00", "7.40"))


def test_the_question_for_hardware_weighs_less_where_a_batch_can_shrink() -> None:
    def weight(text: str) -> float:
        reasons = weigh(view_of(read_text(text))[0])["hardware-limit"]
        return sum(r.log_odds for r in reasons if r.message.key.endswith(".how-much"))

    asked = " How much GPU memory is needed? " + CARD.format("8.00", "7.40")
    assert weight("I train it with batch size 16." + asked) < weight("I train it." + asked)


def test_the_question_for_the_machines_memory_is_not_of_cards() -> None:
    assert "hardware-limit.how-much" not in keys("How much CPU memory is needed to preprocess the set? It was killed.")


def weight_of(cause: str, text: str) -> float:
    reasons = weigh(view_of(read_text(text))[0])[cause]
    return sum(r.log_odds for r in reasons if r.message.key.startswith(f"cause.{cause}."))


def test_growth_over_samples_of_different_lengths_may_be_the_longest_so_far() -> None:
    told = "SFT of Qwen2.5-7B with LoRA: the memory keeps growing during training until it fails"
    assert 0 < weight_of("leak", told) < weight_of("leak", told + ", linear in the steps")
    assert weight_of("leak", told) < weight_of("leak", "Training my GAN, the memory keeps growing until it fails")


def test_an_increase_with_an_adapter_is_no_growth() -> None:
    assert "leak.in-training" not in keys("Training an adapter: increased VRAM usage with some of them")
    assert "leak.in-training" in keys("Training an adapter: increasing VRAM usage with each of the steps")


def test_a_cards_memory_by_the_word_for_the_machines() -> None:
    assert "host-ram.failure" not in keys("启动的时候提示内存不够（T4，15GB内存）")
    assert "host-ram.failure" in keys("启动的时候提示内存不够（A800 八卡，机器内存只有 400G），被 killed")


def test_more_is_held_than_the_card_has() -> None:
    assert "hardware-limit.spilled" in keys("Rendering fails. " + CARD.format("8.00", "14.21"))
    assert "hardware-limit.spilled" not in keys("Rendering fails. " + CARD.format("8.00", "7.90"))


def test_an_argument_that_is_handed_on_saves_nothing() -> None:
    line = 'CUDA out of memory\nTraceback (most recent call last):\n  File "run.py", line 3, in run\n    {}'
    assert "checkpoint-save.trace" not in keys(line.format("train(config, checkpoint_handler)"))
    assert "checkpoint-save.trace" in keys(line.format("checkpoint_handler.save(model)"))


def test_a_crash_told_beside_a_measured_refusal_is_of_another_run() -> None:
    crash = "On the old card: CUDA error: no kernel image is available. On the new one: "
    assert weight_of("not-oom", crash) > weight_of("not-oom", crash + CARD.format("8.00", "7.90"))
