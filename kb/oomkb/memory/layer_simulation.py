"""One layer of a step, played once: its instants above what else is alive, for every place where such a layer stands.

What a layer allocates and frees does not depend on what stands before or after it. So it is played by itself, forward
and backward, and a step of many layers lays the same instants upon what is alive at each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from oomkb.dataclass import dataclass
from oomkb.memory.blocks import Layer
from oomkb.memory.forms import Form, minus
from oomkb.memory.mode import Mode
from oomkb.memory.tape import Leaf, Node, Store, Tape, Tensor

_HIDDEN = "T*h"


@dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """A layer's backward pass."""

    start: Form
    """What is alive of the layer when its output's gradient arrives, the gradient and a kept input among it."""
    instants: tuple[Form, ...]
    left: Form
    """What stays afterwards, the gradient of its input left out."""
    size: float | None
    """Bytes an element of the gradient of its input; ``None`` where that needs none."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerSimulation:
    """A layer between its input and its output."""

    forward: tuple[Form, ...]
    """Instants, the input among them."""
    held: Form
    """What stays to the backward pass beside the output and the input."""
    casts: Form
    """What only autocast's cache of cast weights holds."""
    keeps_input: bool
    size: float
    """Bytes an element of its output."""
    backward: Backward | None


class _Watched(Store):
    """The storage of the layer's input: says when it is freed."""

    __slots__ = ()

    def __del__(self) -> None:
        if isinstance(self.tape, _Scratch):
            self.tape.kept_input = False
        super().__del__()


class _Scratch(Tape):
    """A tape of one layer."""

    kept_input = True
    """Whether the layer keeps its input after its forward pass."""


@lru_cache(maxsize=8192)
def simulated(mode: Mode, kind: str, ckpt: str, size: float, linked: bool, grad: float = 0.0) -> LayerSimulation:
    """Play a layer.

    :param size: bytes an element of its input.
    :param linked: whether its input needs a gradient.
    :param grad: bytes an element of its output's gradient; the output's own where 0.
    """
    return _Simulated(mode, kind, ckpt, size, linked).play(grad)


class _Simulated:
    """The layer with its tape, being played."""

    def __init__(self, mode: Mode, kind: str, ckpt: str, size: float, linked: bool) -> None:
        self.mode, self.kind, self.size, self.linked = mode, kind, size, linked
        self.tape = _Scratch(keep_grads=mode.grads != "none")
        # Not checkpointed at all where nothing of the layer or before it needs a gradient.
        self.ckpt = ckpt if linked or mode.trained or mode.adapters else "none"
        self.crossed: tuple[tuple[Form, ...], Form, float] | None = None

    def play(self, grad: float) -> LayerSimulation:
        """Forward, then backward from a gradient of ``grad`` bytes an element."""
        tape = self.tape
        out = self.forward()
        forward, size = tape.take_instants(), out.size
        top = tape.record((out,), (), lambda t, g, s, n: (self.arriving(grad or size),))
        del out
        all_of = tape.mark()
        tape.casts.clear()
        start = tape.mark()
        keeps = tape.kept_input
        held = minus(start, {_HIDDEN: self.size}) if keeps else start
        back = None if top is None else self.backward(top)
        return LayerSimulation(forward, held, minus(all_of, start), keeps, size, back)

    def forward(self) -> Tensor:
        """The output; the input is let go."""
        tape = self.tape
        given = tape.new(_HIDDEN, self.size)
        store = given.store
        assert store is not None
        x = Tensor(_Watched(tape, store.size), _HIDDEN, self.size)
        store.size = 0
        del given, store
        tape.drop_instants()
        if self.linked:
            leaf = Leaf(_HIDDEN, self.size, keep=False)
            x = x.view(tape.record((Tensor(None, _HIDDEN, self.size, leaf),), (), self.cross))
        layer = Layer(tape, self.mode, self.kind)
        out = layer(x) if self.ckpt == "none" else _checkpointed(tape, self.mode, layer, x, self.ckpt)
        del x, layer  # as the caller of a layer does, whose name is given to the output
        return out

    # -- backward ------------------------------------------------------------------------------------------------

    def arriving(self, size: float) -> Tensor:
        """The gradient of the output."""
        grad = self.tape.new(_HIDDEN, size)
        self.start = self.tape.mark()
        self.tape.drop_instants()
        return grad

    def backward(self, top: Any) -> Backward:
        """From the gradient of the output to that of the input."""
        tape = self.tape
        tape.backward(top, Tensor(None, _HIDDEN, 0.0))
        if self.crossed is not None:
            instants, left, size = self.crossed
            return Backward(self.start, instants, left, size)
        instants = tape.take_instants()
        return Backward(self.start, instants, tape.mark(), None)

    def cross(self, tape: Tape, grad: Tensor, saved: Sequence[Any], needs: Sequence[bool]) -> tuple[Tensor]:
        """The gradient of the input is there; under a sharding wrapper the layer's own gradients leave."""
        instants = tape.take_instants()
        if self.mode.grads == "layer":
            tape.grads.clear()
        self.crossed = (instants, minus(tape.mark(), {_HIDDEN: grad.size}), grad.size)
        return (grad.view(),)


