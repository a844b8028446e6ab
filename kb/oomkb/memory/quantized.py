"""Products with a quantized base on the tape, by what their kernels make and keep."""

from __future__ import annotations

from oomkb.memory.mode import Mode
from oomkb.memory.ops import Ops, fresh
from oomkb.memory.tape import Tape, Tensor


def saves_weights(quant: str, framework: str) -> bool:
    """GPTQ in plain torch multiplies by a dequantized matrix as by any other, and autograd keeps it.

    GPTQModel 7.7 does so in training (``nn_modules/qlinear/torch.py``), and auto-gptq without exllama did; the fused
    Triton kernels that fms-acceleration takes keep the words.
    """
    return quant.startswith("gptq") and "fms" not in framework


def quantized(ops: Ops, t: Tensor, weight: str, out: str, mode: Mode) -> Tensor:
    """A 4- or 8-bit product (bitsandbytes ``MatMul4Bit``, AWQ's): dequantizes on the way, forward and backward.

    Before bitsandbytes 0.43.2 (PR 1270) its input stayed on the node, past what autograd frees (``quant_keeps``).
    """
    tape, wide, t = ops.tape, t.size, ops.lower(t)
    matrix, shape = ("w:" + weight, mode.autocast or mode.param), (t.unit, t.size)
    if mode.quant_saves:
        return _saved(tape, t, *matrix, out)
    if mode.quant_keeps and not tape.replaying and t.node is not None:
        tape.stuck.append(t.detached())

    def backward(tape: Tape, grad: Tensor, saved: object, needs: object) -> tuple[Tensor]:
        full = tape.new(*matrix)
        t_grad = tape.new(*shape)
        del full
        return (t_grad,)

    full = tape.new(*matrix)
    result = tape.new(out, t.size)
    del full
    result.node = tape.record((t,), (), backward)
    return ops.cast(result, wide)  # ``Linear4bit.forward`` gives back the dtype that it was given


def _saved(tape: Tape, t: Tensor, weight: str, compute: float, out: str) -> Tensor:
    """Words are spread to 32 bits, cut to bytes; their scales are gathered; less the zeros, times the scales."""
    words, codes = tape.new(weight, 4.0), tape.new(weight, 1.0)
    del words
    scales, less = tape.new(weight, compute), tape.new(weight, 1.0)
    full = tape.new(weight, compute)
    del scales, less, codes
    node = tape.record((t,), (full,), fresh(1, t.unit, t.size))
    del full
    return tape.new(out, t.size, node)
