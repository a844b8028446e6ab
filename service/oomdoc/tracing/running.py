"""The exact peaks of tensor bytes of a real training step, without a GPU and without weights.

A real ``transformers`` model (with ``peft`` adapters where the job has them) takes real steps under PyTorch's
FakeTensorMode: nothing is computed, every tensor has its true size, dtype and lifetime. Two steps are run; the peak is
over the second, with the optimizer's states in place. Sizes are GiB.

The kernels are the CPU's: they save what CUDA's save, but for dropout (a mask of the input's dtype, not of one byte)
and layer norms under autocast (in the input's dtype, not in fp32).
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from oomdoc.tracing.building import DTYPES, build_model, materialise, prepare
from oomdoc.tracing.meter import Meter, scalars
from oomkb.errors import InputError, JobError
from oomkb.units import GIB

__all__ = ["autocast", "dpo_loss", "evaluation", "make_optimizer", "one_step", "sft_loss"]


def autocast(job: dict[str, Any]) -> Any:
    """The job's mixed precision, as a context."""
    kind = job.get("autocast") or "none"
    return nullcontext() if kind == "none" else torch.autocast("cpu", dtype=DTYPES[kind])


def token_ids(rows: int, length: int, device: str) -> Any:
    return torch.zeros((rows, length), dtype=torch.long, device=device)


def sft_loss(model: Any, job: Any, device: Any) -> Any:
    """Next-token cross-entropy, as the model itself computes it."""
    ids = token_ids(job["micro_batch"], job["seq_len"], device)
    labels = ids.clone()
    with autocast(job):
        return model(input_ids=ids, labels=labels, use_cache=False).loss


def dpo_loss(model: Any, job: Any, device: Any, reference: Any = None) -> Any:
    """The sigmoid DPO loss over chosen and rejected rows; without a reference, the adapters are switched off for it."""
    rows, length = 2 * job["micro_batch"], job["seq_len"]
    ids = token_ids(rows, length, device)
    labels = ids.clone()

    def logps(network: Any) -> Any:
        logits = network(input_ids=ids, labels=labels, use_cache=False).logits.to(torch.float32)
        shifted, target = logits[:, :-1, :], labels[:, 1:].clone()
        mask = target != -100
        picked = torch.gather(shifted.log_softmax(-1), dim=2, index=target.unsqueeze(2)).squeeze(2)
        return (picked * mask).sum(-1), logits

    with autocast(job):
        policy, policy_logits = logps(model)
        with torch.no_grad(), nullcontext() if reference is not None else model.disable_adapter():
            ref, _ = logps(model if reference is None else reference)
    del policy_logits
    half = job["micro_batch"]
    margin = (policy[:half] - policy[half:]) - (ref[:half] - ref[half:])
    return -torch.nn.functional.logsigmoid(0.1 * margin).mean()


def evaluation(model: Any, job: Any, device: Any, meter: Any) -> int:
    """One batch of an evaluation as the Trainer runs it, without gradients; its peak in bytes."""
    model.eval()
    meter.reset()
    with torch.no_grad():
        loss = sft_loss(model, {**job, "micro_batch": job["eval_micro_batch"]}, device)
    del loss
    return int(meter.peak)


def one_step(model: Any, job: Any, device: Any, optimizer: Any, meter: Any, reference: Any) -> Any:
    """Play one step; the meter's peaks and what stays alive between them, in bytes."""
    row = {}
    meter.reset()
    loss = dpo_loss(model, job, device, reference) if job.get("objective") == "dpo" else sft_loss(model, job, device)
    row["after_forward"], row["peak_forward"] = meter.live, meter.peak
    meter.reset()
    loss.backward()
    del loss
    row["peak_backward"], row["after_backward"] = meter.peak, meter.live
    meter.reset()
    optimizer.step()
    row["peak_step"] = meter.peak
    optimizer.zero_grad(set_to_none=True)
    gc.collect()
    row["after_step"] = meter.live
    return row


LEARNING_RATE: Final = 1e-5


def make_optimizer(params: Any, job: dict[str, Any]) -> Any:
    """The job's optimizer over ``params``.

    :raises JobError: for one that runs on GPUs only.
    :raises InputError: where the package it lives in is not installed.
    """
    name = job.get("optimizer") or "adamw"
    make = MAKERS.get(name)
    if make is None:
        raise JobError(
            f"{name!r} cannot be traced without a GPU", where="optimizer", hint=f"one of {', '.join(MAKERS)}"
        )
    try:
        return make(list(params), job)
    except ImportError as error:
        raise InputError(
            f"{error.name} is not installed", where="optimizer", hint=f"pip install {error.name}"
        ) from error


def flags(job: dict[str, Any]) -> dict[str, Any]:
    """How the job has its optimizer work."""
    impl = job.get("optimizer_impl") or "foreach"
    return {"foreach": impl == "foreach", "fused": impl == "fused"}


def foreach(job: dict[str, Any]) -> bool:
    """Whether it takes all parameters together."""
    return (job.get("optimizer_impl") or "foreach") == "foreach"


