"""A tape of symbolic tensors: which bytes are alive at each instant of a forward and backward pass.

The memory of a training step is decided by lifetimes, not by a formula: autograd keeps what an operation's derivative
needs, Python keeps what a frame still names, autocast keeps casts of weights, a checkpoint drops and recomputes. The
tape plays the operations of a layer once with symbolic sizes and records the bytes alive at each local maximum. An
instant is then a linear form such as ``14 T*h + 6 T*f + 4 B*n*S*S``, evaluated for any dimensions in microseconds.

A storage is freed when the last tensor that refers to it goes away, exactly as in PyTorch; that is CPython's reference
counting here as there. The rules of the engine follow torch 2.13 (``torch/csrc/autograd/engine.cpp``): nodes run in
descending order of creation, saved tensors are released after a node ran, gradients that meet are added out of place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from oomkb.memory.forms import Form, Packed, canonical, packed, prune, unpacked

Backward = Callable[["Tape", "Tensor", Sequence[Any], Sequence[bool]], Sequence["Tensor | None"]]


class Store:
    """One storage; its bytes leave the tape when the last reference goes."""

    __slots__ = ("size", "tape")

    def __init__(self, tape: Tape, size: Packed) -> None:
        self.tape, self.size = tape, size

    def __del__(self) -> None:
        tape = self.tape
        if tape.rising:
            tape.instants.append(tape.live)
            tape.rising = False
        tape.live -= self.size


class Tensor:
    """A view of a storage: ``unit`` elements of ``size`` bytes, and the node that made it."""

    __slots__ = ("cheap", "node", "size", "store", "unit")

    def __init__(self, store: Store | None, unit: str, size: float, node: Node | Leaf | None = None) -> None:
        self.store, self.unit, self.size, self.node = store, unit, size, node
        self.cheap = False
        """Made again in backward rather than kept, by kernels that do so."""

    def view(self, node: Node | Leaf | None = None) -> Tensor:
        """The same bytes under another name."""
        return Tensor(self.store, self.unit, self.size, node or self.node)

    def detached(self) -> Tensor:
        """The same bytes without history."""
        return Tensor(self.store, self.unit, self.size)


class Leaf:
    """Where gradients end: a parameter, or the input of a layer."""

    __slots__ = ("keep", "seq", "size", "unit")

    def __init__(self, unit: str, size: float, *, keep: bool = True) -> None:
        self.unit, self.size, self.keep, self.seq = unit, size, keep, -1


def parameter(unit: str, size: float, *, trained: bool) -> Tensor:
    """A weight, which takes no bytes of the tape; gradients end at it where it is trained."""
    return Tensor(None, "g:" + unit, size, Leaf("g:" + unit, size) if trained else None)


class Node:
    """One operation that autograd remembers."""

    __slots__ = ("backward", "inputs", "joins", "needs_saved", "place", "saved", "seq")

    def __init__(self, seq: int, inputs: tuple[Node | Leaf | None, ...], saved: list[Any], backward: Backward) -> None:
        self.seq, self.inputs, self.saved, self.backward = seq, inputs, saved, backward
        self.needs_saved = bool(saved)
        self.place = 0
        self.joins: tuple[str, float] | None = None
        """For an operation with several outputs: unit and size of the gradient that joins theirs."""


class Pieces:
    """Gradients of the outputs of one operation, before they are joined."""

    __slots__ = ("parts", "size", "unit")

    def __init__(self, unit: str, size: float) -> None:
        self.unit, self.size = unit, size
        self.parts: list[Tensor] = []


class Tape:
    """Records instants. ``live`` is the form of what is alive now."""

    def __init__(self, *, keep_grads: bool = True) -> None:
        self.keep_grads = keep_grads
        """Whether parameters' gradients stay; not where they are reduced, sharded or added to older ones at once."""
        self.live: Packed = 0
        self.instants: list[Packed] = []
        self._lanes: dict[str, int] = {}
        self._sizes: dict[tuple[str, float], Packed] = {}
        self.grads: dict[Leaf, Tensor] = {}
        self.casts: dict[Leaf, Tensor] = {}
        self.packs = 0
        self.replaying = False
        """A checkpoint is recomputing."""
        self.stuck: list[Tensor] = []
        """Tensors that operations hold outside autograd's saved ones, to the step's end."""
        self.pack_limit: int | None = None
        self.discard = False
        self.place = 0
        """Nodes recorded since a checkpoint's layer began."""
        self.wanted: dict[int, Node] = {}
        """By place: nodes of a recomputation for which gradients wait."""
        self._seq = 0
        self.rising = False
        """Whether something was allocated since the last instant."""
        self._ghost = False

    # -- storages ------------------------------------------------------------------------------------------------

    def new(self, unit: str, size: float, node: Node | None = None) -> Tensor:
        """Allocate ``unit`` elements of ``size`` bytes."""
        if self._ghost or not size:
            return Tensor(None, unit, size, node)
        added = self._sizes.get((unit, size))
        if added is None:
            lane, factor = canonical(unit)
            added = self._sizes[unit, size] = self.packed({lane: size * factor})
        self.live += added
        self.rising = True
        return Tensor(Store(self, added), unit, size, node)

    def new_several(self, unit: str, size: float, count: int) -> list[Tensor]:
        """So many of them at once."""
        return [self.new(unit, size) for _ in range(count)]

    def hold(self, form: Form) -> Tensor | None:
        """Bytes of several units in one storage; ``None`` for none."""
        added = self.packed(form)
        if not added:
            return None
        self.live += added
        self.rising = True
        return Tensor(Store(self, added), "", 0.0)

    def packed(self, form: Form) -> Packed:
        """The form in this tape's lanes."""
        lanes = self._lanes
        return sum(packed(lanes.setdefault(unit, len(lanes)), size) for unit, size in form.items())

    def less(self, form: Form) -> dict[str, float]:
        """What is alive beside ``form``."""
        rest = self.live - self.packed(form)
        return unpacked(rest, tuple(self._lanes))

    def mark(self) -> dict[str, float]:
        """What is alive now."""
        return unpacked(self.live, tuple(self._lanes))

    def drop_instants(self) -> None:
        """Forget the local maxima since the last call."""
        self.instants, self.rising = [], False

    def take_instants(self) -> tuple[Form, ...]:
        """The local maxima since the last call, without those that another one reaches everywhere."""
        found = [*self.instants, self.live]
        self.drop_instants()
        return prune(found, tuple(self._lanes))

    # -- graph ---------------------------------------------------------------------------------------------------

    def record(self, inputs: Sequence[Tensor], saved: Sequence[Any], backward: Backward) -> Node | None:
        """Remember an operation, unless nothing that it reads needs a gradient."""
        nodes = tuple([x.node for x in inputs])
        for node in nodes:
            if node is not None:
                break
        else:
            return None
        self._seq += 1
        self.packs += len(saved)
        if self.pack_limit is not None and self.packs >= self.pack_limit:
            self._ghost = True
        made = Node(self._seq, nodes, list(saved), backward)
        if self.discard:
            made.saved = []
        made.place = self.place = self.place + 1
        if made.place in self.wanted:
            self.wanted[made.place] = made
        return made

    def keeping(self, inputs: Sequence[Tensor], unit: str, size: float, backward: Backward) -> Tensor:
        """The output of an operation whose derivative needs it."""
        node = self.record(inputs, (None,), backward)
        out = self.new(unit, size, node)
        if node is not None and node.saved:
            node.saved[0] = out.detached()
        return out

    def resume(self) -> None:
        """Leave the part of a recomputation that early stopping skips."""
        self._ghost, self.pack_limit = False, None

    def lead(self, root: Node | Leaf | None, grad: Tensor) -> dict[Node | Leaf, Any]:
        """Run nodes below ``root`` up to the first that needs a saved tensor; returns what waits at which node."""
        buffers: dict[Node | Leaf, Any] = {} if root is None else {root: grad}
        del grad
        for node in reversed(_reachable(root)):
            if isinstance(node, Leaf) or node.needs_saved:
                break
            got = buffers.pop(node, None)
            if got is not None:
                results = list(node.backward(self, got, [], [n is not None for n in node.inputs]))
                del got
                self._accumulate(node.inputs, results, buffers)
        return buffers

    def backward(
        self, root: Node | Leaf | None, grad: Tensor | None, waiting: dict[Node | Leaf, Any] | None = None
    ) -> dict[Leaf, Tensor]:
        """Run the graph below ``root``; returns the gradients of leaves that are not parameters.

        :param waiting: gradients that are there already, instead of ``grad``.
        """
        buffers: dict[Node | Leaf, Any] = waiting or {}
        if root is not None and grad is not None:
            buffers[root] = grad
        del grad, waiting
        outs: dict[Leaf, Tensor] = {}
        order = _reachable(root)
        root = None
        while order:
            node = order.pop()
            got = buffers.pop(node, None)
            if got is None:
                continue
            if isinstance(node, Leaf):
                if not node.keep:
                    outs[node] = got
                elif self.keep_grads:
                    self.grads[node] = got
                del got
                continue
            needs = [n is not None for n in node.inputs]
            back, saved, inputs = node.backward, node.saved, node.inputs
            results = list(back(self, got, saved, needs))
            del got
            saved.clear()
            del node, saved, back
            self._accumulate(inputs, results, buffers)
        return outs

    def _accumulate(self, inputs: Sequence[Any], results: list[Tensor | None], buffers: dict[Any, Any]) -> None:
        for i, target in enumerate(inputs):
            piece, results[i] = results[i], None
            if target is None or piece is None:
                continue
            if isinstance(target, Node) and target.joins is not None:
                bundle = buffers.setdefault(target, Pieces(target.joins[0], piece.size))
                bundle.parts.append(piece)
                del piece, bundle
                continue
            before = buffers.pop(target, None)
            if before is not None:
                piece_sum = self.new(before.unit, max(before.size, piece.size))
                del before, piece
                buffers[target] = piece_sum
                del piece_sum
            else:
                buffers[target] = piece
                del piece


def _reachable(root: Node | Leaf | None) -> list[Node | Leaf]:
    """Nodes below ``root``, so that popping gives descending creation order; leaves come right after their users."""
    seen: set[int] = set()
    nodes: list[Node | Leaf] = []
    users: dict[Leaf, int] = {}
    todo = [root] if root is not None else []
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        nodes.append(node)
        if isinstance(node, Node):
            for target in node.inputs:
                if isinstance(target, Leaf):
                    users[target] = min(users.get(target, node.seq), node.seq)
                if target is not None:
                    todo.append(target)
    # A parameter's gradient is finished as soon as the last node that feeds it ran.
    return sorted(nodes, key=lambda n: users.get(n, 0) - 0.5 if isinstance(n, Leaf) else n.seq)
