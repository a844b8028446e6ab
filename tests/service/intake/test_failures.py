"""Root and consequences; steps; growth; failures that are only told."""

from __future__ import annotations

import pytest

from oomdoc.intake import read_text

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.25 GiB is free."


def test_the_root_is_the_allocation_not_what_follows():
    log = "\n".join(
        [
            "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 12 closing signal SIGTERM",
            f"[rank3]: {OOM}",
            "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)",
            "failed (exitcode: -9) local_rank: 1 (pid: 13) of binary: python",
        ]
    )
    evidence = read_text(log)
    assert evidence.root.signal.name == "torch-cuda-oom"
    assert evidence.root.signal.rank == 3
    assert [f.cascade for f in evidence.failures] == [False, True]
    assert evidence.outcome.kind == "device"
    assert [o.name for o in evidence.other_outcomes] == ["worker-failed", "nccl-timeout"]


def test_exit_137_alone_is_a_host_failure():
    assert read_text("exits with return code = -9").root.kind == "host"


def test_killed_alone_is_nothing():
    assert read_text("Killed").root is None


def test_step_from_the_progress_bar():
    assert read_text(f" 13%|███   | 6/45 [01:21<08:46, 13.51s/it]\n{OOM}").root.step == 6


def test_growth_over_steps():
    lines = [f"iter: {i} memory_allocated: {0.25 * (i + 1)}  memory_reserved:  {0.3 * (i + 1)}" for i in range(5)]
    assert [s.data["points"] for s in read_text("\n".join(lines)).find("growth-over-steps")] == [5]


@pytest.mark.parametrize(
    ("head", "row", "grows"),
    [
        ("", "step {n} loss 2.01 mem {size:.2f}GiB", True),
        ("", "iter {n} | loss: 1.90 | gpu_mem: {size:.0f}000MB | lr 1e-5", True),
        ("", "第{n}步 显存 {size:.2f} GB", True),
        ("", "2026-01-01 10:00:0{n},123 INFO train.py:33 step={n} vram_used={size:.1f}G", True),
        ("", "shard {n}/9 allocated {size:.2f} GiB", False),
        ("", "step {n} loss 2.01 mem 14.20GiB", False),
        ("name  size (GiB)", "{n}  {size:.2f}", False),
    ],
)
def test_growth_in_lines_of_one_shape(head, row, grows):
    lines = [*([head] if head else []), *(row.format(n=n, size=14 + 2.4 * n) for n in range(1, 8))]
    assert bool(list(read_text("\n".join(lines)).find("growth-over-steps"))) is grows


def test_no_growth_where_it_is_level():
    lines = [f"iter: {i} memory_allocated: 0.25  memory_reserved:  0.3" for i in range(5)]
    assert not list(read_text("\n".join(lines)).find("growth-over-steps"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("With batch 4 my training OOMs after a while.", "device"),
        ("微调的时候一直爆显存，怎么办？", "device"),
        ("爆的是内存不是显存，512GB 内存一直增长。", "host"),
        ("We ran out of system RAM while loading; GPU is empty.", "host"),
    ],
)
def test_failures_that_are_told(text, kind):
    assert read_text(text).root.kind == kind