def _adafactor(params: list[Any], job: dict[str, Any]) -> Any:
    from transformers.optimization import Adafactor

    make: Any = Adafactor  # as the Trainer makes it
    return make(params, lr=LEARNING_RATE, relative_step=False, scale_parameter=False)


MAKERS: Final[dict[str, Callable[[list[Any], dict[str, Any]], Any]]] = {
    "adamw": lambda p, job: torch.optim.AdamW(p, lr=LEARNING_RATE, **flags(job)),
    "sgd": lambda p, job: torch.optim.SGD(p, lr=LEARNING_RATE, **flags(job)),
    "sgd_momentum": lambda p, job: torch.optim.SGD(p, lr=LEARNING_RATE, momentum=0.9, **flags(job)),
    "adagrad": lambda p, job: torch.optim.Adagrad(p, lr=LEARNING_RATE, foreach=foreach(job)),
    "rmsprop": lambda p, job: torch.optim.RMSprop(p, lr=LEARNING_RATE, foreach=foreach(job)),
    "adafactor": _adafactor,
}
"""By the name that :func:`make_optimizer` takes."""


def start(world: int, device: str) -> Any:
    """A process group of ``world`` ranks that talks to nobody, and its device mesh."""
    from torch.distributed.device_mesh import init_device_mesh

    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    return init_device_mesh(device, (world,))


def shard(model: Any, job: dict[str, Any], mesh: Any) -> Any:
    """Shard every decoder layer, then the root; by FSDP2's own rule the root stays gathered until backward."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    wanted = job.get("fsdp") or {}
    policy = MixedPrecisionPolicy(
        param_dtype=DTYPES[wanted.get("param_dtype", "bf16")], reduce_dtype=DTYPES[wanted.get("reduce_dtype", "fp32")]
    )
    keep = job.get("reshard_after_forward") is not False
    for layer in _layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=keep)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def shard_flat(model: Any, job: dict[str, Any]) -> Any:
    """FSDP1 around every decoder layer and the whole, with flat parameters, as accelerate wraps a transformer."""
    from functools import partial

    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    wanted = job.get("fsdp") or {}
    kept = DTYPES[wanted.get("param_dtype", "bf16")]
    strategy = ShardingStrategy.FULL_SHARD
    if job["sharding"] == "shard-grad-op" or job.get("reshard_after_forward") is False:
        strategy = ShardingStrategy.SHARD_GRAD_OP
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={type(_layers(model)[0])}),
        sharding_strategy=strategy,
        mixed_precision=MixedPrecision(param_dtype=kept, reduce_dtype=DTYPES[wanted.get("reduce_dtype", "bf16")]),
        use_orig_params=bool(wanted.get("use_orig_params", True)),
        limit_all_gathers=True,
        device_id=torch.device("cpu"),
    )


def _layers(model: Any) -> Any:
    """The decoder layers, whatever the family calls the list that holds them."""
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    inner = getattr(model, model.base_model_prefix, model)
    found = [child for child in inner.children() if isinstance(child, torch.nn.ModuleList)]
    return max(found, key=len) if found else []


def trace(job: dict[str, Any], *, device: str = "cpu", events: bool = False) -> dict[str, Any]:
    """Trace a plain job document (its ``model`` is a Hugging Face config); sizes in GiB by name.

    :param events: also every allocation and release of the second step, as ``(what, bytes, live bytes)``.
    :raises JobError: for an optimizer that cannot be played without a GPU.
    """
    # Read by transformers when it is first imported, below: nothing is downloaded and nothing is chatted.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        model, reference = prepare(job), None
        if job.get("objective") == "dpo" and not job.get("lora"):
            reference = build_model(job).eval().requires_grad_(False)
        if job.get("sharding") in ("fsdp2", "fsdp", "shard-grad-op"):
            mesh = start(job["world"], device)
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        for network in filter(None, (model, reference)):
            materialise(network, device)
        if job.get("sharding") == "fsdp2":
            model = shard(model, job, mesh)
        elif job.get("sharding") in ("fsdp", "shard-grad-op"):
            model = shard_flat(model, job)
        meter = stack.enter_context(Meter(events=events))
        for network in filter(None, (model, reference)):
            for tensor in (*network.parameters(), *network.buffers()):
                meter.add(tensor)
        static = meter.live
        stack.enter_context(scalars())
        optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad], job)
        row: dict[str, Any] = {}
        for _ in range(2):
            if meter.events is not None:
                meter.events.clear()
            row = one_step(model, job, device, optimizer, meter, reference)
        if job.get("eval_micro_batch"):
            row["peak_eval"] = evaluation(model, job, device, meter)
        peak = max(row["peak_forward"], row["peak_backward"], row["peak_step"])
        sizes = {"allocated_gib": peak, "static_gib": static, **row}
        measured: dict[str, Any] = {k: round(v / GIB, 4) for k, v in sizes.items()}
        measured["params"] = sum(p.numel() for p in model.parameters())
        measured["trainable"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if events:
        measured["events"] = meter.events
    return measured
