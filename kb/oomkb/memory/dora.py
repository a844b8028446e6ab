"""Weight-decomposed adapters on the tape (peft 0.21 ``tuners/lora/dora.py``)."""

from __future__ import annotations

from oomkb.memory.mode import Mode
from oomkb.memory.ops import Ops
from oomkb.memory.tape import Tensor


def dora(
    ops: Ops,
    x: Tensor,
    base: Tensor,
    trained: tuple[Tensor, Tensor, Tensor],
    units: tuple[str, str, str],
    mode: Mode,
) -> Tensor:
    """What is added to ``base``, the frozen product.

    The norm of weight plus update is computed in every forward pass: the update from an identity matrix through both
    factors, the weight in the adapters' dtype, their sum. With dropout the product with the weight is made anew, and
    its copy of the weight stays for backward.

    :param trained: both factors and the magnitude. :param units: rows, inputs, outputs.
    """
    tape, (down, up, scale), (rows, inner, outer) = ops.tape, trained, units
    matrix, size = f"w:{inner}*{outer}", x.size
    identity = tape.new(f"w:{inner}*{inner}", down.size)
    update = ops.linear(ops.linear(identity, down, f"w:{inner}*r"), up, matrix)
    del identity
    update = ops.cast(update, size)
    weight = tape.new(matrix, size) if size != mode.param or mode.quant else Tensor(None, matrix, size)
    scaled = tape.new(matrix, size)
    total = tape.new(matrix, size)
    del scaled, total
    x = ops.dropout(x, mode.lora_dropout)
    low = ops.linear(ops.linear(x, down, f"{rows}*r"), up, f"{rows}*{outer}")
    product = ops.linear(x, weight, f"{rows}*{outer}") if mode.lora_dropout else base
    own = ops.mul(product, scale)
    out = ops.add(own, ops.scale(ops.mul(low, scale)))
    del update
    return out
