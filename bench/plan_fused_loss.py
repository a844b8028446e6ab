"""A linear layer and its cross-entropy in one, chunk by chunk, for traces: what Liger's fused loss allocates.

The kernels of Liger (0.6, ``ops/fused_linear_cross_entropy.py``) run on GPUs only; here plain PyTorch makes the same
tensors in the same order: a chunk of logits at a time, turned into its gradient at once, so that backward has nothing
left to do but scale.
"""

from __future__ import annotations

import math
from typing import Any

import torch

__all__ = ["fused_sft_loss"]


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows, width = hidden.shape[0], weight.shape[0]
        wanted = max(1, math.ceil(rows / max(1, math.ceil(width / hidden.shape[1]))))
        chunk = 2 ** math.ceil(math.log2(wanted))
        for_hidden = torch.zeros_like(hidden)
        for_weight = torch.zeros_like(weight) if weight.requires_grad else None
        losses = torch.zeros(rows, dtype=torch.float32, device=hidden.device)
        for start in range(0, rows, chunk):
            part = hidden[start : start + chunk]
            logits = part @ weight.t().to(part.dtype)
            gradient = logits.float().softmax(-1).to(part.dtype)  # the kernel overwrites logits with their gradient
            del logits
            losses[start : start + chunk] = 0.0
            for_hidden[start : start + chunk] = gradient @ weight.to(part.dtype)
            if for_weight is not None:
                for_weight += torch.mm(gradient.t(), part).float()
            del gradient
        ctx.save_for_backward(for_hidden, for_weight)
        return losses.sum() / rows

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        for_hidden, for_weight = ctx.saved_tensors
        return for_hidden, for_weight, None


def fused_sft_loss(model: Any, job: dict[str, Any], device: str) -> Any:
    """Next-token cross-entropy without whole logits, in place of :func:`oomdoc.tracing.running.sft_loss`."""
    from oomdoc.tracing.running import autocast, token_ids

    ids = token_ids(job["micro_batch"], job["seq_len"], device)
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    with autocast(job):
        hidden = inner.model(input_ids=ids, use_cache=False).last_hidden_state
        shifted = hidden[:, :-1].reshape(-1, hidden.shape[-1])
        if job.get("autocast") not in (None, "none"):
            shifted = shifted.to({"bf16": torch.bfloat16, "fp16": torch.float16}[job["autocast"]])
        loss: torch.Tensor = _FusedLoss.apply(shifted, inner.lm_head.weight, ids[:, 1:].reshape(-1))  # type: ignore[no-untyped-call]
    return loss
