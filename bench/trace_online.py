"""Peaks of a step of online reinforcement learning, with the loss functions of TRL's own trainers.

usage: python bench/trace_online.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

``pip install trl`` (1.13.0, 1.14.0): the loss of ``GRPOTrainer`` or, where the job's extra says ``trainer: rloo``, of
``RLOOTrainer``, called on a stand-in that has the attributes it reads, over the model as accelerate wraps it. Prompts
and completions are as long as the job says, all rows whole. Rollouts and their scoring are not part of the step.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from oomdoc.tracing import building, running
from oomdoc.tracing.meter import Meter, scalars
from trace_preference import _Accelerator, wrapped
from trace_steps import counted, stepped, traced


class _OneProcess(_Accelerator):
    """As the preference trainers ask of accelerate, and sums over one process."""

    num_processes = 1
    sync_gradients = is_main_process = True

    def reduce(self, tensor: Any, reduction: str = "sum") -> Any:
        """Of one process."""
        return tensor


class _Kernel(torch.autograd.Function):
    """What TRL's Triton kernel allocates (``trl/kernels/logprob_entropy.py``, 1.14), the one that runs on a GPU."""

    @staticmethod
    def forward(ctx: Any, logits: Any, index: Any) -> Any:
        kept = [torch.empty(logits.shape[:-1], dtype=torch.float32) for _ in range(4)]
        ctx.save_for_backward(logits, index, *kept[2:])
        return kept[0], kept[1]

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return torch.empty_like(ctx.saved_tensors[0], memory_format=torch.contiguous_format), None


def _as_on_a_gpu() -> None:
    from trl.trainer import utils

    if hasattr(utils, "_supports_trl_loss_kernel"):
        utils._supports_trl_loss_kernel = lambda *_, **__: True
        utils._fused_logprob_entropy = lambda logits, index, **_: _Kernel.apply(logits, index)


def _trainer(model: Any, job: dict[str, Any]) -> Any:
    from trl import GRPOTrainer, RLOOTrainer

    kind: Any = RLOOTrainer if job.get("trainer") == "rloo" else GRPOTrainer
    trainer = object.__new__(kind)
    off = ("use_liger_kernel", "aux_loss_enabled", "use_vllm", "_entropy_bonus_enabled", "is_fsdp_enabled")
    trainer.__dict__.update(
        {
            **dict.fromkeys(off, False),
            **{"model": model, "accelerator": _OneProcess(job), "beta": job.get("beta", 0.0), "temperature": 1.0},
            **{"epsilon_low": 0.2, "epsilon_high": 0.2, "top_entropy_quantile": 1.0, "loss_type": "dapo"},
            **{"importance_sampling_level": "token", "off_policy_mask_threshold": None, "use_adaptive_entropy": False},
            **{"model_kwarg_keys": {"logits_to_keep"}, "current_gradient_accumulation_steps": 1, "_is_vlm": False},
            **{"_metrics": defaultdict(lambda: defaultdict(list)), "max_completion_length": job["completion_len"]},
            **{"args": SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1)},
        }
    )
    return trainer


def _inputs(job: dict[str, Any]) -> dict[str, Any]:
    rows, tokens = job["micro_batch"], job["completion_len"]
    prompt, completion = (running.token_ids(rows, n, "cpu") for n in (job["prompt_len"], tokens))
    logps = torch.zeros((rows, tokens))
    return {
        **{"prompt_ids": prompt, "prompt_mask": torch.ones_like(prompt), "completion_ids": completion},
        **{"completion_mask": torch.ones_like(completion), "advantages": torch.ones(rows)},
        **{"num_items_in_batch": torch.tensor(float(rows * tokens)), "ref_per_token_logps": logps},
        **{"old_logps": torch.zeros(rows)},
    }


def _loss(trainer: Any, model: Any, job: dict[str, Any]) -> Any:
    inputs = _inputs(job)
    return trainer._compute_loss(model, inputs), inputs


def trace(job: dict[str, Any]) -> dict[str, float]:
    """Peaks of the phases of the second step, in GiB."""
    model = building.prepare(job)
    _as_on_a_gpu()
    with FakeTensorMode(allow_non_fake_inputs=True), scalars():
        building.materialise(model, "cpu")
        wrapped(model, job)
        trainer = _trainer(model, job)
        with Meter() as meter:
            return stepped(meter, counted(meter, (model,)), model, job, partial(_loss, trainer, model, job))


if __name__ == "__main__":
    sys.exit(traced(trace))