def _checkpointed(tape: Tape, mode: Mode, layer: Layer, x: Tensor, ckpt: str) -> Tensor:
    """Forward without saving; backward recomputes up to the last tensor that is needed, then goes on."""
    kept = _selected(tape, mode) if ckpt == "selective" else None
    tape.discard, before, tape.place = True, tape.packs, 0
    inner = Tensor(x.store, x.unit, x.size, Leaf("in", x.size, keep=False))
    out = layer(inner)
    tape.discard, packs = False, tape.packs - before
    last = out.node
    del inner

    def backward(tape: Tape, grad: Tensor, saved: Any, needs: object) -> tuple[Tensor | None]:
        casts, tape.casts = tape.casts, {}
        waiting = tape.lead(last, grad)  # nothing is computed again before a saved tensor is asked for
        source = saved.pop()
        saved.clear()  # selective: what was kept takes the place of what would be computed again
        leaf = Leaf("in", source.size, keep=False)
        again = Tensor(source.store, source.unit, source.size, leaf)
        del source
        tape.packs, tape.pack_limit = 0, packs
        tape.replaying, tape.place = True, 0
        tape.wanted = {node.place: node for node in waiting if isinstance(node, Node)}
        result = layer(again)
        tape.replaying, twins, tape.wanted = False, tape.wanted, {}
        del again
        tape.resume()
        tape.casts = casts
        root = result.node
        del result
        del grad
        there = {twins[n.place] if isinstance(n, Node) else leaf: got for n, got in waiting.items()}
        waiting.clear()
        outs = tape.backward(root, None, there)
        return (outs.pop(leaf, None),)

    kept = _parts(tape, x) if ckpt == "parts" else kept
    trigger = Tensor(None, "in", 0.0, x.node or Leaf("in", x.size, keep=False))
    stored = None if ckpt == "offload" else x.detached()
    node = tape.record((trigger,), (kept, stored or Tensor(None, x.unit, x.size)), backward)
    return Tensor(out.store, out.unit, out.size, node)


def _parts(tape: Tape, x: Tensor) -> list[Tensor]:
    """Checkpoints around norms, attention and feed-forward: of four inputs one is the layer's."""
    return [tape.new(x.unit, x.size) for _ in range(3)]


def _selected(tape: Tape, mode: Mode) -> list[Tensor]:
    """Selective checkpointing by operation (torchtitan): every second product and attention's output stay."""
    units = ("T*q", "T*k", "T*q", "T*f", "T*h") if mode.gated else ("T*q", "T*k", "T*q", "T*f")
    return [*(tape.new(unit, mode.autocast or mode.param) for unit in units), tape.new("B*n*S", 4.0)]
