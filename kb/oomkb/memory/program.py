"""A whole step on the tape, once per mode: instants as linear forms, for any number of layers.

Three kinds of position are played: the first layer, one of every kind in the middle, the last. What the other layers
add is the difference that one middle layer makes: its saved tensors before its backward pass, its gradients after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.memory.blocks import Layer
from oomkb.memory.forms import Form, minus, plus
from oomkb.memory.layer_simulation import simulated
from oomkb.memory.mode import Head, Mode
from oomkb.memory.ops import Ops, each, fresh
from oomkb.memory.preference_losses import LOGITS, log_softmax, packed_log_probs, preference
from oomkb.memory.tape import Leaf, Tape, Tensor, parameter

_IN_PLACE: Final = ("in-place", "in-place, held", "vocab-parallel", "over")
Instants = tuple[Form, ...]
"""The same object wherever the same instants happen."""
Key = tuple[str, str]
"""A part of the model, and what share of the layers between is alive: ``saved``, ``kept``, ``grads`` or ``none``."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Instants of one step: for each phase, forms to be added to ``count``-times forms of the layers between."""

    instants: Mapping[str, Mapping[Key, list[tuple[Form, Instants]]]]
    """By phase, then by part and share of other layers: what is alive throughout, and instants above it."""
    saved: Mapping[str, Form]
    """By layer kind: what one more layer keeps between forward and backward."""
    grads: Mapping[str, Form]
    kept: Mapping[str, Form]
    after_forward: Form
    kinds: tuple[str, ...]


