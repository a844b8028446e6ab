"""Activation functions on the tape, as transformers 5.23 writes them (``activations.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oomkb.memory.ops import Ops
from oomkb.memory.tape import Tape, Tensor


def activate(ops: Ops, act: str, x: Tensor, alpha: Tensor | None = None) -> Tensor:
    """``act`` of ``x``; ``alpha`` is a trained scalar of xIELU."""
    if act == "gelu_new":
        cube = ops.power(x)
        inner = ops.scale(ops.add(x, ops.scale(cube)))
        del cube
        return ops.mul(ops.scale(x), ops.shift(ops.unary(inner, keeps="output")))
    if act == "quick_gelu":
        return ops.mul(x, ops.unary(ops.scale(x), keeps="output"))
    if act == "relu2":
        return ops.power(ops.unary(x, keeps="output"))
    if act == "relu":
        return ops.unary(x, keeps="output")
    if act == "gelu_bloom":
        return ops.unary(x, temporaries=4)
    return ops.unary(x) if act != "xielu" or alpha is None else _xielu(ops, x, alpha)


def gated(
    ops: Ops, gate: Tensor, up: Tensor, *, inplace: bool, cheap: bool = False, weight: Tensor | None = None
) -> Tensor:
    """An activation function of ``gate`` times ``up`` (times a row's ``weight``) in one kernel, which keeps its inputs.

    ``inplace``: both gradients are written over what was kept (Liger's ``ops/swiglu.py``). ``cheap``: the product is
    made again in backward where an adapter needs it (``LoRA_MLP`` of unsloth's and axolotl's kernels).
    """

    def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> list[Tensor | None]:
        if inplace:
            return [saved[0].view(), saved[1].view()]
        sides: list[Tensor | None] = [tape.new(grad.unit, grad.size), tape.new(grad.unit, grad.size)]
        return [*sides, *(tape.new(kept.unit, kept.size) for kept in saved[2:])]

    inputs = (gate, up) if weight is None else (gate, up, weight)
    node = ops.tape.record(inputs, [t.detached() for t in inputs], backward)
    out = ops.tape.new(gate.unit, gate.size, node)
    out.cheap = cheap
    return out


def _xielu(ops: Ops, x: Tensor, alpha: Tensor) -> Tensor:
    """Both branches are computed for every element, and where they join a mask is kept."""
    mask = ops.tape.new(x.unit, 1.0)
    above = ops.add(ops.mul(ops.mul(x, alpha), x), ops.scale(x))
    low = ops.add(ops.unary(ops.unary(x), keeps="output"), x)
    below = ops.add(ops.mul(low, alpha), ops.scale(x))
    del low

    def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> list[Tensor | None]:
        return [tape.new(grad.unit, grad.size), tape.new(grad.unit, grad.size)]

    node = ops.tape.record((above, below), (mask,), backward)
    return ops.tape.new(x.unit, max(above.size, below.size), node)
