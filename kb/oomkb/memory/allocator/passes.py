"""Forward and backward of a whole model on a tape that writes down every allocation and free.

The operations are those of :mod:`oomkb.memory.blocks` and :mod:`oomkb.memory.program`, the same that the estimate's
instants come from; here every layer is played where it stands, and sizes are bytes for given tokens and lengths. So the
most that is alive at once is the estimate's own figure (``tests/kb/memory/test_allocator_steps.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from oomkb.memory.allocator.events import Recorder
from oomkb.memory.blocks import Layer
from oomkb.memory.forms import Form, Units
from oomkb.memory.layer_simulation import ckpt_of, run_layer
from oomkb.memory.mode import Head, Mode
from oomkb.memory.ops import Ops
from oomkb.memory.program import Training
from oomkb.memory.tape import Leaf, Node, Store, Tape, Tensor

SizeOf = Callable[[str], float]


class Hooks:
    """What a sharding wrapper does around a layer, by itself nothing; ``-1`` is before the first, ``layers`` after the
    last one.
    """

    def before(self, layer: int) -> None:
        """Its forward pass begins."""

    def after(self, layer: int) -> None:
        """Its forward pass is over."""

    def turn(self) -> None:
        """The forward pass is over, the loss with it."""

    def back(self, layer: int) -> None:
        """Its backward pass begins."""

    def done(self, layer: int, grads: Callable[[], None]) -> None:
        """Its backward pass is over; ``grads`` lets its gradients go."""
        grads()


class _Kept(Store):
    """A storage whose end is written down."""

    __slots__ = ("number",)

    def __init__(self, tape: RecordingTape, number: int) -> None:
        self.tape, self.size, self.number = tape, 0, number

    def __del__(self) -> None:
        tape = self.tape
        assert isinstance(tape, RecordingTape)
        tape.recorder.free(self.number)


class RecordingTape(Tape):
    """A tape that writes allocations down."""

    def __init__(self, recorder: Recorder, size_of: SizeOf, *, keep_grads: bool) -> None:
        super().__init__(keep_grads=keep_grads)
        self.recorder, self._size_of = recorder, size_of
        self.where = ""

    def new(self, unit: str, size: float, node: Node | None = None) -> Tensor:
        """Allocate ``unit`` elements of ``size`` bytes."""
        if self._ghost or not size:
            return Tensor(None, unit, size, node)
        number = self.recorder.alloc(size * self._size_of(unit), f"{self.where}: {unit} x {size:g} bytes")
        return Tensor(_Kept(self, number) if number else None, unit, size, node)

    def hold(self, form: Form) -> Tensor | None:
        """Bytes of several units in one storage; ``None`` for none."""
        number = self.recorder.alloc(sum(size * self._size_of(unit) for unit, size in form.items()), self.where)
        return Tensor(_Kept(self, number), "", 0.0) if number else None

    def mark(self) -> dict[str, float]:
        """Nothing: forms are not kept here."""
        return {}

    def take_instants(self) -> list[Form]:
        """None: instants are not kept here."""
        return []


def sizes_of(values: Mapping[str, float], tokens: float, square: float) -> SizeOf:
    """Elements of a unit for so many tokens and so large a sum of squared lengths."""
    units, scale = Units(values, ""), (1.0, tokens, square)
    known: dict[str, float] = {}

    def size(unit: str) -> float:
        found = known.get(unit)
        if found is None:
            kind, factor = units.factor(unit)
            found = known[unit] = factor * scale[kind]
        return found

    return size


class Pass(Training):
    """One micro-batch: every layer's forward and backward pass, and the loss between them."""

    def __init__(
        self,
        mode: Mode,
        head: Head,
        kinds: Sequence[str],
        tape: RecordingTape,
        *,
        hooks: Hooks | None = None,
        before: Sequence[Tensor] = (),
        chunked: float = 0.0,
    ) -> None:
        super().__init__(mode, head, tuple(kinds))
        self.tape: RecordingTape = tape
        self.ops = Ops(tape, autocast=mode.autocast, cuda=mode.cuda)
        self.hooks: Hooks = hooks or Hooks()
        self.before = list(before)
        self.chunked = chunked
        """Bytes of a loss that goes chunk by chunk, which the tape does not play."""

    def note(self, phase: str, share: str, part: str) -> None:
        """Nothing: every event is written down as it comes."""
        if phase == "loss":
            recorder = self.tape.recorder
            recorder.free(recorder.alloc(self.chunked, "loss: chunk of logits"))
            self.tape.where = "backward, head"
            self.hooks.turn()

    def kept(self, kind: str) -> Form:
        """Nothing."""
        return {}

    def boundary(self, x: Tensor, below: int) -> Tensor:
        """Between position ``below`` and the next, forward and backward."""
        last = len(self.positions) - 1
        self.hooks.after(below)
        self.tape.where = f"forward, layer {below + 1}" if below < last else "forward, head"
        self.hooks.before(below + 1)
        return super().boundary(x, below)

    def crossed(self, grad: Tensor, below: int) -> tuple[Tensor]:
        """What stands above has its gradients."""
        self.hooks.done(below + 1, self.release_layer_grads if below < len(self.positions) - 1 else self.head_grads)
        self.tape.where = f"backward, layer {below}" if below >= 0 else "backward, embedding"
        self.hooks.back(below)
        return (grad.view(),)

    def forward(self) -> Tensor:
        """Embedding and all layers."""
        self.tape.where = "forward, embedding"
        self.hooks.before(-1)
        return super().forward()

    def run_layer(self, x: Tensor, kind: str, share: str) -> Tensor:
        """One layer where it stands."""
        mode = self.below if share == "none" else self.mode
        ckpt = ckpt_of(mode, self.head.ckpt, linked=x.node is not None)
        return run_layer(self.tape, mode, Layer(self.tape, mode, kind), x, ckpt)

    def head_grads(self) -> None:
        """Where a wrapper shards the head by itself, its gradient goes with it."""
        if getattr(self.hooks, "apart", False):
            self.tape.grads.clear()
        self.release_layer_grads()

    def finish(self) -> tuple[dict[Leaf, Tensor], list[Tensor]]:
        """The parameters' gradients, and what hangs on nodes of the graph; everything else goes."""
        grads, stuck = self.tape.grads, self.tape.stuck
        self.tape.grads, self.tape.stuck = {}, []
        self.outer.clear()
        self.tape.casts.clear()
        return grads, stuck
