"""Operations on the tape: what each allocates, what its derivative keeps, and what its backward allocates.

Read off ``tools/autograd/derivatives.yaml`` and the kernels of torch 2.13, and checked event by event against traces of
the real operations (``bench/trace.py --events``). ``t`` is a tensor, ``grad`` the incoming gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from oomkb.memory.tape import Leaf, Tape, Tensor

Grads = Sequence["Tensor | None"]


class Ops:
    """Operations bound to one tape, with autocast on or off."""

    def __init__(self, tape: Tape, *, autocast: float = 0.0, cuda: bool = False, caching: bool = True) -> None:
        self.tape, self.cuda, self.autocast = tape, cuda, autocast  # bytes of the autocast dtype, 0 without
        self.caching = caching  # whether autocast remembers casts of weights: not of transposed ones, no leaves

    # -- casts ---------------------------------------------------------------------------------------------------

    def cast(self, t: Tensor, size: float) -> Tensor:
        """``t.to(dtype)``; the same tensor where the dtype already fits."""
        if t.size == size:
            return t
        unit, source = t.unit, t.size

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            return (tape.new(unit, source),)

        node = self.tape.record((t,), (), backward)
        return self.tape.new(unit.replace("g:", "w:"), size, node)

    def lower(self, t: Tensor) -> Tensor:
        """What autocast does to an argument of a matrix product; casts of trained fp32 weights are cached."""
        if not self.autocast or t.size == self.autocast or t.size < 2:
            return t
        leaf = t.node
        if isinstance(leaf, Leaf) and leaf.keep and t.size == 4 and self.caching:
            cached = self.tape.casts.get(leaf)
            if cached is None:
                cached = self.cast(t, self.autocast)
                self.tape.casts[leaf] = cached
            return cached
        return self.cast(t, self.autocast)

    # -- elementwise ---------------------------------------------------------------------------------------------

    def add(self, a: Tensor, b: Tensor, *, unit: str | None = None) -> Tensor:
        """``a + b``, one of them possibly broadcast to ``unit``; gradients of another dtype or shape are made anew."""
        size = max(a.size, b.size)
        shapes = ((a.unit, a.size), (b.unit, b.size)) if unit else ((a.unit, a.size), (a.unit, b.size))

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            outs = [grad.view() if s == (grad.unit, grad.size) else tape.new(*s) for s in shapes]
            return [o if need else None for o, need in zip(outs, needs, strict=True)]

        node = self.tape.record((a, b), (), backward)
        return self.tape.new(a.unit, size, node)

    def shift(self, t: Tensor) -> Tensor:
        """``t + constant``: a new tensor, nothing kept."""
        return self.tape.new(t.unit, t.size, self.tape.record((t,), (), _passes))

    def mul(self, a: Tensor, b: Tensor, *, unit: str | None = None) -> Tensor:
        """``a * b``; ``a`` has the full shape, ``b`` may be broadcast. Each operand is kept for the other."""
        unit = unit or a.unit
        size = max(a.size, b.size)
        shapes = ((a.unit, a.size), (b.unit, b.size))
        keep_a = a.detached() if b.node is not None else None
        keep_b = b.detached() if a.node is not None else None

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            outs: list[Tensor | None] = [None, None]
            for i in (1, 0):
                if needs[i]:
                    outs[i] = tape.new(grad.unit, grad.size)
            for i in (0, 1):
                got = outs[i]
                if got is None:
                    continue
                if shapes[i][0] != got.unit:
                    outs[i] = got = tape.new(shapes[i][0], got.size)
                if got.size != shapes[i][1]:
                    outs[i] = tape.new(got.unit, shapes[i][1])
                del got
            return outs

        node = self.tape.record((a, b), [k for k in (keep_a, keep_b) if k is not None], backward)
        return self.tape.new(unit, size, node)

    def scale(self, t: Tensor) -> Tensor:
        """``t * constant``."""
        node = self.tape.record((t,), (), _fresh)
        return self.tape.new(t.unit, t.size, node)

    def unary(self, t: Tensor, *, keeps: str = "input", temporaries: int = 0) -> Tensor:
        """An activation function with one kernel forward and one backward, keeping its input or its output."""

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            spare = [tape.new(grad.unit, grad.size) for _ in range(temporaries)]
            out = tape.new(grad.unit, grad.size)
            del spare
            return (out,)

        if keeps == "none":
            return t
        if keeps == "input":
            node = self.tape.record((t,), (t.detached(),), backward)
            return self.tape.new(t.unit, t.size, node)
        node = self.tape.record((t,), (None,), backward)
        out = self.tape.new(t.unit, t.size, node)
        if node is not None and node.saved:
            node.saved[0] = out.detached()
        return out

    def dropout(self, t: Tensor, active: bool) -> Tensor:
        """``dropout``: the CPU kernel keeps its noise in the input's dtype, the CUDA kernel a mask of one byte."""
        if not active:
            return t
        mask = self.tape.new(t.unit, 1.0 if self.cuda else t.size)
        node = self.tape.record((t,), (mask,), _fresh)
        out = self.tape.new(t.unit, t.size, node)
        del mask
        return out

    def rotate(self, t: Tensor, half: str, size: float) -> Tensor:
        """``t * cos + rotate_half(t) * sin`` with tables of ``size`` bytes an element."""
        straight = self.times(t, size)
        low, high = self.part(t, half), self.part(t, half)
        crossed = self.times(self.cat(self.scale(high), low, t.unit), size)
        del low, high
        return self.add(straight, crossed)

    def times(self, t: Tensor, size: float) -> Tensor:
        """``t * table`` where the table is small and not trained; promotes to the table's dtype."""
        source = t.size

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            out = tape.new(grad.unit, grad.size)
            if out.size != source:
                out = tape.new(out.unit, source)
            return (out,)

        node = self.tape.record((t,), (None,), backward)
        return self.tape.new(t.unit, max(t.size, size), node)

    def part(self, t: Tensor, unit: str) -> Tensor:
        """A slice: a view forward; backward writes its gradient into zeros of the full shape."""
        return Tensor(t.store, unit, t.size, self.tape.record((t,), (), _of_unit(t.unit)))

    def cat(self, a: Tensor, b: Tensor, unit: str) -> Tensor:
        """``cat``: a new tensor; gradients are views of the incoming one."""
        units = (a.unit, b.unit)

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            return [Tensor(grad.store, u, grad.size) for u in units]

        node = self.tape.record((a, b), (), backward)
        return self.tape.new(unit, max(a.size, b.size), node)

    # -- reductions ----------------------------------------------------------------------------------------------

    def power(self, t: Tensor) -> Tensor:
        """``t.pow(2)``."""

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            raised = tape.new(grad.unit, grad.size)
            doubled = tape.new(grad.unit, grad.size)
            out = tape.new(grad.unit, grad.size)
            del raised, doubled
            return (out,)

        node = self.tape.record((t,), (t.detached(),), backward)
        return self.tape.new(t.unit, t.size, node)

    def mean(self, t: Tensor, unit: str) -> Tensor:
        """``t.mean(-1, keepdim=True)``."""
        return self.tape.new(unit, t.size, self.tape.record((t,), (), _of_unit(t.unit)))

    # -- matrix products -----------------------------------------------------------------------------------------

    def linear(self, t: Tensor, weight: Tensor, out: str, *, bias: bool = False) -> Tensor:
        """``t @ weight.T``: keeps the input for the weight's gradient and the weight for the input's."""
        weight = self.lower(weight)
        t = self.lower(t)
        first = None if (cheap := t.cheap) else t.detached()
        keep = [x for x, need in ((first, weight.node), (weight.detached(), t.node)) if need is not None]
        shape, w_shape = (t.unit, t.size), (weight.unit, weight.size)

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            again = tape.new(*shape) if cheap and needs[1] else None
            w_grad = tape.new(*w_shape) if needs[1] else None
            del again
            t_grad = tape.new(*shape) if needs[0] else None
            return (t_grad, w_grad)

        node = self.tape.record((t, weight), keep, backward)
        del first, keep, weight
        return self.tape.new(out, t.size, node)

    def matmul(self, a: Tensor, b: Tensor, out: str, *, clone: tuple[bool, bool] = (False, False)) -> Tensor:
        """A batched product; ``clone`` says which operand ``expand().reshape()`` copies."""
        a, b = self.lower(a), self.lower(b)
        a = self.copy(a) if clone[0] else a
        b = self.copy(b) if clone[1] else b
        keep = [x for x, need in ((a.detached(), b.node), (b.detached(), a.node)) if need is not None]
        shapes = ((a.unit, a.size), (b.unit, b.size))

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            b_grad = tape.new(*shapes[1]) if needs[1] else None
            a_grad = tape.new(*shapes[0]) if needs[0] else None
            return (a_grad, b_grad)

        node = self.tape.record((a, b), keep, backward)
        del keep
        return self.tape.new(out, a.size, node)

    def copy(self, t: Tensor, *, unit: str | None = None) -> Tensor:
        """``contiguous()`` or ``expand().reshape()``: a copy; the gradient of an expansion is summed back."""
        source = t.unit

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            return (grad.view() if source == grad.unit else tape.new(source, grad.size),)

        node = self.tape.record((t,), (), backward)
        return self.tape.new(unit or t.unit, t.size, node)

    def heads(self, t: Tensor) -> Tensor:
        """``view().transpose(1, 2)``: no bytes forward; backward makes the gradient contiguous again."""
        node = self.tape.record((t,), (), _fresh)
        return t.view(node)

    # -- attention -----------------------------------------------------------------------------------------------

    def softmax(self, t: Tensor, size: float) -> Tensor:
        """``softmax(dtype=fp32)``: keeps its output."""
        source = t.size

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            out = tape.new(grad.unit, grad.size)
            del grad
            return (out if source == out.size else tape.new(out.unit, source),)

        if source != size and not self.cuda:  # the CPU kernel converts first, the CUDA kernel on the way
            t = self.cast(t, size)
            source = size
        node = self.tape.record((t,), (None,), backward)
        out = self.tape.new(t.unit, size, node)
        if node is not None and node.saved:
            node.saved[0] = out.detached()
        return out

    def sdpa(self, q: Tensor, k: Tensor, v: Tensor, out: str, lse: str, mask: str | None) -> Tensor:
        """Fused attention: keeps q, k, v, the mask, the output and the log-sum-exp."""
        q, k, v = self.lower(q), self.lower(k), self.lower(v)
        shapes = [(x.unit, x.size) for x in (q, k, v)]
        bias = self.tape.new(mask, q.size) if mask else None

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            outs: list[Tensor | None] = [tape.new(*shape) for shape in shapes]  # the kernel makes all three
            return [out if need else None for out, need in zip(outs, needs, strict=True)]

        saved = [q.detached(), k.detached(), v.detached(), bias, None, None]
        node = self.tape.record((q, k, v), saved, backward)
        del saved, bias
        result = self.tape.new(out, q.size, node)
        stats = self.tape.new(lse, 4.0)
        if node is not None and node.saved:
            node.saved[4], node.saved[5] = result.detached(), stats
        return result

    def promote(self, t: Tensor, size: float) -> Tensor:
        """``scores + mask``: a new tensor in the wider dtype."""
        source = t.size

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            return (grad.view() if grad.size == source else tape.new(grad.unit, source),)

        node = self.tape.record((t,), (), backward)
        return self.tape.new(t.unit, max(t.size, size), node)

    # -- pieces of one tensor ------------------------------------------------------------------------------------

    def split(self, t: Tensor, units: Sequence[str]) -> list[Tensor]:
        """``split``/``chunk``: views; backward joins the pieces' gradients in one new tensor."""
        joint = self.tape.record((t,), (), _fresh)
        if joint is not None:
            joint.joins = (t.unit, t.size)
        return [Tensor(t.store, unit, t.size, joint) for unit in units]

    def widen(self, t: Tensor, unit: str) -> Tensor:
        """``expand``: no bytes forward; the gradient is summed back."""
        return self.part(t, unit)

    def widened(self, t: Tensor, unit: str) -> Tensor:
        """``expand`` where the width differs, else the tensor itself."""
        return t if t.unit == unit else self.widen(t, unit)

    # -- experts -------------------------------------------------------------------------------------------------

    def gather(self, t: Tensor, unit: str) -> Tensor:
        """``t[index]``: backward scatters into zeros, out of place."""
        source = t.unit

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            zeros = tape.new(source, grad.size)
            out = tape.new(source, grad.size)
            del zeros
            return (out,)

        node = self.tape.record((t,), (), backward)
        return self.tape.new(unit, t.size, node)

    def total(self, t: Tensor, unit: str) -> Tensor:
        """``sum`` over the chosen experts of a token."""
        return self.mean(t, unit)

    # -- norms ---------------------------------------------------------------------------------------------------

    def layer_norm(self, t: Tensor, weight: Tensor | None, stat: str) -> Tensor:
        """The fused kernel: keeps its input and two numbers per row."""
        shape = (t.unit, t.size)
        w_shape = (weight.unit, weight.size) if weight is not None else None

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            t_grad = tape.new(*shape) if needs[0] else None
            w_grad = tape.new(*w_shape) if w_shape and len(needs) > 1 and needs[1] else None
            return (t_grad, w_grad)[: len(needs)]

        mean, rstd = self.tape.new(stat, 4.0), self.tape.new(stat, 4.0)
        inputs = (t,) if weight is None else (t, weight)
        node = self.tape.record(inputs, (t.detached(), mean, rstd), backward)
        del mean, rstd
        return self.tape.new(t.unit, t.size, node)


def _passes(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
    return (grad.view(),)


def _of_unit(unit: str) -> Callable[[Tape, Tensor, Sequence[Any], Sequence[bool]], Grads]:
    """A derivative that makes one new tensor of that unit."""
    return lambda tape, grad, saved, needs: (tape.new(unit, grad.size),)


def _fresh(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
    return (tape.new(grad.unit, grad.size),)