@pytest.mark.parametrize("text", ["It works without OOM now.", "How large is the model?", "没有 OOM，一切正常"])
def test_failures_that_are_denied(text):
    assert read_text(text).root is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("xtuner 用 lora 可以训练，启用 qlora 之后就 oom，明明量化了应该更省才对", "device"),
        ("deepspeed chat 6.7b lora out of memory on A6000 after a few steps", "device"),
        ("vllm 利用率设了 0.9，一推理就 OOM", "device"),
        ("gptq 量化 Qwen3-14B 内存占用过高被杀", "host"),
        ("litgpt merge_lora stablelm 3b killed, peak RAM 15.1 GB", "host"),
        ("The process is killed by SIGKILL by OOM killer due to high memory usage.", "host"),
        ("A worker died or was killed while executing a task by an unexpected system error.", "host"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate an array", "host"),
        ("One of the subprocesses has abruptly died during map operation.", "host"),
        ("run.sh: line 3:  4242 Killed                  python train.py", "host"),
        ("RESOURCE_EXHAUSTED: Attempting to reserve 10.51G at the bottom of memory. There are 8.97G free", "device"),
        ("model weights take 5.20GiB; the rest of the memory reserved for KV Cache is -1.05GiB.", "device"),
    ],
)
def test_failures_that_are_only_told(text, kind):
    root = read_text(text).root
    assert root is not None
    assert root.kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "python train.py --oom_score_adj 10 --run_name no-oom-run",
        "bash scripts/debug_oom.sh",
        "previously I did kill -9 process_id",
        "I use gradient checkpointing and no OOM now",
    ],
)
def test_what_merely_sounds_like_one(text):
    assert read_text(text).root is None


def test_consequences_do_not_hide_the_failure():
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\nThe process is killed by SIGKILL by OOM killer due to high memory usage.\n"
    evidence = read_text(text)
    assert evidence.root.kind == "device"
    assert all(f.cascade for f in evidence.failures if f.kind == "host")


FULL = "CUDA out of memory. Tried to allocate 384.00 MiB (GPU 0; 15.90 GiB total capacity; 14.75 GiB already allocated)"


def test_a_title_is_not_the_failure_that_follows_with_its_sizes():
    lines = [
        "RuntimeError: CUDA out of memory.",
        *(f"what I did, part {n}" for n in range(20)),
        f"RuntimeError: {FULL}",
    ]
    root = read_text("\n".join(lines)).root
    assert root is not None
    assert root.requested_bytes == 384 << 20
    assert root.signal.span.line == len(lines)


def test_a_message_printed_twice_keeps_what_the_longer_one_says():
    short = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 148.00 MiB. GPU 0 has a total capacity of 31.60 GiB of which 87.44 MiB is free."
    long = f"{short} Including non-PyTorch memory, this process has 2.00 GiB memory in use. Of the allocated memory 594.01 MiB is allocated by PyTorch, and 5.99 MiB is reserved by PyTorch but unallocated."
    text = "\n".join([short, *(f"line {n} of something else" for n in range(12)), long])
    root = read_text(text).root
    assert root is not None
    assert root.allocated_bytes is not None
    assert root.process_bytes == 2 << 30


def test_a_title_before_a_traceback_is_not_the_failure_that_ends_it():
    frames = ['  File "/a/train.py", line 31, in <module>', "    model = load_checkpoint_and_dispatch("]
    text = "\n".join(["RuntimeError: CUDA out of memory", "It fails on a T4.", *frames, f"RuntimeError: {FULL}"])
    root = read_text(text).root
    assert root is not None
    assert root.requested_bytes == 384 << 20
    assert root.frames


def test_emphasis_inside_a_message_is_no_part_of_it():
    root = read_text(f"torch.cuda.OutOfMemoryError: {FULL.replace('384.00 MiB', '**384.00 MiB**')}").root
    assert root is not None
    assert root.requested_bytes == 384 << 20


def test_the_asynchronous_allocator_states_its_sizes_in_lines():
    text = """torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)
Currently allocated     : 20.50 GiB
Requested               : 900.00 MiB
Device limit            : 24.00 GiB
Free (according to CUDA): 0 bytes
"""
    root = read_text(text).root
    assert root is not None
    assert (root.requested_bytes, root.allocated_bytes, root.capacity_bytes, root.free_bytes) == (
        900 << 20,
        round(20.5 * 2**30),
        24 << 30,
        0,
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("内存超出怎么办？训练 13B 时显存总是不足", "device"),
        ("4060 只有 8GB内存，一训练就报 CUDA OOM", "device"),
        ("数据预处理时内存不足，进程被杀", "host"),
        ("RayOutOfMemoryError after an hour of sampling", "host"),
    ],
)
def test_whose_memory_ran_out(text, kind):
    root = read_text(text).root
    assert root is not None
    assert root.kind == kind
