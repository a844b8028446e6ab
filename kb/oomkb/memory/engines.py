"""What inference engines hold beside weights and cache, and how they size the cache.

Formulas were derived from what engines do and checked against published start-up figures (``tests/kb/memory/data/
serving_starts.jsonl``); rules and defaults: vLLM ``v1/worker/gpu_worker.py`` and ``engine/arg_utils.py`` (0.8 to 0.33),
SGLang 0.5.23 ``arg_groups/memory_hook.py`` and ``model_executor/model_runner_components``.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.device import Device
from oomkb.memory.job import Job
from oomkb.memory.overhead import CONTEXT_MIB
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB, MIB

_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})")
_SETUP: Final = 0.055 * GIB
"""cuBLAS workspace, rotary tables and inputs of the profiling run: what is left of small models' peaks (0.04-0.06)."""
_GRAPH_SIZES: Final = 512
_RULES: Final = {
    "vllm": "total",
    "tgi": "total",
    "sglang": "static",
    "lmdeploy": "free",
    "tensorrt": "profiled",  # ``_torch/pyexecutor/_util.py``: (total - peak) x fraction
    "trtllm": "profiled",
    "llama.cpp": "exact",
    "ollama": "exact",
}
_LARGEST_IMAGE: Final = 16384
"""Tokens of the largest image that preprocessors of Qwen's models let through (``max_pixels``, ``longest_edge``)."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine's rule for the cache, and the release it is."""

    name: str
    rule: str
    """``total``: a share of the card less everything else; ``static``: a share of the free memory before loading, for
    weights and cache alone; ``free``: a share of what is free after loading; ``profiled``: a share of what loading and
    the largest batch leave; ``exact``: the cache of the stated context and no more."""
    version: tuple[int, int] = (999, 0)
    flashinfer: bool = False
    """Whether FlashInfer's kernels sample, which sort nothing (vLLM ``v1/sample/ops/topk_topp_sampler.py``): where the
    environment says so, and before 0.11 wherever it is installed."""

    @property
    def of_the_rest(self) -> bool:
        """Whether the engine's share is one of what is left after loading, for the cache alone."""
        return self.rule in ("free", "profiled")

    @property
    def window_share(self) -> float | None:
        """Share of all tokens that SGLang's pool has room for in windowed layers: all before 0.5, then
        ``swa_full_tokens_ratio`` (0.8); ``None`` where the window decides.
        """
        return None if self.name != "sglang" else 1.0 if self.version < (0, 5) else 0.8

    @property
    def first(self) -> bool:
        """VLLM's first engine (before 0.8): whole prompts at once, all buffers given back between layers."""
        return self.name == "vllm" and self.version < (0, 8)


def engine_of(job: Job, s: Setting, device: Device | None = None) -> Engine | None:
    """The engine that serves; ``None`` for a plain ``generate`` call.

    On cards before Ampere vLLM 0.8 and 0.9 fell back to the engine before (``_is_v1_supported_oracle``).
    """
    name = next((n for n in _RULES if n in s.framework), None)
    if name is None:
        return Engine("vllm", "total") if job.serving is not None else None
    version, installed = _version(job.versions.get(name)), bool({"flashinfer", "flashinfer-python"} & set(job.versions))
    if name == "vllm" and (0, 8) <= version < (0, 10) and device is not None and not device.can("bf16"):
        version = (0, 7)
    said = (job.env or {}).get("VLLM_USE_FLASHINFER_SAMPLER")
    return Engine(name, _RULES[name], version, said == "1" or (said is None and installed and version < (0, 11)))


def takes_of_the_rest(framework: str) -> bool:
    """Whether an engine's share is one of what is left after loading, not of the card."""
    return any(name in framework and Engine(name, rule).of_the_rest for name, rule in _RULES.items())


@lru_cache(maxsize=256)
def _version(text: str | None) -> tuple[int, int]:
    found = _VERSION.search(text or "")
    return (int(found[1]), int(found[2])) if found else (999, 0)