class Training:
    """One step of a small model: the plan of positions, played forward, through the loss and backward."""

    def __init__(self, mode: Mode, head: Head, kinds: tuple[str, ...]) -> None:
        self.mode, self.head = mode, head
        self.tape = Tape(keep_grads=mode.grads != "none")
        self.ops = Ops(self.tape, autocast=mode.autocast, cuda=mode.cuda)
        self.positions = list(kinds)
        self.top = len(kinds) - max(1, head.active)
        """The first position above which no other layers are."""
        self.below = replace(mode, trained=False) if head.active else mode
        self.instants: dict[str, dict[Key, list[tuple[Form, Instants]]]] = {}
        self.passed: tuple[Form, Instants] | None = None
        """The layer whose backward pass has just ended."""
        self.entered: Form = {}
        self.saved: dict[str, Form] = {}
        self.grads: dict[str, Form] = {}
        self.before: list[object] = []
        """What the micro-batch before still holds (:attr:`Head.outlived`)."""
        self.outlived: dict[str, Form] = {}

    def note(self, phase: str, share: str, part: str) -> None:
        """Keep the instants since the last call, those of a layer's backward pass as they were played."""
        found: tuple[Form, Instants] = self.passed or ({}, self.tape.take_instants())
        self.add(phase, share, part, found)
        if self.passed is not None:
            self.passed = None
            self.tape.drop_instants()

    def add(self, phase: str, share: str, part: str, found: tuple[Form, Instants]) -> None:
        """Keep instants above what is alive throughout them."""
        self.instants.setdefault(phase, {}).setdefault((part, share), []).append(found)

    # -- forward -------------------------------------------------------------------------------------------------

    def embed(self) -> Tensor:
        """Token (and position) embeddings."""
        head, mode, tape, ops = self.head, self.mode, self.tape, self.ops
        source = self.table = parameter("V*e", mode.param, trained=head.trained)
        if head.embed_grad and not head.trained:
            source = Tensor(None, "T*h", mode.param, Leaf("T*h", mode.param, keep=False))

        def backward(tape: Tape, grad: Tensor, saved: object, needs: object) -> tuple[Tensor | None]:
            return (tape.new("g:V*e", grad.size),) if head.trained else (None,)

        node = tape.record((source,), (), backward)
        x = tape.new("T*h", mode.param, node)
        if head.learned:
            rows = parameter("rows*h", mode.param, trained=head.trained)
            places = tape.new("T*h", mode.param, tape.record((rows,), (), fresh(1, rows.unit)))
            x = ops.add(x, places)
            del places
        if head.scaled:
            x = ops.scale(x)
        if head.embed_norm:
            x = ops.layer_norm(x, Tensor(None, "g:h", mode.param), "T")
        return ops.dropout(x, head.embed_dropout)

    def run_layer(self, x: Tensor, kind: str, share: str) -> Tensor:
        """One layer, played elsewhere: its instants upon what is alive here, and what it keeps."""
        tape, linked = self.tape, x.node is not None
        mode = self.below if share == "none" else self.mode
        play = simulated(mode, kind, self.head.ckpt, x.size, linked)
        base = tape.less({"T*h": x.size})
        held, cast = tape.hold(play.held), tape.hold(play.casts)
        if cast is not None:
            tape.casts[Leaf("in", 0.0)] = cast
        node = None
        if play.backward is not None:
            trigger = Tensor(None, "in", 0.0, x.node or Leaf("in", x.size, keep=False))
            kept = x.detached() if play.keeps_input else None

            def backward(tape: Tape, grad: Tensor, saved: Any, needs: object) -> tuple[Tensor | None]:
                found = play.backward if grad.size == play.size else None
                found = found or simulated(mode, kind, self.head.ckpt, x_size, linked, grad.size).backward
                assert found is not None
                self.passed = (tape.less(found.start), found.instants)
                left = tape.hold(found.left)
                if left is not None:
                    tape.stuck.append(left)
                return (None if found.size is None else tape.new("T*h", found.size),)

            x_size = x.size
            node = tape.record((trigger,), (held, kept), backward)
            if self.head.outlived:
                old = {unit: size for unit, size in play.backward.left.items() if unit.startswith("T*")}
                self.outlived[kind] = old
                self.before.append(tape.hold(old))
        out = tape.new("T*h", play.size, node)
        del x, held
        self.add("forward", share, "layer", (base, play.forward))
        return out

    def forward(self) -> Tensor:
        """Embedding and all positions; notes forms and what each kind of layer adds."""
        x = self.embed()
        self.outer: list[object] = []
        mask = self.mask()
        self.note("forward", "none", "embedding")
        for i, kind in enumerate(self.positions):
            before = self.tape.mark()
            x = self.run_layer(self.boundary(x, i - 1), kind, "saved" if i >= self.top else "none")
            self.tape.drop_instants()
            if 0 < i < self.top:
                self.saved[kind] = minus(self.tape.mark(), before)
        x = self.boundary(x, len(self.positions) - 1)
        x = Layer(self.tape, self.mode).norm(x, "final") if self.head.final_norm else x
        if self.head.ckpt != "none":
            self.outer.append(mask)  # a checkpoint keeps every argument of the layer
        del mask
        self.note("forward", "saved", "layer")
        return x

    def mask(self) -> list[Tensor]:
        """The attention masks of the model, made once: boolean for SDPA, additive for eager attention."""
        if not self.mode.mask or self.mode.attention not in ("sdpa", "eager"):
            return []
        if self.mode.slopes:  # the distances of every head added in, in the model's dtype
            return [self.tape.new("B*n*S*S", self.mode.param)]
        size = 1.0 if self.mode.attention == "sdpa" else self.mode.param
        return [self.tape.new("B*S*S", size) for _ in range(self.head.masks)]

    def release_layer_grads(self) -> None:
        """Under a sharding wrapper, a layer's gradients leave once it is done; those of the root stay to the end."""
        if self.mode.grads == "layer":
            for leaf in [leaf for leaf in self.tape.grads if leaf.unit != "g:V*e"]:
                del self.tape.grads[leaf]

    def kept(self, kind: str) -> Form:
        """What one more layer keeps once autocast's cache of cast weights is gone."""
        saved = minus(self.saved.get(kind, {}), self.outlived.get(kind, {}))
        if self.head.ckpt == "none":
            return saved
        return {unit: size for unit, size in saved.items() if not unit.startswith("w:")}

    def boundary(self, x: Tensor, below: int) -> Tensor:
        """Between position ``below`` and the next: in backward, what came before belongs to the one above."""
        node = self.tape.record((x,), (), lambda tape, grad, saved, needs: self.crossed(grad, below))
        return x.view(node)

    def crossed(self, grad: Tensor, below: int) -> tuple[Tensor]:
        """Note the backward pass of the position above ``below``."""
        above, found = below + 1, self.passed
        if above >= len(self.positions):
            self.note("backward", "kept", "logits")
        else:
            part = "top" if above >= self.top else "layer" if above else "first"
            self.note("backward", "kept" if above else "grads", part)
            if part == "layer" and found is not None:
                self.add("backward", "grads", "layer", found)
            self.release_layer_grads()
            self.tape.drop_instants()
            if part == "layer":
                kind = self.positions[above]
                self.grads[kind] = plus(minus(self.tape.mark(), self.entered), self.kept(kind))
        self.entered = self.tape.mark()
        return (grad.view(),)

    # -- loss and backward ---------------------------------------------------------------------------------------

    def logits(self, x: Tensor) -> Tensor:
        """The output head, with soft-capping and scaling where the family has them."""
        ops, head = self.ops, self.head
        weight = self.table if head.tied else parameter("V*e", self.mode.param, trained=head.trained)
        return self.scaled(ops, ops.linear(x, weight, LOGITS))

    def scaled(self, ops: Ops, logits: Tensor) -> Tensor:
        """The logits as the family hands them out: divided, or capped softly."""
        if self.head.upcast == "over":  # the loss's kernel divides and caps what it reads
            return logits
        if self.head.scaled_logits:
            logits = ops.scale(logits)
        if self.head.softcap:
            logits = ops.scale(logits)
            logits = ops.unary(logits, keeps="output")
            logits = ops.scale(logits)
        return logits

    def cross_entropy(self, given: list[Tensor]) -> Tensor:
        """Upcast, log-softmax, gather: two fp32 copies, of which the second is kept; ``given`` loses the logits."""
        tape, ops, logits = self.tape, self.ops, given.pop()
        if self.head.upcast == "compiled":  # one kernel each way: the logits stay, their gradient is made beside them
            node = tape.record((logits,), (logits.detached(),), fresh(1, LOGITS, logits.size))
            return Tensor(None, LOGITS, 0.0, node)
        style = self.head.upcast
        own = style == "plain" or style.startswith("script")
        narrow = style == "over" or (own and (not self.mode.autocast or style.endswith(" outside")))
        shifted = None  # a name in the loss function
        if style.startswith(("plain", "script-shifted")):
            shifted = logits = ops.copy(logits)
        wide = logits if narrow else ops.cast(logits, 4.0)
        if self.head.upcast.startswith("kept"):
            self.outer.append((wide if self.head.upcast == "kept wide" else logits).detached())
        del logits
        if style in ("shift", *_IN_PLACE[:2]):
            wide = ops.copy(wide)
        if self.head.upcast in _IN_PLACE:  # the gradient is written over the logits
            node = tape.record((wide,), (wide.detached(),), lambda t, g, s, n: (s[0].view(),))
            return Tensor(None, LOGITS, 0.0, node)
        out = log_softmax(tape, wide)
        del shifted
        return out

    def play(self) -> Program:
        """The whole step."""
        x = self.forward()
        grad = None
        if self.head.loss == "hidden":
            root, size = x.node, x.size
            at_hand = self.head.fused and self.head.trained
            if at_hand:
                root = self.fused_loss(x)
            del x
            self.note("loss", "saved", "logits")
            after: Form = self.kept_without_casts()
            grad = self.tape.new("T*h", 0.0 if at_hand else size)
        elif self.head.loss == "preference":
            given = [x]
            del x
            root, after = preference(self, given)
        else:
            given = [self.logits(x)]
            held = [] if self.head.loss == "log-probs" or self.head.upcast == "in-place" else given[:]
            loss = self.log_probs(given) if self.head.loss == "log-probs" else self.cross_entropy(given)
            self.note("loss", "saved", "logits")
            root = loss.node
            del held, loss, x
            after = self.kept_without_casts()
        grad = grad or self.tape.new(LOGITS, 0.0)
        self.tape.drop_instants()
        self.backward(root, grad)
        kept = {kind: self.kept(kind) for kind in self.saved}
        return Program(self.instants, self.saved, self.grads, kept, after, tuple(self.positions))

    def kept_without_casts(self) -> Form:
        """What is alive once the loss is there: autocast's cache is emptied, the last micro-batch's loss let go."""
        self.tape.casts.clear()
        self.before.clear()
        return self.tape.mark()

    def fused_loss(self, x: Tensor) -> Any:
        """A fused loss has its gradients after forward, a tiled one makes them in backward."""
        size, tape = self.mode.param, self.tape
        weight = self.table if self.head.tied else parameter("V*e", size, trained=True)
        if self.head.style == "chunked":
            return tape.record((x, weight), (), each(("T*h", x.size), ("g:V*e", size)))
        grads = (tape.new("T*h", x.size), tape.new("g:V*e", size))
        return tape.record((x, weight), grads, lambda t, g, s, n: (s[0].view(), s[1].view()))

    def log_probs(self, given: list[Tensor]) -> Tensor:
        """Log-probabilities of the chosen tokens, row by row in the logits' dtype (TRL's ``selective_log_softmax``).

        Under autocast accelerate has upcast the model's outputs. Logits are divided by the temperature in place; the
        entropy goes in chunks of rows; the passes without gradients (old, reference) hold less than this one.
        """
        tape, logits = self.tape, given.pop()
        if self.head.divides.startswith("packed"):
            return packed_log_probs(self, logits)
        if self.head.divides in ("copy", "kernel"):  # accelerate's autocast is the model's alone
            tape.casts.clear()
        if self.mode.autocast:
            logits = self.ops.cast(logits, 4.0)
        size = logits.size
        if self.head.divides == "kernel":
            return Tensor(None, LOGITS, 0.0, tape.record((logits,), (logits.detached(),), fresh(1, LOGITS, size)))
        if self.head.divides == "copy":
            return self.row_by_row(logits)
        if self.head.holds:
            self.outer.append(logits.detached())
        if self.head.divides:
            # ``CopySlices`` (torch ``csrc/autograd/functions/tensor.cpp``): the gradient, its slice's, the quotient.
            logits = logits.view(tape.record((logits,), (), fresh(3)))
        return tape.keeping((logits,), LOGITS, size, fresh(1, LOGITS, size))

    def row_by_row(self, logits: Tensor) -> Tensor:
        """Logits divided in a copy while the outputs keep their name, then row after row, then the entropy.

        In backward rows' gradients, joined; beside them zeros and what is scattered into those: of one row, or in fp32
        of all.
        """
        tape, size = self.tape, logits.size
        wide = size >= 4.0
        divided = self.ops.scale(self.ops.part(logits, LOGITS))
        saved = divided.detached() if wide else tape.new(LOGITS, size)
        node = tape.record((divided,), (saved,), fresh(1 + (self.head.one_row or wide) + wide, LOGITS, size))
        chunk = tape.new("384*W", size)
        self.note("loss", "saved", "logits")
        del chunk
        return Tensor(None, LOGITS, 0.0, node)

    def backward(self, root: Any, grad: Tensor | None) -> None:
        """The backward pass; what is left below the first layer is the embedding's."""
        self.entered = self.tape.mark()
        if root is not None and grad is not None:
            self.tape.backward(root, grad)
        self.note("backward", "grads", "embedding")


@lru_cache(maxsize=4096)
def program(mode: Mode, head: Head, kinds: tuple[str, ...]) -> Program:
    """The compiled step."""
    return Training(mode, head, kinds).play()
