"""One training step: forward and loss of the objective, backward, the optimizer."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import Any

import torch

from oomdoc.tracing.building import DTYPES
from oomdoc.tracing.optimizing import make_optimizer

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
