"""A LoRA step over a GPTQ base whose weights are dequantized in plain torch, or over an AWQ base, without a GPU.

usage: python bench/trace_gptq.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

GPTQModel 7.7 runs its torch kernel in training (``nn_modules/qlinear/tritonv2.py`` hands over to ``torch.py``), and so
did auto-gptq without exllama: ``dequantize_weight`` unpacks 32-bit words, and the product is an ordinary one, which
keeps the whole matrix for the gradient of its input. Its AWQ kernel (``nn_modules/qlinear/gemm_awq.py``, ``AwqGemmFn``)
keeps the words and dequantizes in each pass. Replayed here operation by operation, under peft's real adapters.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from oomdoc.tracing import building, running
from trace_steps import measured

_GROUP = 128
_PACKED = 8
_DENSE = 1024


class GptqLinear(torch.nn.Linear):
    """A frozen linear layer of four bits an element, a scale and a zero for 128 of them."""

    def __init__(self, old: torch.nn.Linear, dtype: torch.dtype) -> None:
        torch.nn.Module.__init__(self)
        self.in_features, self.out_features, self.bias = old.in_features, old.out_features, old.bias
        words, groups = old.in_features // _PACKED, -(-old.in_features // _GROUP)
        meta: dict[str, Any] = {"device": "meta"}
        self.weight = torch.nn.Parameter(torch.empty(words, old.out_features, dtype=torch.int32, **meta), False)
        self.register_buffer("zeros", torch.empty(groups, old.out_features // _PACKED, dtype=torch.int32, **meta))
        self.register_buffer("scales", torch.empty(groups, old.out_features, dtype=dtype, **meta))
        self.register_buffer("index", torch.empty(old.in_features, dtype=torch.int32, **meta))

    def dequantized(self) -> Any:
        """``BaseQuantLinear.dequantize_weight`` for four bits."""
        shifts = torch.arange(_PACKED, dtype=torch.int32)
        zeros = torch.bitwise_right_shift(self.zeros.unsqueeze(2).expand(-1, -1, _PACKED), shifts).to(torch.int8)
        zeros = torch.bitwise_and(zeros, 15).reshape(self.zeros.shape[0], -1)
        spread = self.weight.unsqueeze(1).expand(-1, _PACKED, -1)
        weight = torch.bitwise_and(torch.bitwise_right_shift(spread, shifts.view(1, -1, 1)).to(torch.int8), 15)
        weight = weight.reshape(weight.shape[0] * weight.shape[1], weight.shape[2])
        return self.scales[self.index.long()] * (weight - zeros[self.index.long()])

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """``TorchLinear.forward``."""
        weights = self.dequantized()
        if weights.dtype != input.dtype:
            weights = weights.to(input.dtype)
        out = torch.matmul(input.reshape(-1, input.shape[-1]), weights).reshape((*input.shape[:-1], self.out_features))
        if self.bias is not None:
            out.add_(self.bias.to(out.dtype))
        return out


class _AwqProduct(torch.autograd.Function):
    """``AwqGemmFn``: up to 1,024 rows go through a kernel that dequantizes tile by tile."""

    @staticmethod
    def forward(ctx: Any, x: Any, words: Any, zeros: Any, scales: Any) -> Any:
        ctx.save_for_backward(words, zeros, scales)
        rows, width = x.reshape(-1, x.shape[-1]), scales.shape[1]
        if rows.shape[0] > _DENSE:
            out = torch.matmul(rows, torch.empty((x.shape[-1], width), dtype=scales.dtype).to(x.dtype))
        else:
            out = torch.empty((rows.shape[0], width), dtype=x.dtype)
        return out.reshape((*x.shape[:-1], width))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        words, _, scales = ctx.saved_tensors
        (grad,) = gradients
        weights = torch.empty((words.shape[0], scales.shape[1]), dtype=scales.dtype).to(grad.dtype)
        out = torch.matmul(grad.reshape(-1, grad.shape[-1]), weights.transpose(-1, -2))
        return out.reshape((*grad.shape[:-1], words.shape[0])), None, None, None


class AwqLinear(GptqLinear):
    """The same, its words packed along the outputs."""

    def __init__(self, old: torch.nn.Linear, dtype: torch.dtype) -> None:
        super().__init__(old, dtype)
        words: Any = torch.empty(old.in_features, old.out_features // _PACKED, dtype=torch.int32, device="meta")
        self.weight = torch.nn.Parameter(words, False)
        del self.index

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """``AwqGEMMLinear.forward``."""
        wide = input.dtype
        x = input.to(torch.float16) if wide == torch.float32 else input
        out: Any = _AwqProduct.apply(x, self.weight, self.zeros, self.scales)  # type: ignore[no-untyped-call]
        out = out if self.bias is None else out + self.bias
        return out.to(wide)


_KINDS = {"gptq-int4": GptqLinear, "awq-int4": AwqLinear}


def _model(job: dict[str, Any]) -> Any:
    dtype = building.DTYPES[job["param_dtype"]]
    model = building.build_model(job)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is torch.nn.Linear and name != "lm_head":
                setattr(module, name, _KINDS[job["quant"]](child, dtype))
    if job.get("grad_ckpt"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    model = building.adapt(model, job)
    return model.train()


def main() -> int:
    for line in Path(sys.argv[1]).read_text().splitlines():
        row = json.loads(line)
        job = row["job"]
        model = _model(job)
        found = measured(model, job, lambda model=model, job=job: running.sft_loss(model, job, "cpu"))
        print(json.dumps({**row, "measured": found}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
