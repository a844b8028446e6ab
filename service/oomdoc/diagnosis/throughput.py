"""How fast a job runs, well enough to compare two settings of it: seconds per optimizer step from stated formulas.

Compute counts 2 FLOP per parameter and token forward, twice that backward (weights and inputs; inputs only where
frozen), forward again where activations are recomputed (Kaplan et al. 2020; Korthikanti et al. 2022), plus causal
attention. The rest is traffic: weights through the GPU's own memory, gradients and parameters over the interconnect
(ZeRO: Rajbhandari et al. 2020, section 7: 2 volumes for stages 1-2, 3 for stage 3), states and parameters over the
host link when offloaded, host-memory-bound CPU Adam. Traffic overlaps with compute in part. Absolute times are
rough; ratios are what the planner uses.

Against 231 published runs on A100-80GB (``bench/plan_throughput.py``: full, LoRA, GPTQ and NF4, 1 to 4 GPUs, with and
without a fused loss) the ratio of two settings of one model is off by 4 % in the median; by 4 % too for models, and by
6 % for tables, that the constants were not chosen on (``bench/plan_throughput_held_out.py``).
"""

from __future__ import annotations

from typing import Final

from oomdoc.diagnosis.fixes._remedy import (
    data_parallel,
    global_batch,
    is_lora,
    is_preference,
    is_serving,
    sequence_groups,
    world_size,
)
from oomkb.dataclass import dataclass
from oomkb.frameworks import has
from oomkb.memory.device import Device
from oomkb.memory.job import Job
from oomkb.memory.offload import offloaded
from oomkb.memory.shape import ModelShape
from oomkb.memory.states import GGUF_BYTES

# Where the catalogue has no figure: an entry-level data-centre card.
_TFLOPS: Final = 60.0
_BANDWIDTH: Final = 600e9
_LINK: Final = {"nvlink": 200e9, "hccs": 150e9, "xgmi": 150e9, "pcie5": 40e9, "pcie4": 20e9, "pcie3": 10e9}
_NETWORK: Final = 12.5e9
"""Bytes/s a machine's share of the network gives one GPU: 100 Gbit/s."""
_HOST_LINK: Final = 12e9
_HOST_MEMORY: Final = 100e9
"""Bytes/s of the host's memory, which all ranks of a machine share when Adam runs there."""
_PLAIN_ADAM: Final = 5.0
"""How much longer PyTorch's own Adam takes on the host than DeepSpeed's (Ren et al. 2021, "ZeRO-Offload", table 4)."""
_ADAM_BYTES: Final = 28.0
"""Bytes a CPU Adam moves per parameter: master, two moments and gradient read, three written back, 16-bit copy."""
_DRIVE_READ: Final = 10e9
_DRIVE_WRITE: Final = 5e9
"""Bytes/s of a machine's NVMe drives, which its ranks share: an Azure NC96ads_A100_v4 (DeepSpeed, "DeepNVMe", 2024)."""
_SWAPPED_BYTES: Final = 16.0
"""Bytes per parameter that come from a drive and go back for each update: fp32 master, two moments and gradient
(DeepSpeed 0.19, ``swap_tensor/partitioned_optimizer_swapper.py``)."""
_PEAK_SHARE: Final = 0.55
"""Share of dense peak that well-fed matrix products reach."""
_HALF_FED_TOKENS: Final = 700.0
"""Tokens per micro-step and GPU at which half of that share is reached."""
_HIDDEN_SHARE: Final = 0.6
"""Share of traffic that overlaps with compute."""
_STATE_BYTES: Final = 12.0
_ADAPTERS: Final = 0.5
"""What adapters add to a step, as a share of the forward pass: many small products, dropout, casts. Full training was
measured at 0.86 to 0.95 of LoRA's speed (7B and 8B models, 4096 tokens: ``bench/plan_throughput.json``)."""
_UNPACKED_BYTES: Final = 4.5
"""Bytes per quantised weight and pass: read in 4 bits, written and read again in 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Seconds per optimizer step by what takes them, and what comes out."""

    compute_s: float
    memory_s: float
    network_s: float
    offload_s: float
    """Of the link to the host."""
    bubble_s: float
    samples: float
    tokens: float
    host_s: float = 0.0
    """Of the optimizer where it runs on the host: nothing overlaps with it."""

    @property
    def step_s(self) -> float:
        """Seconds per optimizer step."""
        busy = self.compute_s + self.memory_s
        traffic = self.network_s + self.offload_s
        hidden = min(_HIDDEN_SHARE * traffic, 0.9 * busy)
        return busy + traffic - hidden + self.bubble_s + self.host_s

    @property
    def samples_per_s(self) -> float:
        """Samples (requests when serving) per second, of the whole job."""
        return self.samples / max(self.step_s, 1e-9)