def profile_bytes(engine: Engine, s: Setting, shape: ModelShape, *, tokens: float, requests: float) -> float:
    """Peak beside the weights while the largest batch runs: one layer's buffers, or the sampler over all requests.

    vLLM samples ``max_num_seqs`` dummy requests over the whole vocabulary on every rank: sorting for top-p and top-k
    took 38 bytes an entry through 0.16, 14.5 since (logits in 16 and 32 bits, probabilities, noise). Workspaces of
    routed experts stay from 0.13 on; before, they went with the layer.
    """
    d, each = shape.dims, float(min(4, s.compute_bytes))
    if engine.rule == "exact":  # with flash attention: 258.5 MiB for Llama 3 8B at 512 tokens, of logits in fp32
        return tokens * (_up(d.vocab, 64) / s.tp + d.hidden) * 4.0
    hidden = tokens * d.hidden * each
    experts = _expert_bytes(s, shape, tokens, each)
    layer = 3 * hidden + tokens * each * max(_feed_width(shape) / s.tp, _attention_width(s, shape))
    transient = engine.name == "vllm" and engine.version < (0, 13)
    stays = 0.0 if transient else experts
    if transient:
        layer += experts
    if s.pp > 1:
        stays += 2 * hidden  # what a stage receives and sends
    images, largest = _images(engine, s, shape)
    if shape.vision is not None and not engine.first:
        stays += max(hidden, images) + 0.1 * GIB  # the encoder's outputs for a full budget, and its own small buffers
    if engine.rule == "total":
        entry = 8.5 if engine.flashinfer else 38.0 if engine.version < (0, 17) else 12.5 + each
        sampler = hidden + min(requests, tokens) * _up(d.vocab, 64) * entry
    else:
        sampler = hidden + min(requests, 256) * _up(d.vocab, 64) * 6.0
    return max(max(layer, sampler) + stays, largest) + _SETUP


def _images(engine: Engine, s: Setting, shape: ModelShape) -> tuple[float, float]:
    """Of vLLM's profile run (``profile_run``): the outputs of one largest image, and the peak while the tower makes
    them, in its feed-forward part. Images of a fixed size are small, and other engines run none.
    """
    v, each = shape.vision, 2.0
    if v is None or engine.name != "vllm" or engine.first or not v.kind.startswith("qwen"):
        return 0.0, 0.0
    patches = _LARGEST_IMAGE * v.merge**2
    pixels = 3 * v.patch**2 * v.temporal
    wide = (3 if v.gated else 2) * v.ffn / s.tp
    return _LARGEST_IMAGE * shape.dims.hidden * each, patches * (2 * v.hidden + wide + pixels) * each


def padding_bytes(engine: Engine, s: Setting, shape: ModelShape, device: Device | None) -> float:
    """What mxfp4 experts take more for sizes that their kernels round up (gpt-oss-20b loads 13.72 and 13.47 GiB).

    Before Hopper Marlin's: the width to 256, an expert's own to 128 (vLLM ``quantization/mxfp4.py``). On Hopper
    Triton's: packed inputs to 64 bytes, outputs to 256 (``triton_kernels`` ``layout_details/hopper_value.py``).
    """
    d = shape.dims
    known = (device.compute_capability if device is not None else None) or (10, 0)
    if engine.name != "vllm" or s.quant != "mxfp4" or not d.experts or known >= (10, 0):
        return 0.0
    own = _up(d.expert_ffn / s.tp, 128 if known < (9, 0) else 64)
    if known < (9, 0):
        padded = 3 * _up(d.hidden, 256) * own
    else:
        padded = _up(d.hidden, 128) * _up(2 * own, 256) + _up(own, 128) * _up(d.hidden, 256)
    more = padded * s.tp / (3 * d.hidden * d.expert_ffn) - 1
    return more * shape.expert_params / (s.ep * s.etp) / s.pp * (0.5 + 1 / 32)


def _up(size: float, unit: int) -> float:
    return math.ceil(size / unit) * unit


def _feed_width(shape: ModelShape) -> float:
    d = shape.dims
    if d.experts and all(layer.moe for layer in shape.layers):
        return 3.0 * d.shared_ffn
    return (3.0 if shape.family.gated and not d.plain_mlp else 2.0) * d.ffn


