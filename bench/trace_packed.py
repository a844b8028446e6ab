"""Steps over sequences packed without padding, with FlashAttention's kernel for varying lengths, without a GPU.

usage: python bench/trace_packed.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

The real transformers model takes all samples of a batch as one row, with positions that begin anew (as
``DataCollatorWithFlattening`` gives them); its attention is an operation that allocates and keeps what flash-attn 2.8
does (``flash_attn_interface.py``, ``FlashAttnVarlenFunc``: q, k, v, output, fp32 log-sum-exps) and computes nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from oomdoc.tracing import building, running
from trace_steps import measured, traced


class _Varlen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
        out = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
        ctx.save_for_backward(q, k, v, out, torch.empty(q.shape[:-1], dtype=torch.float32))
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return tuple(torch.empty(t.shape, dtype=t.dtype) for t in ctx.saved_tensors[:3])


def _attend(module: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any) -> Any:
    """(1, heads, tokens, width) in, (1, tokens, heads, width) out; grouped heads are not repeated."""
    wanted = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
    q, k, v = (t.transpose(1, 2).to(wanted) for t in (query, key, value))
    return _Varlen.apply(q, k, v), None  # type: ignore[no-untyped-call]


def _model(job: dict[str, Any]) -> Any:
    from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM

    interface: Any = AttentionInterface
    masks: Any = AttentionMaskInterface
    interface.register("varlen", _attend)
    masks.register("varlen", lambda *a, **k: None)
    make: Any = AutoModelForCausalLM.from_config
    with torch.device("meta"):
        model = make(
            building.build_config(job["model"]), attn_implementation="varlen", dtype=building.DTYPES[job["param_dtype"]]
        )
    model.config.use_cache = False
    if job.get("grad_ckpt"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if job.get("lora"):
        if job.get("grad_ckpt"):
            model.enable_input_require_grads()
        model = building.adapt(model, job)
    return model.train()


def trace(job: dict[str, Any]) -> dict[str, float]:
    """Peaks of the second step by phase, in GiB."""
    model = _model(job)
    tokens = job["micro_batch"] * job["seq_len"]

    def loss() -> Any:
        ids = torch.zeros((1, tokens), dtype=torch.long)
        with running.autocast(job):
            places = torch.arange(tokens).unsqueeze(0)
            return model(input_ids=ids, labels=ids.clone(), position_ids=places, use_cache=False).loss

    return measured(model, job, loss)


if __name__ == "__main__":
    sys.exit(traced(trace))
