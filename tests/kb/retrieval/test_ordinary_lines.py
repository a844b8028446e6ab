"""A signature names one failure only: lines that programs print on ordinary days, and other cases, match none."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from oomkb.records.loader import load_cases
from oomkb.retrieval.documents import matched

HERE = Path(__file__).parent / "ordinary"
FAMILIES = (
    "deepspeed",
    "llama-cpp-ollama",
    "megatron",
    "npu",
    "pytorch",
    "ray-verl",
    "sglang",
    "trainers",
    "transformers",
    "vllm",
)
EVERYDAY = """
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
(EngineCore_0 pid=812) ERROR 11-02 10:15:21 [core.py:708] EngineCore failed to start.
RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity; 55.10 GiB already allocated)
ray.exceptions.RayTaskError(OutOfMemoryError): ray::WorkerDict.actor_rollout_update_actor() (pid=4021, ip=10.0.0.4)
DeepSpeed Basic Optimizer = DeepSpeedCPUAdam
Adam Optimizer #0 is created with AVX512 arithmetic capability.
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. GPU 0 has a total capacity of 31.74 GiB
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB (GPU 0; 23.69 GiB total capacity)
RuntimeError: MPS backend out of memory (MPS allocated: 17.90 GB, other allocations: 300 MB, max allowed: 18.13 GB)
RuntimeError: [enforce fail at alloc_cpu.cpp:83] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes
ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.
the rest of the memory reserved for KV Cache is -1.05GiB.
Invalidate trace cache @ step 838 and module 0: cache has only 838 modules
None of the inputs have requires_grad=True. Gradients will be None
Command terminated: exited with code 137
reason: OOMKilled
slurmstepd: error: Detected 1 oom_kill event in StepId=812.0. Some of the step tasks have been OOM Killed.
RuntimeError: One of the subprocesses has abruptly died during map operation. To debug the error, disable multiprocessing.
RuntimeError: DataLoader worker (pid 812) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.
NCCL WARN Cuda failure 2 'out of memory'
It took 0.35 seconds to wake up tags {'weights'}. Sleep mode freed 60.13 GiB, 3.20 GiB memory is still in use.
RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. Please try lowering `max_num_seqs`
Assertion `srcIndex < srcSelectDimSize` failed.
"""


def lines(family: str) -> list[tuple[str, str]]:
    text = (HERE / f"{family}.tsv").read_text(encoding="utf-8")
    return [tuple(row.split("\t", 1)) for row in text.splitlines() if not row.startswith("#")]  # type: ignore[misc]


def hits(text: str) -> list[str]:
    cases = load_cases()
    return [f"{cases[number].id}: {words!r} in {text!r}" for number, (_, words) in matched(text, cases).items()]


@pytest.mark.parametrize("family", FAMILIES)
def test_ordinary_lines_hit_no_signature(family: str) -> None:
    rows = lines(family)
    assert len({line for _, line in rows}) >= 300
    assert all(source.rpartition(":")[2].isdigit() for source, _ in rows)
    found = [hit for _, line in rows for hit in hits(line)]
    assert not found, "\n".join(found)


def test_everyday_failures_hit_no_signature(root: Path) -> None:
    rows = EVERYDAY.strip().splitlines()
    for path in sorted((root / "service/oomdoc/intake/outcomes").glob("*.toml")):
        outcome = tomllib.loads(path.read_text(encoding="utf-8"))
        rows += [*outcome["lines"], *outcome["not_lines"]]
    assert len(rows) >= 200
    found = [hit for line in rows for hit in hits(line)]
    assert not found, "\n".join(found)


def test_each_signature_hits_its_own_case_and_no_other() -> None:
    cases = load_cases()
    signed = [number for number, case in enumerate(cases) if case.signatures]
    assert signed
    for number, case in enumerate(cases):
        found = set(matched("\n".join(case.symptoms), cases))
        assert found == ({number} if number in signed else set()), case.id
