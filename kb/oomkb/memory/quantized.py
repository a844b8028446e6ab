"""Products with a quantized base on the tape, by what their kernels make and keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oomkb.memory.ops import Ops
from oomkb.memory.tape import Tape, Tensor


def saves_weights(quant: str, framework: str) -> bool:
    """GPTQ in plain torch multiplies by a dequantized matrix as by any other, and autograd keeps it.

    GPTQModel 7.7 does so in training (``nn_modules/qlinear/torch.py``), and auto-gptq without exllama did; the fused
    Triton kernels that fms-acceleration takes keep the words.
    """
    return quant.startswith("gptq") and "fms" not in framework


def quantized(
    ops: Ops, t: Tensor, weight: str, out: str, *, compute: float, keeps: bool = False, saves: bool = False
) -> Tensor:
    """A 4- or 8-bit product (bitsandbytes ``MatMul4Bit``, AWQ's): dequantizes on the way, forward and backward.

    :param keeps: before bitsandbytes 0.43.2 (PR 1270) its input stayed on the node, past what autograd frees.
    :param saves: the dequantized weights are kept for backward (:func:`saves_weights`).
    """
    tape, wide, t = ops.tape, t.size, ops.lower(t)
    if saves:
        return _saved(tape, t, "w:" + weight, out, compute)
    if keeps and not tape.replaying and t.node is not None:
        tape.stuck.append(t.detached())
    shape = (t.unit, t.size)

    def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Sequence[Tensor | None]:
        full = tape.new("w:" + weight, compute)
        t_grad = tape.new(*shape)
        del full
        return (t_grad,)

    full = tape.new("w:" + weight, compute)
    result = tape.new(out, t.size)
    del full
    result.node = tape.record((t,), (), backward)
    return ops.cast(result, wide)  # ``Linear4bit.forward`` gives back the dtype that it was given


def _saved(tape: Tape, t: Tensor, weight: str, out: str, compute: float) -> Tensor:
    """Words are spread to 32 bits, cut to bytes; their scales are gathered; less the zeros, times the scales."""
    shape = (t.unit, t.size)
    words, codes = tape.new(weight, 4.0), tape.new(weight, 1.0)
    del words
    scales, less = tape.new(weight, compute), tape.new(weight, 1.0)
    full = tape.new(weight, compute)
    del scales, less, codes

    def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Sequence[Tensor | None]:
        return (tape.new(*shape),)

    node = tape.record((t,), (full,), backward)
    del full
    return tape.new(out, t.size, node)
