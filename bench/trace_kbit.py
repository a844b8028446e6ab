"""QLoRA steps over bitsandbytes' own 4-bit modules with PEFT's preparation, on the CPU with small real tensors.

usage: python bench/trace_kbit.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

``bitsandbytes`` 0.50.2, peft 0.21.2: every linear layer but the head becomes ``Linear4bit`` (nf4); with
``loop.kbit_prepared``, ``prepare_model_for_kbit_training`` upcasts norms, embedding and head to fp32 and checkpoints
where the job does. Every storage that operations make is counted.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch

from oomdoc.tracing import building, stepping
from oomdoc.tracing.meter import Meter
from trace_steps import counted, stepped, traced


def _quantize(model: Any) -> None:
    from bitsandbytes.nn import Linear4bit

    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if type(module) is not torch.nn.Linear or name == "lm_head":
                continue
            made = Linear4bit(
                module.in_features, module.out_features, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4",
                compress_statistics=False,
            )  # fmt: skip
            setattr(parent, name, made.to("cpu"))
    model.is_loaded_in_4bit = True
    model.requires_grad_(False)


def trace(job: dict[str, Any]) -> dict[str, float]:
    """Peaks of the second step by phase, in GiB."""
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    model = building.materialise(building.build_model(job), "cpu")
    _quantize(model)
    if job["loop"].get("kbit_prepared"):
        model = prepare_model_for_kbit_training(
            model, job["grad_ckpt"], gradient_checkpointing_kwargs={"use_reentrant": False}
        )
    elif job["grad_ckpt"]:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    lora = job["lora"]
    make: Any = get_peft_model
    model = make(model, LoraConfig(r=lora["r"], target_modules=lora["targets"], task_type="CAUSAL_LM")).train()
    with Meter() as meter:
        row = counted(meter, (model,))
        for module in model.modules():  # the scales of the quantized weights are no buffers
            state = getattr(getattr(module, "weight", None), "quant_state", None)
            if state is not None:
                meter.add(state.absmax)
        row["static_gib"] = meter.live
        return stepped(meter, row, model, job, partial(stepping.sft_loss, model, job, "cpu"))


if __name__ == "__main__":
    torch.manual_seed(0)
    sys.exit(traced(trace))