def _attention_width(s: Setting, shape: ModelShape) -> float:
    """Queries, keys, values and the output, per token on one GPU."""
    d = shape.dims
    if d.kv_lora_rank:
        return (2 * d.heads * d.qk_head_dim + 2 * d.heads * (d.v_head_dim or d.head_dim)) / s.attention_tp
    return (2 * d.q_width) / s.attention_tp + 2 * max(d.kv_width / s.attention_tp, d.head_dim)


def _expert_bytes(s: Setting, shape: ModelShape, tokens: float, each: float) -> float:
    """Two workspaces of every routed token: gate and up or the model's width, one half or the model's width."""
    d = shape.dims
    if not d.experts or s.quant == "mxfp4":
        return 0.0  # the kernels for mxfp4 route inside
    split = s.tp if s.ep == 1 else 1
    up, down = 2 * d.expert_ffn / split, d.expert_ffn / split
    routed = min(tokens, 32768.0) * d.top_k / (1 if s.ep == 1 else s.ep / s.tp if s.ep > s.tp else 1)
    return routed * each * (max(up, d.expert_io) + max(down, d.expert_io))


def outside_bytes(engine: Engine, s: Setting, device: Device | None) -> tuple[float, float]:
    """(what the engine measures outside of torch, the CUDA context it does not see).

    vLLM 0.19 on H100: 0.25 GiB on one GPU (0.13 before 0.18), 0.07 between pipeline stages, 2.1 under tensor
    parallelism over NVLink (all-reduce buffers of several libraries; 0.55 between two ranks of 0.11). Cards without
    NVLink reported 0.25 to 0.33.
    """
    generation = device.generation if device else ""
    context = CONTEXT_MIB.get(generation, 450.0) * MIB
    new = engine.version >= (0, 18) or engine.name != "vllm"
    if s.tp == 1:
        return (0.3 if s.pp > 1 and not new else 0.07 if s.pp > 1 else 0.25 if new else 0.13) * GIB, context
    linked = device is not None and (device.link or "").startswith("nvlink") and not engine.first
    symmetric = linked and generation in ("hopper", "blackwell")
    pair = s.tp == 2 and engine.name == "vllm" and engine.version < (0, 12)
    return (0.3 if not symmetric else 0.55 if pair else 2.1) * GIB, context


def graph_bytes(job: Job, s: Setting, shape: ModelShape, *, requests: float) -> float:
    """Captured CUDA graphs: 0.5 to 1.9 GiB, 1.0 in the mean over the models of vLLM 0.19 on H100 (Llama 3.1 8B 0.84);
    engines capture fewer sizes for fewer requests.
    """
    off = job.serving is not None and job.serving.cuda_graphs is False
    if off or "llama" in s.framework:  # llama.cpp and Ollama replay kernels of buffers that they have
        return 0.0
    largest = job.serving.graph_batch if job.serving is not None else None
    share = min(1.0, max(0.05 if largest else 0.2, min(requests, largest or requests) / _GRAPH_SIZES))
    return (0.3 + 0.017 * shape.layer_count / s.pp * share) * GIB


def static_share(capacity: float, tokens: float, *, tp: int = 1, pp: int = 1, graphs: bool = True) -> float:
    """SGLang's ``mem_fraction_static`` where nobody states one: the card less 512 MiB, 1.5 MiB for each token of a
    prefill chunk, 2 MiB for each request of the largest graph, and 128 MiB for each rank; at least 10 GiB of a card
    above 60 GiB (0.5.23).
    """
    size = capacity / MIB
    few = tp < 4
    requests = 8 if size < 20 * 1024 else (48 if few else 160) if size < 35 * 1024 else (32 if few else 160)
    if size >= 60 * 1024:
        requests = 256 if few else 512
    reserved = 512 + 1.5 * max(tokens, 2048) + tp * pp * 128 + (2 * requests if graphs else 0)
    if size > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    return round(max(0.1, (size - reserved) / size), 3)
