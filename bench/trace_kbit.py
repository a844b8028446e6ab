"""QLoRA steps over bitsandbytes' own 4-bit function with PEFT's preparation, without a GPU and without weights.

usage: python bench/trace_kbit.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

``bitsandbytes`` 0.50.2, peft 0.21.2: every linear layer but the head becomes ``Linear4bit`` (nf4) over packed words
without values; with ``loop.kbit_prepared``, ``prepare_model_for_kbit_training`` upcasts norms, embedding and head to
fp32 and checkpoints where the job does. Within 1 % of the same steps with small real tensors (``kbit.jsonl``).
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from oomdoc.tracing import building, running
from oomdoc.tracing.meter import Meter, scalars
from trace_steps import counted, stepped, traced

_BLOCK = 64


def _linear(module: torch.nn.Linear, compute_dtype: torch.dtype) -> Any:
    """A ``Linear4bit`` whose words were never computed: only their number counts."""
    from bitsandbytes.functional import QuantState, get_4bit_type
    from bitsandbytes.nn import Linear4bit

    made: Any = Linear4bit(1, 1, bias=False, compute_dtype=compute_dtype, quant_type="nf4", device="meta")
    made.in_features, made.out_features, made.bias = module.in_features, module.out_features, module.bias
    size = module.weight.numel()
    weight: Any = torch.nn.Parameter(torch.empty((size // 2, 1), dtype=torch.uint8, device="meta"), requires_grad=False)
    weight.compress_statistics, weight.quant_type = False, "nf4"
    made.weight = weight
    made.quant_state = QuantState(
        absmax=torch.empty(size // _BLOCK, device="meta"), shape=module.weight.shape,
        code=get_4bit_type("nf4", device="cpu"), blocksize=_BLOCK, quant_type="nf4", dtype=compute_dtype,
    )  # fmt: skip
    return made


def _quantize(model: Any, compute_dtype: torch.dtype) -> None:
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if type(module) is torch.nn.Linear and name != "lm_head":
                setattr(parent, name, _linear(module, compute_dtype))
    model.is_loaded_in_4bit = True
    model.requires_grad_(False)


def _prepare(job: dict[str, Any]) -> Any:
    from peft import prepare_model_for_kbit_training

    model = building.build_model(job)
    _quantize(model, building.DTYPES[job.get("param_dtype")])
    if (job.get("loop") or {}).get("kbit_prepared"):
        model = prepare_model_for_kbit_training(
            model, bool(job["grad_ckpt"]), gradient_checkpointing_kwargs={"use_reentrant": False}
        )
    elif job["grad_ckpt"]:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    return building.adapt(model, job).train()


def trace(job: dict[str, Any]) -> dict[str, float]:
    """Peaks of the second step by phase, in GiB."""
    model = _prepare(job)
    with FakeTensorMode(allow_non_fake_inputs=True), scalars():
        building.materialise(model, "cpu")
        with Meter() as meter:
            row = counted(meter, (model,))
            for module in model.modules():  # the scales of the quantized weights are no buffers
                state = getattr(module, "quant_state", None)
                if state is not None:
                    state.absmax = torch.empty(state.absmax.shape)
                    module.weight.quant_state = state
                    meter.add(state.absmax)
            row["static_gib"] = meter.live
            return stepped(meter, row, model, job, partial(running.sft_loss, model, job, "cpu"))


if __name__ == "__main__":
    sys.exit(traced(trace))
