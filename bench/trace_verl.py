"""Steps of verl's actor on packed sequences, without a GPU.

usage: python bench/trace_verl.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

``pip install verl``: ``utils/torch_functional.py`` (0.9.1) computes entropy and log-probabilities in the order of
``workers/engine/fsdp/transformer_impl.py`` (``FSDPEngineWithLMHead.prepare_model_outputs``), all of it under autocast,
with padding removed; flash-attn's cross-entropy is an operation that allocates what its kernel does. The job's keys
beside the usual: ``temperature``, ``calculate_entropy``, ``entropy_checkpointing``,
``entropy_from_logits_with_chunking`` and ``entropy_from_logits_chunk_size``.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from oomdoc.tracing import running
from trace_packed import _model
from trace_steps import measured, traced


class _Kernel(torch.autograd.Function):
    """flash-attn 2.8 ``ops/triton/cross_entropy.py``: losses and log-sum-exps in fp32, gradients over the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Any, inplace: bool) -> Any:
        kept = [torch.empty(logits.shape[:-1], dtype=torch.float32) for _ in range(3)]
        ctx.save_for_backward(logits, kept[2])
        ctx.inplace = inplace
        return kept[0]

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        logits = ctx.saved_tensors[0]
        return (logits if ctx.inplace else torch.empty_like(logits)), None


def _loss(model: Any, job: dict[str, Any]) -> Any:
    from verl.utils import torch_functional as verl

    tokens = job["micro_batch"] * job["seq_len"]
    ids = torch.zeros((1, tokens), dtype=torch.long)
    with running.autocast(job):
        output = model(input_ids=ids, position_ids=torch.arange(tokens).unsqueeze(0), use_cache=False)
        logits = output.logits.squeeze(0)
        if job.get("temperature", 1.0) != 1.0:
            logits = logits / torch.full((tokens, 1), 0.7).to(logits.dtype)
        entropy: Any = None
        if job.get("calculate_entropy"):
            each = verl.entropy_from_logits
            if job.get("entropy_from_logits_with_chunking"):
                size = job.get("entropy_from_logits_chunk_size", 2048)
                each = partial(verl.entropy_from_logits_with_chunking, chunk_size=size)
            once = job.get("entropy_checkpointing")
            entropy = checkpoint(verl.entropy_from_logits, logits, use_reentrant=True) if once else each(logits)
        chosen = -_Kernel.apply(logits, entropy is None)  # type: ignore[no-untyped-call]
        ratio = torch.exp(chosen - chosen.detach())
        loss = torch.max(-ratio, -torch.clamp(ratio, 0.8, 1.2)).mean()
        return loss if entropy is None else loss - 0.001 * entropy.mean()


def trace(job: dict[str, Any]) -> dict[str, float]:
    """Peaks of the second step by phase, in GiB."""
    model = _model(job)
    return measured(model, job, lambda: _loss(model, job))


if __name__ == "__main__":
    sys.exit(traced(trace))
