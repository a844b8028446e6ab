"""Optimizer states by the shapes of what they belong to, and what a step allocates on the way."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from oomkb.memory.optimizers import Optimizer, step_temporary_bytes
from oomkb.memory.ranks import GATHERED
from oomkb.memory.setting import Setting
from oomkb.memory.shape import Linear, ModelShape

__all__ = ["moment_bytes", "step_bytes"]

_RANK: Final = 128
"""GaLore's and APOLLO's rank where none is stated (their ``optim_args`` in transformers)."""


def moment_bytes(s: Setting, shape: ModelShape, kind: Optimizer, each: float, stated: float) -> float:
    """All states of ``stated`` trained elements before sharding; ``each``: bytes of an element in their dtype."""
    full, split = kind.moments * each + kind.fixed, s.tp * s.pp
    if kind.factored:
        width = each if kind.factored < 0 else kind.factored
        sides = stated / max(1, s.rank) if s.adapters else _sides(shape) / split
        return width * sides
    if s.adapters or not (kind.matrices_only or kind.low_rank):
        return full * stated
    inside = min(stated, sum(m * n * count for m, n, count in _matrices(shape)) / split)
    if kind.matrices_only:
        return full * inside + 2 * each * (stated - inside)
    # A projection is kept in the gradients' dtype; of fp32 gradients it is a view that keeps the whole factor alive.
    whole = kind.decomposes and each == 4
    low = kept = 0
    for m, n, count in _matrices(shape):
        rank, short = min(s.rank or _RANK, m, n), min(m, n)
        low += rank * max(m, n) * count
        kept += short * (short if whole else rank) * count
    return full * (stated - inside) + (full * low + each * kept) / split


def step_bytes(s: Setting, shape: ModelShape, kind: Optimizer, *, each: float, trained: float, largest: float) -> float:
    """What one step allocates beside weights, gradients and states, for one rank's share."""
    found = step_temporary_bytes(s.optimizer, s.optimizer_impl, each=each, trained=trained, largest=largest)
    if kind.foreach and s.optimizer_impl == "single" and not s.adapters:
        found = max(found, min(_pair(s, shape, kind.single), 2 * trained) * each)
    if s.adapters or not (kind.matrices_only or kind.low_rank):
        return found
    m, n = max(((m, n) for m, n, _ in _matrices(shape)), key=lambda sides: sides[0] * sides[1], default=(0, 0))
    size, short = m * n / s.tp, min(m, n)
    if kind.matrices_only:  # Newton-Schulz in bf16: the update, two iterates, the Gram matrix and its square
        rest = max(0.0, trained - sum(m * n * count for m, n, count in _matrices(shape)) / s.tp / s.pp / s.shards)
        beside = step_temporary_bytes("adamw", s.optimizer_impl, each=each, trained=rest, largest=largest)
        return max(beside, (each + 4) * size + 4 * short**2)
    if kind.decomposes:  # torch.linalg.svd: the gradient in fp32, both factors, and the update before
        return max(found, (each + (8 if each < 4 else 4)) * size + 8 * short**2)
    return max(found, 5 * each * size)


def _pair(s: Setting, shape: ModelShape, single: float) -> float:
    """The same for two matrices in a row: the loop over parameters still names the last one's temporary."""
    most = 0.0
    for layer in shape.layers:
        for a, b in pairwise(layer.linears):
            if not a.bias and "router" not in (a.part, b.part):
                most = max(most, _of_one(a) + single * _of_one(b))
    return most / s.tp / (s.shards if s.sharding in GATHERED or s.sharding in ("zero1", "zero2") else 1)


def _of_one(m: Linear) -> int:
    """Elements of one parameter: all experts' are one."""
    return m.inputs * m.outputs * (1 if m.module else m.count)


def _matrices(shape: ModelShape, *, stacked: bool = False) -> Iterator[tuple[int, int, int]]:
    """Inputs, outputs and number of the layers' matrices; ``stacked``: those that lie in one parameter, too."""
    for layer in shape.layers:
        for m in layer.linears:
            if stacked or m.part != "expert":
                yield m.inputs, m.outputs, m.count * layer.count


def _sides(shape: ModelShape) -> int:
    """Rows and columns of all matrices, tables included, and all elements of vectors."""
    d, sides, inside = shape.dims, 0, 0
    for m, n, count in _matrices(shape, stacked=True):
        sides += (m + n) * count
        inside += m * n * count
    tables = 1 if d.tied else 2
    vectors = shape.text_params - inside - tables * d.vocab * d.embed_width - d.position_rows * d.hidden
    return sides + tables * (d.vocab + d.embed_width) + d.position_rows + max(0, vectors)
