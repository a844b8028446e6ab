"""What happened, decided for whole inputs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import oomdoc
from oomdoc.intake import read_text

INPUTS = tomllib.loads(Path(__file__).with_name("inputs.toml").read_text(encoding="utf-8"))
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB"


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_that_programs_print(name):
    wanted = INPUTS[name]
    outcome = read_text(wanted["text"]).outcome
    assert outcome is not None
    assert outcome.kind == wanted["kind"]
    assert wanted.get("name", outcome.name) == outcome.name


_WRAPPED = "{}\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:\nRuntimeError: Engine core initialization failed."


@pytest.mark.parametrize(
    "status",
    [
        "n7:1022:1101 [0] enqueue.cc:102 NCCL WARN Cuda failure 'out of memory'",
        "NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error, NCCL version 2.19.3\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
        "RuntimeError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
        "RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED",
        "RuntimeError: CUDA driver error: 2 (out of memory)",
        "RuntimeError: Triton Error [HIP]:  Code: 2, Messsage: out of memory",
        "RuntimeError: HIP error: out of memory",
        "Failed: CUDA error csrc/deep_ep.cpp:61 'out of memory'",
        "NVSHMEM: nvshmem_malloc failed: out of memory",
        "RTS: rtMalloc failed, runtime result = 207001",
        "RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
        "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
    ],
)  # fmt: skip
def test_a_status_of_any_layer_is_a_shortage(status):
    outcome = read_text(_WRAPPED.format(status)).outcome
    assert outcome.kind == "device"
    causes = oomdoc.diagnose(_WRAPPED.format(status), plans=False).diagnosis.causes
    assert causes[0].cause != "not-oom"
    assert sum(c.probability for c in causes if c.cause == "not-oom") == 0


@pytest.mark.parametrize(
    "text",
    [
        "NCCL error in: NCCLUtils.hpp:275, unhandled cuda error\nLast error:\nCuda failure 700 'an illegal memory access was encountered'",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle)`",
        "status = StatusCode.RESOURCE_EXHAUSTED, details = 'Received message larger than max'",
        "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
    ],
)  # fmt: skip
def test_another_status_is_none(text):
    assert read_text(_WRAPPED.format(text)).outcome.kind == "other"


@pytest.mark.parametrize(
    "text",
    [
        "Will it OOM with batch 8?",
        "There is no OOM anymore, thanks.",
        "With batch 2 it doesn't OOM.",
        "I lowered the batch size to avoid OOM.",
        "How do I prevent OOM errors in long runs?",
        "A larger value may lead to OOM.",
        "In case of OOM lower the batch size.",
        "Flash attention fixed the OOM.",
        "把 batch size 降到 2 之后就没再爆显存了，训练已经顺利跑完。",
        "python train.py --oom_retry 3 --out runs/oom-check",
        "会不会爆显存？",
        "这样设置可以避免爆显存",
        "24G 显存够不够？",
        "|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |",
    ],
)
def test_mentions_that_say_nothing_ran_out(text):
    assert read_text(text).outcome.kind in ("question", "healthy")


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("Training OOMs after 300 steps.", "device"),
        ("Why does it OOM on a 24 GB card?", "device"),
        ("I couldn't finish the run due to OOM.", "device"),
        ("The 70B does not fit on two cards.", "device"),
        ("Expected behavior: no OOM", "device"),
        ("训练一会儿就爆显存了", "device"),
        ("加载模型时内存不足，进程被杀", "host"),
        ("The job gets killed while merging.", "host"),
        ("Host memory grows with every request until the machine swaps", "host"),
        ("dataloader dies with a bus error", "shared-memory"),
    ],
)
def test_plain_statements(text, memory):
    outcome = read_text(text).outcome
    assert (outcome.kind, outcome.memory) == ("said", memory)


def test_an_earlier_failure_is_not_this_one():
    text = "Earlier it ran OOM, I halved the batch. Now:\nKeyError: 'labels'\n"
    assert read_text(text).outcome.name == "missing-key"


def test_memory_beats_what_follows_from_it():
    after = (
        "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)\nSegmentation fault (core dumped)"
    )
    evidence = read_text(f"{OOM}\n{after}")
    assert evidence.outcome.kind == "device"
    assert {o.name for o in evidence.other_outcomes} >= {"nccl-timeout", "segmentation-fault"}


def test_a_named_failure_beats_a_process_that_was_merely_killed():
    text = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2025-01-01T00:00:00 DUE TO TIME LIMIT ***\nKilled\n"
    evidence = read_text("step 1\n" + text)
    assert evidence.outcome.name == "time-limit"
    assert evidence.root.kind == "other"


def test_a_traceback_without_its_message():
    text = '  File "train.py", line 3, in main\n    loss = model(x)\n  File "m.py", line 9, in forward\n    y = x @ w\n'
    outcome = read_text(text).outcome
    assert (outcome.kind, outcome.name) == ("device", "cut-traceback")


def test_an_empty_input_shows_nothing():
    assert read_text("").outcome is None
