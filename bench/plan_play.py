"""Steps that ``oomdoc.tracing`` does not play by itself, for checking plans: what libraries for GPUs allocate.

Each class makes the tensors that the named library makes, in the same order and with the same lifetimes, and computes
nothing: a 4-bit base (bitsandbytes 0.50, ``autograd/_functions.py`` and ``nn/modules.py``), its 8-bit and paged
optimizers (``optim/optimizer.py``, with the embeddings that transformers' Trainer keeps in 32 bits), GaLore 1.0
(``galore_torch/adamw.py``), activations moved to the host (TRL 1.9 ``models/activation_offloading.py``: the last five
stay), the log-probabilities of GRPO (TRL 1.9 ``trainer/utils.py``) and DPO with the reference's computed beforehand.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from oomdoc.tracing import building, running
from oomdoc.tracing.meter import Meter
from oomkb.units import GIB
from plan_fused_loss import fused_sft_loss

__all__ = ["play"]

_BLOCK: Final = 64
_STATE_BLOCK: Final = 256
_SMALL: Final = 4096
"""Elements below which bitsandbytes keeps 32-bit states."""
_KEPT: Final = 5
_LEAST_BYTES: Final = 1024


class _Product4bit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        ctx.shape = shape
        return x @ torch.empty(shape, dtype=x.dtype, device=x.device).t()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (grad,) = gradients
        return grad @ torch.empty(ctx.shape, dtype=grad.dtype, device=grad.device), None, None


class _Linear4bit(torch.nn.Linear):
    """A frozen linear layer of half a byte an element, and its scales: doubly quantized ones in a byte a block."""

    def __init__(self, old: torch.nn.Linear, double: bool, compute: torch.dtype) -> None:
        torch.nn.Module.__init__(self)
        self.in_features, self.out_features, self.compute = old.in_features, old.out_features, compute
        count = old.in_features * old.out_features
        blocks = -(-count // _BLOCK)
        self.weight = torch.nn.Parameter(torch.empty(-(-count // 2), 1, dtype=torch.uint8, device="meta"), False)
        scales = torch.empty(blocks, dtype=torch.uint8 if double else torch.float32, device="meta")
        self.register_buffer("absmax", scales)
        if double:
            self.register_buffer("absmax2", torch.empty(-(-blocks // 256), device="meta"))
        self.bias = old.bias

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The product in the compute dtype, handed on in the input's."""
        shape = (self.out_features, self.in_features)
        out: torch.Tensor = _Product4bit.apply(input.to(self.compute), self.weight, shape)  # type: ignore[no-untyped-call]
        if self.bias is not None:
            out = out + self.bias.to(self.compute)
        return out.to(input.dtype)


def _quantised(model: Any, job: dict[str, Any]) -> Any:
    compute = building.DTYPES[job["autocast"] if job.get("autocast") not in (None, "none") else job.get("param_dtype")]
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is torch.nn.Linear and name != "lm_head":
                setattr(module, name, _Linear4bit(child, job["quant"] == "nf4-double", compute))
    return model


class _Stateful(torch.optim.Optimizer):
    """An optimizer whose step is one kernel per parameter: nothing but its states is ever allocated."""

    def __init__(self, params: Any, states: Callable[[torch.Tensor], list[torch.Tensor]]) -> None:
        super().__init__(params, {})
        self.states = states

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make the states at the first step."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and p not in self.state:
                    self.state[p]["all"] = self.states(p)


