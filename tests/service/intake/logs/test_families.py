"""Every error family: what must be recognised, with its numbers, and what must not."""

from __future__ import annotations

from pathlib import Path

import pytest

import oomdoc.intake.logs
from oomdoc.evidence import Source
from oomdoc.intake.lines import read_lines
from oomdoc.intake.logs import PARSERS
from oomdoc.intake.scanning import scan
from oomdoc.intake.sieve import Vocabulary

GIB = 1 << 30

MUST = [
    ("accelerators", "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1073741824 (1024)MB", "gaudi-oom", "device", {"requested_bytes": GIB}),
    ("accelerators", "ERROR  TDRV:log_dev_mem   Failed to allocate 64.000MB (usage: tensors) on ND 0:NC 1, current utilization:", "neuron-oom", "device", {"requested_bytes": 64 << 20, "device": 0}),
    ("cuda_driver", "Out of memory error on GPU 1. Cannot allocate 2.500000GB memory on GPU 1, available memory is only 512.000000MB.", "paddle-oom", "device", {"requested_bytes": round(2.5 * GIB), "free_bytes": 512 << 20}),
    ("mps", "RuntimeError: [metal::malloc] Attempting to allocate 8589934592 bytes which is greater than the maximum allowed buffer size of 4294967296 bytes.", "metal-buffer-too-large", "device", {"requested_bytes": 8 * GIB, "allowed_bytes": 4 * GIB}),
    ("cpu_allocator", "MemoryError: Unable to allocate 12. GiB for an array with shape (3, 1) and data type float32", "numpy-oom", "host", {"requested_bytes": 12 * GIB}),
    ("bitsandbytes", "Error out of memory at line 380 in file /mmfs1/csrc/ops.cu", "bitsandbytes-oom", "device", {}),
    ("cpu_allocator", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 268435456 bytes. Error code 12", "cpu-allocator-oom", "host", {"requested_bytes": 268435456}),
    ("cpu_allocator", "numpy.core._exceptions.MemoryError: Unable to allocate 30.5 GiB for an array with shape (1,)", "numpy-oom", "host", {"requested_bytes": round(30.5 * GIB)}),
    ("cpu_allocator", "mlock failed to allocate 4096 bytes with error no 12", "pinned-memory-oom", "host", {"requested_bytes": 4096}),
    ("cuda_driver", "RuntimeError: CUDA error: out of memory", "cuda-driver-oom", "device", {}),
    ("cuda_driver", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cublas-alloc-failed", "device", {}),
    ("cuda_driver", "include/alloc.h:65 NCCL WARN Cuda failure 2 'out of memory'", "nccl-cuda-oom", "device", {}),
    ("cuda_driver", "Cannot allocate 64.000000MB memory on GPU 1, 15.500000GB memory has been allocated and available memory is only 32.000000MB.", "paddle-oom", "device", {"free_bytes": 32 * 1024**2}),
    ("cuda_driver", "RuntimeError: cuda runtime error (2) : out of memory at /tmp/THCStorage.cu:41", "layer-oom", "device", {}),
    ("cuda_driver", "RuntimeError: CUDA failed with error out of memory", "layer-oom", "device", {}),
    ("cuda_driver", "memory allocation failed with OOM on device 0 while trying to allocate 1000341504 bytes (free: 916848640, total: 25243287552)", "torch-cuda-oom-warning", "device", {"requested_bytes": 1000341504, "free_bytes": 916848640}),
    ("datasets", "[INFO:swift] Dataset Token Length: 159.2±83.9, min=39.000000, max=1010.000000, size=1000", "sample-lengths", None, {"longest": 1010}),
    ("deepspeed", "MA 12.58 GB         Max_MA 13.0 GB         CA 13.2 GB         Max_CA 14 GB", "deepspeed-memory", None, {"allocated_bytes": round(12.58 * GIB)}),
    ("diffusion", "ComfyUI with flux1-dev-fp8.safetensors", "diffusion-model", None, {"model": "flux", "narrow": "fp8"}),
    ("diffusion", "model weight dtype torch.float8_e4m3fn, manual cast: torch.float16", "narrow-weights", None, {}),
    ("evaluation", "***** Running Evaluation *****\n  Num examples = 1,250\n  Batch size = 4", "evaluation-started", None, {"samples": 1250}),
    ("exit_codes", "failed (exitcode: -9) local_rank: 1 (pid: 265409) of binary: /usr/bin/python", "exit-137", "host", {"code": -9}),
    ("exit_codes", "['python', 'train.py'] exits with return code = -9", "exit-137", "host", {}),
    ("jax_xla", "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 30.21G of 15.48G hbm. Exceeded hbm capacity by 14.73G.", "xla-hbm-exhausted", "device", {"capacity_bytes": round(15.48 * GIB)}),
    ("jax_xla", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes.", "xla-oom", "device", {"requested_bytes": 2 * GIB}),
    ("accelerate", "ValueError: We need an `offload_dir` to dispatch this model according to this `device_map`, the following submodules need to be offloaded: model.layers.30", "dispatch-too-large", "device", {}),
    ("accelerate", "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit the quantized model.", "dispatch-too-large", "device", {}),
    ("kernel_oom", "Out of memory: Killed process 1234 (python) total-vm:104857600kB, anon-rss:62914560kB, file-rss:0kB, shmem-rss:4kB, UID:0 pgtables:1kB oom_score_adj:0", "kernel-oom-kill", "host", {"pid": 1234, "anon_bytes": 60 * GIB}),
    ("kernel_oom", "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0", "kernel-oom-kill", "host", {}),
    ("kubernetes", "    Reason:       OOMKilled", "kubernetes-oom-killed", "host", {}),
    ("notebooks", "Your session crashed after using all available RAM.", "notebook-out-of-ram", "host", {}),
    (
        "notebooks",
        "Your notebook tried to allocate more memory than is available. It has restarted.",
        "notebook-out-of-ram",
        "host",
        {},
    ),
    ("llama_cpp", "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 882903040", "ggml-alloc-failed", "device", {"requested_bytes": 882903040}),
    ("llama_cpp", "Error: model requires more system memory (5.6 GiB) than is available (3.1 GiB)", "ollama-system-memory", "host", {"free_bytes": round(3.1 * GIB)}),
    ("lmdeploy", "[TM][ERROR] CUDA runtime error: out of memory /opt/lmdeploy/src/turbomind/utils/allocator.h:231", "lmdeploy-oom", "device", {}),
    ("memory_summary", "| Allocated memory      |   10240 MiB |   12288 MiB |   90000 GiB |   89990 GiB |", "memory-summary", None, {"allocated_peak_bytes": 12 * GIB}),
    ("memory_usage", "After vllm offload in sharding manager: 13.54 GB / 79.19 GB.", "memory-usage", None, {"used_bytes": round(13.54 * GIB)}),
    ("memory_usage", "torch.cuda.memory_reserved() = 68.9GB and torch.cuda.memory_allocated() = 41.2GB", "memory-usage", None, {"allocated_bytes": round(41.2 * GIB), "reserved_bytes": round(68.9 * GIB)}),
    ("memory_usage", "memory_allocated(0): 12.5 GiB, memory_reserved(0): 20 GiB", "memory-usage", None, {"allocated_bytes": round(12.5 * GIB), "reserved_bytes": 20 * GIB}),
    ("deepspeed", "Rank: 0 partition count [8] and sizes[(756213898, False)]", "deepspeed-partitions", None, {"count": 8}),
    ("accelerators", "kernel: [drm] amdgpu: 98304M of VRAM memory ready", "amdgpu-memory", None, {"capacity_bytes": 96 * GIB}),
    ("exit_codes", "collecting activations:  77%|███████████████▌Killed", "exit-137", "host", {}),
    ("mps", "RuntimeError: MPS backend out of memory (MPS allocated: 8.89 GB, other allocations: 172.98 MB, max allowed: 9.07 GB). Tried to allocate 6.25 MB on private pool.", "mps-oom", "device", {"capacity_bytes": round(9.07 * GIB), "requested_bytes": round(6.25 * 2**20)}),
    ("nvidia_smi", "| N/A   45C    P0    90W / 400W |  23859MiB / 24564MiB |     99%      Default |", "nvidia-smi-memory", None, {"total_bytes": 24564 << 20}),
    ("progress", " 13%|██████            | 6/45 [01:21<08:46, 13.51s/it]", "progress", None, {"step": 6, "of": 45}),
    ("progress", "Train:  13%|██        | 6/45 [01:21<08:46, 13.51s/it]", "progress", None, {"step": 6, "of": 45}),
    ("ray", "(raylet) node_manager.cc:3069: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node", "ray-oom-kill", "host", {}),
    ("ray", "where the task (actor ID: 9e, pid=41, memory used=56.57GB) was running was 246.41GB / 251.54GB (0.979583), which exceeds the memory usage threshold of 0.95. Ray killed this worker", "ray-node-memory", "host", {"threshold": 0.95}),
    ("sglang", "Prefill out of memory. Try to lower your batch size.", "sglang-batch-oom", "device", {"stage": "Prefill"}),
    ("sglang", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "sglang-memory-pool-too-small", "device", {}),
    ("shm", "RuntimeError: DataLoader worker (pid 3919213) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.", "shm-bus-error", "shared-memory", {}),
    ("shm", "Error while creating shared memory segment /dev/shm/nccl-UmqSM9 (size 7340384)", "nccl-shm-failed", "shared-memory", {"requested_bytes": 7340384}),
    ("slurm", "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM Killed.", "slurm-oom-kill", "host", {"events": 1}),
    ("tensorflow", "OOM when allocating tensor of shape [1024,512] and type float", "tensorflow-oom", "device", {"requested_bytes": 2 << 20}),
    ("tensorflow", "OOM when allocating tensor with shape[501153,768] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc", "tensorflow-oom", "device", {"requested_bytes": 501153 * 768 * 4}),
    ("tgi", "Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens`", "tgi-warmup-too-large", "device", {"tokens": 4096}),
    ("torch_cuda", "CUDA out of memory. Tried to allocate 2.00 MiB (GPU 0; 10.00 GiB total capacity; 9.00 GiB already allocated; 0 bytes free; 9.50 GiB reserved in total by PyTorch)", "torch-cuda-oom", "device", {"requested_bytes": 2 << 20, "free_bytes": 0}),
    ("trtllm", "[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, mCudaStream->get()): out of memory", "trtllm-oom", "device", {}),
    ("vllm", "ValueError: The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache (23648).", "vllm-kv-cache-too-small", "device", {"length": 29000, "stored": 23648}),
    ("vllm", "To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (3.89 GiB). Based on the available memory, the estimated maximum model length is 31824.", "vllm-kv-cache-too-small", "device", {"estimate": 31824}),
    ("vllm", "Free memory on device (3.5/23.57 GiB) on startup is less than desired GPU memory utilization (0.9, 21.21 GiB).", "vllm-startup-free-too-low", "device", {"utilization": 0.9, "free_bytes": round(3.5 * 1024**3)}),
]  # fmt: skip

MUST_NOT = [
    ("diffusion", "the gradient flux of the step, and stable diffusion of heat"),
    ("accelerators", "INFO memory report (usage: tensors) on ND 0: 3.1 GB of 15.9 GB"),
    ("accelerate", "all submodules are offloaded; offload_dir is set"),
    ("bitsandbytes", "bitsandbytes csrc/ops.cu compiled"),
    ("cpu_allocator", "using pin_memory=True for the dataloader"),
    ("datasets", "the token length of a prompt is 1024, max=2048"),
    ("cuda_driver", "see the docs on out of memory errors"),
    ("deepspeed", "Model with tied weights"),
    ("evaluation", "Running evaluation every 200 steps; Num examples = 12"),
    ("exit_codes", "the process finished with exit code 0 lines of output: 1379"),
    ("jax_xla", "jax backend gpu, bfc_allocator ready"),
    ("kernel_oom", "the OOM killer may strike; systemd-oomd enabled: oom-kill: none"),
    ("kubernetes", "pods evicted earlier for disk pressure: 0"),
    ("llama_cpp", "ggml_cuda_init: found 1 CUDA devices"),
    ("lmdeploy", "turbomind model is built successfully"),
    ("memory_summary", "allocated memory is fine"),
    ("memory_usage", "memory usage is printed with --verbose"),
    ("mps", "MTLBuffer pool created"),
    ("notebooks", "Your session is using 11 of 12.7 GB of available RAM."),
    ("nvidia_smi", "nvidia-smi shows nothing unusual"),
    ("progress", "set num_train_epochs to 3 epochs"),
    ("progress", "Loading checkpoint shards: 100%|██████████| 10/10 [00:02<00:00,  3.55it/s]"),
    ("ray", "raylet started on port 6379"),
    ("sglang", "retract nothing"),
    ("shm", "the kernel uses shared memory tiles of 48 KB"),
    ("slurm", "slurmstepd: launching tasks"),
    ("tensorflow", "no OOM when allocating small tensors"),
    ("tgi", "text_generation_launcher: Args { model_id: x }"),
    ("torch_cuda", "CUDA out of luck; nothing was allocated"),
    ("trtllm", "[TensorRT-LLM] TensorRT-LLM version: 0.9.0"),
    ("vllm", "KV cache is a buffer of keys and values"),
]


def _found(text: str):
    lines = list(read_lines(Source("x", text)))
    return list(scan(lines, Vocabulary(line.low for line in lines)))


@pytest.mark.parametrize(("family", "text", "name", "kind", "data"), MUST)
def test_recognised(family, text, name, kind, data):
    hits = [
        (parser.name, signal, reading.failures) for _, parser, reading in _found(text) for signal in reading.signals
    ]
    match = [(signal, failures) for parser, signal, failures in hits if parser == family and signal.name == name]
    assert match, hits
    signal, failures = match[0]
    assert {key: signal.data.get(key) for key in data} == data
    if kind is not None:
        kinds = [f.kind for _, _, reading in _found(text) for f in reading.failures]
        assert kind in kinds
        assert not failures or failures[0].kind == kind


@pytest.mark.parametrize(("family", "text"), MUST_NOT)
def test_not_recognised(family, text):
    assert [r for _, parser, r in _found(text) if parser.name == family and r.failures] == []


def test_every_family_has_examples_of_both_kinds():
    names = {parser.name for parser in PARSERS}
    assert {m[0] for m in MUST} == names
    assert {m[0] for m in MUST_NOT} == names


def test_registry_matches_the_folder():
    folder = Path(oomdoc.intake.logs.__file__).parent
    files = {p.stem for p in (*folder.glob("*.py"), *folder.glob("*.toml"))} - {"__init__", "base", "rules"}
    assert [p.name for p in PARSERS] == sorted(files)


def test_triggers_are_lower_case_literals():
    for parser in PARSERS:
        assert parser.triggers
        assert all(t == t.lower() for t in parser.triggers), parser.name