def relative_speed(before: Throughput, after: Throughput) -> float:
    """How fast ``after`` is where ``before`` is 1.0: by tokens, as a shorter sample is less work and no faster."""
    return (after.tokens / after.step_s) / (before.tokens / before.step_s) if before.tokens else 1.0


_PROJECTED: Final = 1.17
"""Time of a step with GaLore's projections over one without (Zhao et al. 2024, "GaLore", section 5.5)."""


def throughput(job: Job, shape: ModelShape, device: Device | None, host_bytes: float = 0.0) -> Throughput:
    """Seconds of one optimizer step (or one decoding step when serving) of a completed job.

    :param host_bytes: the host memory of one machine by the job's estimate; of a paged optimizer it is what a step
        fetches and gives back.
    """
    return (_serving if is_serving(job) else _training)(job, shape, device, host_bytes)


def _peak_flops(job: Job, device: Device | None) -> float:
    if device is None or not device.tflops:
        return _TFLOPS * 1e12
    compute = job.autocast if job.autocast not in (None, "none") else job.param_dtype
    if compute in ("bf16", "fp16", None, "auto", "fp8"):
        names: tuple[str, ...] = (compute or "bf16", "bf16", "fp16", "tf32", "fp32")
    else:
        names = ("tf32", "fp32")
    found = next((device.tflops[n] for n in names if device.tflops.get(n)), None)
    # A card without bf16 units runs bf16 at fp32's pace.
    if compute == "bf16" and not device.can("bf16"):
        found = device.tflops.get("fp32", found)
    return (found or _TFLOPS) * 1e12


def _link_bytes_per_s(job: Job, device: Device | None, group: int) -> float:
    """Of the slowest hop that a group of ranks crosses."""
    per_node = job.gpus or world_size(job) // (job.nodes or 1)
    if group > max(1, per_node):
        return _NETWORK
    if device is None:
        return _LINK["pcie4"]
    known = device.link_bytes_per_s or _LINK.get(device.link or "", _LINK["pcie4"])
    return min(known, 450e9)


def active_params(shape: ModelShape) -> float:
    """Parameters that compute one token: without the embedding, and of the routed experts those that it is sent to."""
    d = shape.dims
    if not d.experts:
        return float(shape.params - shape.embed_params) + d.vocab * d.hidden * (1 if d.tied else 0)
    return shape.active_params - shape.embed_params


