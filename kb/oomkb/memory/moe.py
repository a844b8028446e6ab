"""Routed experts of one layer on the tape, as transformers 5.23 runs them (``grouped_mm_experts_forward``).

Tokens are copied as often as they are routed and sorted by expert; products are grouped; the results are weighted,
sorted back and summed. Families differ in the dtype of the router and of the weights that it gives: in fp32 they turn
the weighted results into fp32 as well (``[routers]`` of ``families.toml``): ``wide`` routers take the hidden states in
fp32 (autocast lowers them), ``fp32`` even under autocast; weights are those of an fp32 softmax (``float``,
``wide softmax``), or in the dtype of the router's logits. ``clipped``: gate and up lie interleaved, and are clamped
before their product (gpt-oss). ``titan``: torchtitan's layers (``models/moe.py``; prime-rl's are made of them) weigh in
fp32 and add the results where their tokens are. ``inside``: weights are taken into the gated product, so that nothing
after it is kept (Megatron-LM ``core/fusions/fused_bias_swiglu.py``, ``WeightedSwiGLUFunction``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oomkb.memory.mode import Mode
from oomkb.memory.ops import Ops, each
from oomkb.memory.tape import Tape, Tensor

if TYPE_CHECKING:
    from oomkb.memory.blocks import Layer


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
    size = max(above.size, below.size)
    node = ops.tape.record((above, below), (mask,), each((x.unit, size), (x.unit, size)))
    return ops.tape.new(x.unit, size, node)


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


def routed_experts(layer: Layer, x: Tensor) -> Tensor:
    """Router, routed experts, shared experts."""
    mode, ops = layer.mode, layer.ops
    routing = _grouped(layer, x, _weights(layer, x))
    if mode.shared:
        shared = layer.mlp(x, "fs", prefix="shared.")
        if mode.shared == "gated":
            gate = ops.unary(layer.project(x, "shared_expert_gate", "h", "1"), keeps="output")
            shared = ops.mul(shared, gate)
        routing = ops.add(routing, shared)
    return routing


def _weights(layer: Layer, x: Tensor) -> Tensor:
    """The chosen experts' weights."""
    mode, ops = layer.mode, layer.ops
    given, weight = x, layer.weight("router", "h*E")
    if mode.router in ("wide", "wide softmax", "fp32"):
        given, weight = ops.cast(x, 4.0), ops.cast(weight, 4.0)
    if mode.router == "fp32":
        logits = Ops(layer.tape, cuda=mode.cuda).linear(given, weight, "T*E")
    else:
        logits = ops.linear(given, weight, "T*E")
    size = 4.0 if mode.router in ("float", "wide softmax", "titan") else logits.size
    if mode.router == "fp32":
        size = x.size
    del given, weight
    return ops.cast(ops.gather(ops.softmax(logits, 4.0), "K"), size)


def _grouped(layer: Layer, x: Tensor, chosen: Tensor) -> Tensor:
    """Grouped products over tokens sorted by expert."""
    ops, size = layer.ops, x.size
    picked = ops.gather(x, "K*h")
    both = _product_by_expert(layer, picked, layer.expert("experts.gate_up", "h", "2*fe", "2*"), "2*K*fe")
    if layer.mode.router == "inside":
        sides = ops.split(both, ("K*fe", "K*fe"))
        del both
        product = gated(ops, sides.pop(0), sides.pop(), inplace=False, weight=chosen)
        return ops.mean(_product_by_expert(layer, product, layer.expert("experts.down", "fe", "h", ""), "K*h"), "T*h")
    product = _clipped(layer, both) if layer.mode.router == "clipped" else _product(layer, both)
    del both
    out = _product_by_expert(layer, product, layer.expert("experts.down", "fe", "h", ""), "K*h")
    if layer.mode.router == "titan":
        out = ops.cast(out, 4.0)
        del product
        return ops.mean(ops.cast(ops.mul(out, chosen), size), "T*h")
    weighted = ops.mul(out, chosen)
    del out, product
    weighted = ops.gather(weighted, "K*h")
    return ops.cast(ops.mean(weighted, "T*h"), size)


def _product_by_expert(layer: Layer, x: Tensor, weight: Tensor, out: str) -> Tensor:
    """``_grouped_linear``: autocast knows no grouped products, so that the input takes the weights' dtype."""
    plain = Ops(layer.tape, cuda=layer.mode.cuda)
    return plain.linear(plain.cast(x, weight.size), weight, out)


def _product(layer: Layer, both: Tensor) -> Tensor:
    gate, up = layer.ops.split(both, ("K*fe", "K*fe"))
    return layer.ops.mul(layer.activation(gate), up)


def _clipped(layer: Layer, both: Tensor) -> Tensor:
    """``(clamp(up) + 1) * gate * sigmoid(alpha * gate)`` of every second column."""
    ops = layer.ops
    gate, up = ops.part(both, "K*fe"), ops.part(both, "K*fe")
    gate, up = ops.unary(gate), ops.unary(up)
    glu = ops.mul(gate, ops.unary(ops.scale(gate), keeps="output"))
    return ops.mul(ops.shift(up), glu)