def _blockwise(embeddings: set[int]) -> Callable[[torch.Tensor], list[torch.Tensor]]:
    def states(p: torch.Tensor) -> list[torch.Tensor]:
        if p.numel() < _SMALL or id(p) in embeddings:
            return [torch.zeros_like(p, dtype=torch.float32) for _ in range(2)]
        blocks = -(-p.numel() // _STATE_BLOCK)
        whole = [torch.zeros_like(p, dtype=torch.uint8) for _ in range(2)]
        return whole + [torch.zeros(blocks, device=p.device) for _ in range(2)]

    return states


class _Galore(torch.optim.Optimizer):
    """GaLore's AdamW: the matrices of attention and MLP in a projection, the rest as AdamW without foreach."""

    def __init__(self, params: Any, low: set[int], rank: int) -> None:
        super().__init__(params, {})
        self.low, self.rank = low, rank

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One parameter after the other."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._one(p, p.grad, self.state[p])

    @torch.no_grad()
    def _one(self, p: torch.Tensor, grad: torch.Tensor, state: dict[str, Any]) -> None:
        low = id(p) in self.low
        if low:
            wide = p.shape[0] < p.shape[1]
            if "basis" not in state:
                shape = (p.shape[0], self.rank) if wide else (self.rank, p.shape[1])
                state["basis"] = torch.empty(shape, dtype=grad.dtype, device=p.device)
            grad = state["basis"].t() @ grad if wide else grad @ state["basis"].t()
        if "m" not in state:
            state["m"], state["v"] = torch.zeros_like(grad), torch.zeros_like(grad)
        state["m"].mul_(0.9).add_(grad, alpha=0.1)
        state["v"].mul_(0.999).addcmul_(grad, grad, value=0.001)
        denominator = state["v"].sqrt().add_(1e-8)
        normed = state["m"] / denominator
        if low:
            normed = state["basis"] @ normed if wide else normed @ state["basis"]
            normed = normed * 0.25
        p.add_(normed, alpha=-1e-5)


def _optimizer(model: Any, job: dict[str, Any]) -> Any:
    params = [p for p in model.parameters() if p.requires_grad]
    name = job.get("optimizer") or "adamw"
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    if name == "adamw_8bit":
        return _Stateful(params, _blockwise(embeddings))
    if name in ("paged_adamw", "paged_adamw_8bit"):  # states in unified memory: none of the allocator's
        return _Stateful(params, lambda p: [])
    if name == "galore_adamw":
        inner = [p for n, p in model.named_parameters() if p.ndim == 2 and (".self_attn." in n or ".mlp." in n)]
        return _Galore(params, {id(p) for p in inner}, int(job.get("galore_rank") or 128))
    return running.make_optimizer(params, job)


@contextmanager
def _to_host() -> Iterator[None]:
    """Saved tensors leave the device but for the last few, and come back as new ones."""
    stash: list[Any] = []

    def pack(tensor: Any) -> Any:
        if isinstance(tensor, torch.nn.Parameter) or tensor.numel() * tensor.element_size() < _LEAST_BYTES:
            return tensor
        base = tensor._base
        if isinstance(base, torch.nn.Parameter):
            return tensor
        stash.append(tensor)
        del stash[:-_KEPT]
        return (tuple(tensor.shape), tensor.dtype, tensor.device)

    def unpack(kept: Any) -> Any:
        stash.clear()
        return torch.empty(kept[0], dtype=kept[1], device=kept[2]) if isinstance(kept, tuple) else kept

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


def _grpo_loss(model: Any, job: dict[str, Any], device: str) -> Any:
    """The policy's log-probabilities of the completion, row by row, and the clipped objective on top."""
    prompt, completion = job.get("prompt_len") or 512, job.get("completion_len") or 512
    ids = running.token_ids(job["micro_batch"], prompt + completion, device)
    with running.autocast(job):
        logits = model(input_ids=ids, logits_to_keep=completion + 1, use_cache=False).logits
        if job.get("autocast") not in (None, "none"):
            logits = logits.float()  # accelerate gives the forward pass's outputs in fp32
        logits = logits[:, :-1, :]
        logits.div_(1.0)
        index = ids[:, -completion:].unsqueeze(-1)
        if logits.dtype == torch.float32:
            sums = torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
            logps = torch.gather(logits, -1, index).squeeze(-1) - sums
        else:
            rows = [row.log_softmax(-1).gather(-1, i) for row, i in zip(logits, index, strict=True)]
            logps = torch.stack(rows).squeeze(-1)
    ratio = torch.exp(logps - logps.detach())
    return -(ratio * 1.0).sum() / logps.numel()


def _precomputed_dpo_loss(model: Any, job: dict[str, Any], device: str) -> Any:
    return running.dpo_loss(model, job, device, reference=_Given())


class _Given:
    """A reference whose log-probabilities are already there: it needs no pass."""

    def __call__(self, *_: Any, **kwargs: Any) -> Any:
        ids = kwargs["input_ids"]
        return type("Out", (), {"logits": torch.zeros((*ids.shape, 1), device=ids.device)})()


def _loss(model: Any, job: dict[str, Any], device: str, reference: Any) -> Any:
    if job["objective"] == "grpo":
        return _grpo_loss(model, job, device)
    if job["objective"] == "dpo":
        if reference is None and job.get("method") == "full":
            return _precomputed_dpo_loss(model, job, device)
        return running.dpo_loss(model, job, device, reference)
    return fused_sft_loss(model, job, device) if job.get("fused_ce") else running.sft_loss(model, job, device)


def _step(model: Any, job: dict[str, Any], device: str, optimizer: Any, meter: Any, reference: Any) -> int:
    meter.reset()
    moved = "activations" in (job.get("offload") or ()) or job.get("grad_ckpt") == "offload"
    with ExitStack() as stack:
        if moved:
            stack.enter_context(_to_host())
        loss = _loss(model, job, device, reference)
    loss.backward()
    del loss
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return int(meter.peak)


def play(job: dict[str, Any], *, device: str = "cpu") -> float:
    """The peak of tensor bytes of a job's second step, in GiB. ``job`` is a plain document with its model's config."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        model, reference = _prepared(job), None
        if any(m.get("role") == "reference" for m in job.get("extra_models") or ()):
            reference = building.build_model(job).eval().requires_grad_(False)
        mesh = running.start(job["world"], device) if job.get("sharding") == "fsdp2" else None
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        networks = [n for n in (model, reference) if n is not None]
        for network in networks:
            building.materialise(network, device)
        if mesh is not None:
            model = networks[0] = running.shard(model, job, mesh)
        meter = stack.enter_context(Meter())
        for network in networks:
            for tensor in (*network.parameters(), *network.buffers()):
                meter.add(tensor)
        optimizer = _optimizer(model, job)
        peak = 0
        for _ in range(2):
            peak = _step(model, job, device, optimizer, meter, reference)
    return peak / GIB if math.isfinite(peak) else 0.0


def _prepared(job: dict[str, Any]) -> Any:
    if job.get("quant") in (None, "none"):
        return building.prepare({**job, "grad_ckpt": bool(job.get("grad_ckpt"))})
    model = _quantised(building.build_model(job), job)
    if job.get("grad_ckpt"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    model = building.adapt(model, job)
    model.train()
    return model