def _training(job: Job, shape: ModelShape, device: Device | None, host_bytes: float) -> Throughput:
    d, micro, accum = shape.dims, job.micro_batch or 1, job.grad_accum or 1
    seq, world = job.seq_len or 2048, world_size(job)
    split = (job.tp or 1) * (job.pp or 1) * (job.cp or 1) * sequence_groups(job)
    sequences = micro * (2 if is_preference(job) and job.objective != "kto" else 1)
    tokens = float(sequences * seq)
    bandwidth = (device.bandwidth_bytes_per_s if device else None) or _BANDWIDTH
    active, params = active_params(shape), float(shape.params)
    forward = 2 * active * tokens + 2 * d.layers * d.q_width * tokens * seq
    backward = forward * (1.0 if is_lora(job) else 2.0) + (_ADAPTERS * forward if is_lora(job) else 0.0)
    reference = any(m.role == "reference" for m in job.extra_models or ()) or (is_lora(job) and job.objective == "dpo")
    again = {True: 1.0, "offload": 1.0, "selective": 0.08}.get(job.grad_ckpt or False, 0.0)
    flops = forward * (1 + again + (1 if reference else 0)) + backward
    fed = tokens / split / (tokens / split + _HALF_FED_TOKENS)
    compute = flops / split / (_peak_flops(job, device) * _PEAK_SHARE * fed) * accum
    compute *= _PROJECTED if (job.optimizer or "").startswith("galore") else 1.0
    weight_bytes = params * (4 if job.param_dtype == "fp32" else 2)
    memory = accum * (2 + again) * weight_bytes / split / bandwidth
    if job.quant not in (None, "none"):
        memory += accum * (2 + again) * _UNPACKED_BYTES * params / split / bandwidth
    if job.attention == "eager":
        scores = sequences * d.heads * float(seq) ** 2 * d.layers * 12
        memory += accum * (3 + again) * scores / split / bandwidth
    if not job.fused_ce:
        memory += accum * 16 * tokens * d.vocab / split / bandwidth
    else:
        compute *= 1.03
    bubble = compute * ((job.pp or 1) - 1) / accum if (job.pp or 1) > 1 else 0.0
    trainable = _trainable(job, shape)
    network = _network(job, shape, device, trainable, tokens, accum)
    memory += 2 * _STATE_BYTES * trainable / _shards(job) / split / bandwidth
    offload = _offload(job, shape, device, trainable, tokens, accum, host_bytes)
    samples = float(global_batch(job) or micro * accum * max(1, world // split))
    return Throughput(
        compute_s=compute,
        memory_s=memory,
        network_s=network,
        offload_s=offload,
        bubble_s=bubble,
        samples=samples,
        tokens=samples * seq,
        host_s=_host_adam(job, trainable) + _swapped(job, trainable),
    )


def _trainable(job: Job, shape: ModelShape) -> float:
    if not is_lora(job):
        return float(shape.params)
    targets = job.get("lora.targets") or "all-linear"
    return float(shape.lora_params(targets, int(job.get("lora.r") or 8)))


def _shards(job: Job) -> int:
    sharded = ("zero1", "zero2", "zero3", "fsdp", "fsdp2", "hsdp", "distributed-optimizer", "shard-grad-op")
    return data_parallel(job) if job.sharding in sharded else 1


def _network(job: Job, shape: ModelShape, device: Device | None, trainable: float, tokens: float, accum: int) -> float:
    ranks, model = data_parallel(job), (job.tp or 1) * (job.pp or 1)
    link = _link_bytes_per_s(job, device, ranks * model)
    seconds = 0.0
    if ranks > 1:
        share = (ranks - 1) / ranks / model
        grads = 2 * trainable * 2 * share
        if job.sharding in ("zero3", "fsdp", "fsdp2", "hsdp", "shard-grad-op"):
            if job.sharding == "hsdp":
                link = _link_bytes_per_s(job, device, 1)
            gathers = 1 if job.sharding == "shard-grad-op" else 2
            seconds += accum * (gathers * 2 * shape.params * share + grads / 2) / link
        else:
            seconds += (accum if job.sharding == "zero2" else 1) * grads / link
    group = (job.tp or 1) * (job.cp or 1) * sequence_groups(job)
    if group > 1:
        inside = _link_bytes_per_s(job, device, group)
        hops = 4 if (job.tp or 1) > 1 else 3
        seconds += 1.5 * accum * hops * shape.dims.layers * tokens * shape.dims.hidden * 2 / group / inside * 2
    return seconds


def _offload(
    job: Job, shape: ModelShape, device: Device | None, trainable: float, tokens: float, accum: int, host_bytes: float
) -> float:
    kinds = offloaded(job, job.sharding or "none")
    link = (device.host_link_bytes_per_s if device else None) or _HOST_LINK
    shards = _shards(job)
    seconds = 0.0
    if "optimizer" in kinds:
        moved = 2 * _STATE_BYTES if _is_moved_back(job) else 2 * 2
        seconds += moved * trainable / shards / link
    if "param" in kinds:
        moved = 2.0 * shape.params / shards
        seconds += accum * 2 * moved / link
        if job.nvme_offload:
            written = 2.0 * trainable / shards
            seconds += _ranks_here(job) * (2 * accum * moved / _DRIVE_READ + written / _DRIVE_WRITE)
    if "activations" in kinds or job.grad_ckpt == "offload":
        kept = tokens * shape.dims.hidden * 2 * shape.dims.layers
        if "activations" in kinds and job.grad_ckpt in (False, None):
            kept *= 12  # everything that backward needs, not the layers' inputs alone
        seconds += accum * 2 * kept / link
    if (job.optimizer or "").startswith("paged"):
        seconds += 2 * host_bytes / _ranks_here(job) / link  # the states without room on the card come and go each step
    return seconds


def _is_moved_back(job: Job) -> bool:
    """Whether offloaded states come back to the GPU for each update: verl 0.1-0.7, ``utils/fsdp_utils.py``,
    ``load_fsdp_optimizer``.
    """
    return (job.sharding or "").startswith(("fsdp", "hsdp")) and has(job.framework, "fsdp.offload_optimizer")


def _ranks_here(job: Job) -> int:
    """Ranks of one machine."""
    return max(1, min(job.gpus or world_size(job), world_size(job)))


def _swapped(job: Job, trainable: float) -> float:
    """Seconds in which states are read from drives before each update, and written after it."""
    if not job.nvme_offload or "optimizer" not in (job.offload or ()):
        return 0.0
    moved = _SWAPPED_BYTES * trainable / _shards(job) * _ranks_here(job)
    return moved / _DRIVE_READ + moved / _DRIVE_WRITE


def _host_adam(job: Job, trainable: float) -> float:
    if "optimizer" not in offloaded(job, job.sharding or "none") or _is_moved_back(job):
        return 0.0
    own = (job.sharding or "").startswith(("fsdp", "hsdp")) and job.optimizer_impl != "fused"
    plain = _PLAIN_ADAM if own else 1.0
    return plain * _ADAM_BYTES * trainable / _shards(job) * _ranks_here(job) / _HOST_MEMORY


_ROWS_READ: Final = 50e9
"""Bytes a second that a processor reads of weights in host memory: two channels of DDR4-3200 give 51.2 GB/s."""
_STORED_BYTES: Final = {"none": 2.0, "fp8": 1.0, "int8": 1.0, **GGUF_BYTES}


def _serving(job: Job, shape: ModelShape, device: Device | None, host_bytes: float) -> Throughput:
    """One decoding step of as many sequences as run at once: weights and KV cache read, products computed.

    What lies in host memory (layers of an engine that spills) is read there, once a step; of experts those that a token
    takes.
    """
    split = (job.tp or 1) * (job.pp or 1)
    bits = _STORED_BYTES.get(job.quant or "none", 0.6)
    spills = has(job.framework, "spills", serving=True)
    running = min(job.get("serving.max_num_seqs") or (1 if spills else 256), 64)
    length = min(job.get("serving.max_model_len") or job.seq_len or 4096, 4096)
    d = shape.dims
    kv_bytes = d.kv_elements_per_token * d.layers * (1 if job.get("serving.kv_dtype") in ("fp8", "int8") else 2)
    bandwidth = (device.bandwidth_bytes_per_s if device else None) or _BANDWIDTH
    routed = d.top_k / d.experts if d.experts else 1.0
    moved = host_bytes * (routed if job.get("serving.cpu_expert_layers") else 1.0)
    read = (active_params(shape) if spills else shape.params) * bits
    memory = (max(0.0, read - moved) + running * length * 0.5 * kv_bytes) / split / bandwidth
    compute = 2 * active_params(shape) * running / split / (_peak_flops(job, device) * 0.3)
    launch = 0.004 if job.get("serving.cuda_graphs") is False else 0.0
    link = _link_bytes_per_s(job, device, split)
    network = 2 * d.layers * (running * d.hidden * 2 / link + 10e-6) if split > 1 else 0.0
    return Throughput(
        compute_s=compute,
        memory_s=memory + launch,
        network_s=network,
        offload_s=0.0,
        bubble_s=0.0,
        host_s=moved / _ROWS_READ,
        samples=float(running),
        tokens=float(running),
    )
