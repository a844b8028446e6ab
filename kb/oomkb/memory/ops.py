"""Operations on the tape: what each allocates, what its derivative keeps, and what its backward allocates.

Read off ``tools/autograd/derivatives.yaml`` and the kernels of torch 2.13, and checked event by event against traces of
the real operations (``bench/trace.py --events``). ``t`` is a tensor, ``grad`` the incoming gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oomkb.memory.tape import Backward, Leaf, Tape, Tensor

Grads = Sequence["Tensor | None"]


def fresh(count: int = 1, unit: str = "", size: float = 0.0) -> Backward:
    """A derivative that holds ``count`` new tensors at once and hands on one of them.

    Their unit and size are those of the incoming gradient where none are given.
    """

    def backward(tape: Tape, grad: Tensor, saved: object, needs: object) -> Grads:
        return (tape.new_several(unit or grad.unit, size or grad.size, count)[0],)

    return backward


def each(*shapes: tuple[str, float]) -> Backward:
    """A derivative that makes a gradient for every input that needs one."""

    def backward(tape: Tape, grad: Tensor, saved: object, needs: Sequence[bool]) -> Grads:
        return [tape.new(*shape) if need else None for shape, need in zip(shapes, needs, strict=True)]

    return backward


def _back_to(size: float) -> Backward:
    """A derivative that makes a new gradient, and another one where the input has elements of another ``size``."""

    def backward(tape: Tape, grad: Tensor, saved: object, needs: object) -> Grads:
        out = tape.new(grad.unit, grad.size)
        return (out if out.size == size else tape.new(out.unit, size),)

    return backward


def _handed_on(tape: Tape, grad: Tensor, unit: str, size: float) -> Tensor:
    """The same gradient where unit and size are its own, else a new one."""
    return grad.view() if (unit, size) == (grad.unit, grad.size) else tape.new(unit, size)


_FRESH = fresh()


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
        node = self.tape.record((t,), (), fresh(1, t.unit, t.size))
        return self.tape.new(t.unit.replace("g:", "w:"), size, node)

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
        shapes = ((a.unit, a.size), (b.unit if unit else a.unit, b.size))

        def backward(tape: Tape, grad: Tensor, saved: object, needs: Sequence[bool]) -> Grads:
            outs = [_handed_on(tape, grad, *shape) for shape in shapes]
            return [o if need else None for o, need in zip(outs, needs, strict=True)]

        node = self.tape.record((a, b), (), backward)
        return self.tape.new(a.unit, max(a.size, b.size), node)

    def shift(self, t: Tensor) -> Tensor:
        """``t + constant``: a new tensor, nothing kept."""
        return self.tape.new(t.unit, t.size, self.tape.record((t,), (), _passes))

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        """``a * b``; ``a`` has the full shape, ``b`` may be broadcast. Each operand is kept for the other."""
        shapes = ((a.unit, a.size), (b.unit, b.size))
        keep = [x.detached() for x, other in ((a, b), (b, a)) if other.node is not None]

        def backward(tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> Grads:
            outs = [tape.new(grad.unit, grad.size) if need else None for need in needs]
            for i, (unit, size) in enumerate(shapes):
                got = outs[i]
                if got is None:
                    continue
                if unit != got.unit:
                    outs[i] = got = tape.new(unit, got.size)
                if got.size != size:
                    outs[i] = tape.new(got.unit, size)
                del got
            return outs

        node = self.tape.record((a, b), keep, backward)
        return self.tape.new(a.unit, max(a.size, b.size), node)

    def scale(self, t: Tensor) -> Tensor:
        """``t * constant``."""
        return self.tape.new(t.unit, t.size, self.tape.record((t,), (), _FRESH))

    def unary(self, t: Tensor, *, keeps: str = "input", temporaries: int = 0) -> Tensor:
        """An activation function with one kernel forward and one backward, keeping its input or its output."""
        backward = fresh(1 + temporaries)
        if keeps == "output":
            return self.tape.keeping((t,), t.unit, t.size, backward)
        return self.tape.new(t.unit, t.size, self.tape.record((t,), (t.detached(),), backward))

    def dropout(self, t: Tensor, active: bool) -> Tensor:
        """``dropout``: the CPU kernel keeps its noise in the input's dtype, the CUDA kernel a mask of one byte."""
        if not active:
            return t
        mask = self.tape.new(t.unit, 1.0 if self.cuda else t.size)
        node = self.tape.record((t,), (mask,), _FRESH)
        out = self.tape.new(t.unit, t.size, node)
        del mask
        return out

    def rotate(self, t: Tensor, size: float) -> Tensor:
        """``t * cos + rotate_half(t) * sin`` with tables of ``size`` bytes an element."""
        half = f".5*{t.unit}"
        straight = self.times(t, size)
        low, high = self.part(t, half), self.part(t, half)
        crossed = self.times(self.cat(self.scale(high), low, t.unit), size)
        del low, high
        return self.add(straight, crossed)

    def times(self, t: Tensor, size: float) -> Tensor:
        """``t * table`` where the table is small and not trained; promotes to the table's dtype."""
        node = self.tape.record((t,), (None,), _back_to(t.size))
        return self.tape.new(t.unit, max(t.size, size), node)

    def part(self, t: Tensor, unit: str) -> Tensor:
        """A slice: a view forward; backward writes its gradient into zeros of the full shape.

        Likewise ``expand``, whose gradient is summed back.
        """
        return Tensor(t.store, unit, t.size, self.tape.record((t,), (), fresh(1, t.unit)))

    def cat(self, a: Tensor, b: Tensor, unit: str) -> Tensor:
        """``cat``: a new tensor; gradients are views of the incoming one."""
        units = (a.unit, b.unit)

        def backward(tape: Tape, grad: Tensor, saved: object, needs: object) -> Grads:
            return [Tensor(grad.store, u, grad.size) for u in units]

        node = self.tape.record((a, b), (), backward)
        return self.tape.new(unit, max(a.size, b.size), node)

    def power(self, t: Tensor) -> Tensor:
        """``t.pow(2)``: in backward the power, its double and the product of both."""
        return self.tape.new(t.unit, t.size, self.tape.record((t,), (t.detached(),), fresh(3)))

    def mean(self, t: Tensor, unit: str) -> Tensor:
        """``t.mean(-1, keepdim=True)``, or a ``sum`` over one dimension."""
        return self.tape.new(unit, t.size, self.tape.record((t,), (), fresh(1, t.unit)))

    # -- matrix products -----------------------------------------------------------------------------------------

    def linear(self, t: Tensor, weight: Tensor, out: str) -> Tensor:
        """``t @ weight.T``: keeps the input for the weight's gradient and the weight for the input's."""
        weight = self.lower(weight)
        t = self.lower(t)
        first = None if (cheap := t.cheap) else t.detached()
        keep = [x for x, need in ((first, weight.node), (weight.detached(), t.node)) if need is not None]
        shape, w_shape = (t.unit, t.size), (weight.unit, weight.size)

        def backward(tape: Tape, grad: Tensor, saved: object, needs: Sequence[bool]) -> Grads:
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
        node = self.tape.record((a, b), keep, each((a.unit, a.size), (b.unit, b.size)))
        return self.tape.new(out, a.size, node)

    def copy(self, t: Tensor, *, unit: str | None = None) -> Tensor:
        """``contiguous()`` or ``expand().reshape()``: a copy; the gradient of an expansion is summed back."""
        source = t.unit

        def backward(tape: Tape, grad: Tensor, saved: object, needs: object) -> Grads:
            return (_handed_on(tape, grad, source, grad.size),)

        node = self.tape.record((t,), (), backward)
        return self.tape.new(unit or t.unit, t.size, node)

    def heads(self, t: Tensor) -> Tensor:
        """``view().transpose(1, 2)``: no bytes forward; backward makes the gradient contiguous again."""
        return t.view(self.tape.record((t,), (), _FRESH))

    # -- attention -----------------------------------------------------------------------------------------------

    def softmax(self, t: Tensor, size: float) -> Tensor:
        """``softmax(dtype=fp32)``: keeps its output."""
        if not self.cuda:  # the CPU kernel converts first, the CUDA kernel on the way
            t = self.cast(t, size)
        return self.tape.keeping((t,), t.unit, size, _back_to(t.size))

    def sdpa(self, q: Tensor, k: Tensor, v: Tensor, out: str, mask: str | None) -> Tensor:
        """Fused attention: keeps q, k, v, the mask, the output and the log-sum-exp."""
        q, k, v = self.lower(q), self.lower(k), self.lower(v)
        shapes = [(x.unit, x.size) for x in (q, k, v)]
        bias = self.tape.new(mask, q.size) if mask else None

        def backward(tape: Tape, grad: Tensor, saved: object, needs: Sequence[bool]) -> Grads:
            outs: list[Tensor | None] = [tape.new(*shape) for shape in shapes]  # the kernel makes all three
            return [out if need else None for out, need in zip(outs, needs, strict=True)]

        saved = [q.detached(), k.detached(), v.detached(), bias, None, None]
        node = self.tape.record((q, k, v), saved, backward)
        del saved, bias
        result = self.tape.new(out, q.size, node)
        stats = self.tape.new("B*n*S", 4.0)
        if node is not None and node.saved:
            node.saved[4], node.saved[5] = result.detached(), stats
        return result

    def promote(self, t: Tensor, size: float) -> Tensor:
        """``scores + mask``: a new tensor in the wider dtype."""
        shape = (t.unit, t.size)

        def backward(tape: Tape, grad: Tensor, saved: object, needs: object) -> Grads:
            return (_handed_on(tape, grad, *shape),)

        node = self.tape.record((t,), (), backward)
        return self.tape.new(t.unit, max(t.size, size), node)

    def split(self, t: Tensor, units: Sequence[str]) -> list[Tensor]:
        """``split``/``chunk``: views; backward joins the pieces' gradients in one new tensor."""
        joint = self.tape.record((t,), (), _FRESH)
        if joint is not None:
            joint.joins = (t.unit, t.size)
        return [Tensor(t.store, unit, t.size, joint) for unit in units]

    def widened(self, t: Tensor, unit: str) -> Tensor:
        """``expand`` where the width differs, else the tensor itself."""
        return t if t.unit == unit else self.part(t, unit)

    def gather(self, t: Tensor, unit: str) -> Tensor:
        """``t[index]``: backward scatters into zeros, out of place."""
        return self.tape.new(unit, t.size, self.tape.record((t,), (), fresh(2, t.unit)))

    def layer_norm(self, t: Tensor, weight: Tensor | None, stat: str) -> Tensor:
        """The fused kernel: keeps its input and two numbers per row."""
        mean, rstd = self.tape.new(stat, 4.0), self.tape.new(stat, 4.0)
        inputs = (t,) if weight is None else (t, weight)
        node = self.tape.record(inputs, (t.detached(), mean, rstd), each(*((x.unit, x.size) for x in inputs)))
        del mean, rstd
        return self.tape.new(t.unit, t.size, node)


def _passes(tape: Tape, grad: Tensor, saved: object, needs: object) -> Grads:
    return (grad.view(),)
