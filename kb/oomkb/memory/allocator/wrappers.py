"""What sharding wrappers allocate around the layers, event by event.

FSDP2 (``torch.distributed.fsdp._fully_shard``, torch 2.13): a gather writes one flat buffer on a stream of its own and
copies out of it; the buffer lives until the next unit's copies are made; backward fetches one unit ahead; a unit's
gradients are copied into one flat buffer of the reduction dtype, whose shard is made on the reduction's stream. FSDP1
gathers into a flat parameter that is used in place and recorded on the computing stream, so that it comes back only
when that has caught up. ZeRO-3's gathers are one block: which modules it holds is its coordinator's, not the layers'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from oomkb.memory.allocator.events import Recorder
from oomkb.memory.allocator.passes import Hooks

_COMPUTE: Final = 0
_GATHER: Final = 1
_REDUCE: Final = 2
_ROOT: Final = -1


class Fsdp2(Hooks):
    """One unit a layer, the root around them."""

    def __init__(
        self,
        recorder: Recorder,
        units: Sequence[Sequence[float]],
        root: Sequence[float],
        *,
        reshard: bool,
        reduce: float,
        shards: int,
        cast: bool = False,
        apart: bool = False,
    ) -> None:
        """What is sharded.

        :param units: by layer, bytes of each parameter as it is gathered.
        :param root: the same of the root.
        :param reduce: bytes of a reduced gradient over those of a gathered weight; 0 without gradients.
        :param cast: shards are held in another dtype than the one that is gathered.
        :param apart: embedding and head are units of their own (torchtitan's ``apply_fsdp``), not parts of the root.
        """
        self.recorder, self.units, self.root = recorder, units, root
        self.reshard, self.reduce, self.shards, self.cast = reshard, reduce, shards, cast
        self.apart = apart and len(root) > 1
        self.copies: dict[int, list[int]] = {}
        self.buffers: dict[int, int] = {}
        self.waiting = 0
        """The flat buffer of the unit before."""
        self.reducing = 0
        self.grads: list[int] = []

    def _sizes(self, unit: int) -> Sequence[float]:
        if unit == len(self.units):
            return self.root[1:]
        return self.units[unit] if unit != _ROOT else self.root[:1] if self.apart else self.root

    def _gather(self, unit: int) -> None:
        if unit in self.copies or unit in self.buffers:
            return
        if self.shards < 2:  # copies are made of the parameters themselves
            self.buffers[unit] = 0
            return
        size = sum(self._sizes(unit))
        cast = self.recorder.alloc(size / self.shards if self.cast else 0.0, _name(unit, "cast shard"), _GATHER)
        self.buffers[unit] = self.recorder.alloc(size, _name(unit, "gathered"), _GATHER)
        self.recorder.free(cast)

    def _copy_out(self, unit: int, *, forward: bool) -> None:
        """In forward the buffer stays until the next unit's copies are made (``wait_for_unshard``)."""
        if unit in self.copies:
            return
        self._gather(unit)
        self.recorder.free(self.waiting)
        self.waiting = 0
        self.copies[unit] = self.recorder.each(self._sizes(unit), _name(unit, "weights"), _COMPUTE)
        if forward:
            self.waiting = self.buffers.pop(unit)
        else:
            self.recorder.free(self.buffers.pop(unit))

    def _drop(self, unit: int) -> None:
        self.recorder.free(*self.copies.pop(unit, ()))

    def before(self, layer: int) -> None:
        """Gather the unit; the root stays gathered."""
        if layer < len(self.units) or self.apart:
            self._copy_out(layer, forward=True)

    def after(self, layer: int) -> None:
        """Give it back."""
        if self.reshard and layer < len(self.units) and (layer != _ROOT or self.apart):
            self._drop(layer)

    def turn(self) -> None:
        """The root's forward pass is over: the last buffer goes, and backward fetches the last unit."""
        self.recorder.free(self.waiting)
        self.waiting = 0
        self._gather(len(self.units) - 1)

    def back(self, layer: int) -> None:
        """Gather it once more and the next one ahead."""
        if layer < 0 and not self.apart:
            return
        self._copy_out(layer, forward=False)
        if layer > 0:
            self._gather(layer - 1)

    def done(self, layer: int, grads: Callable[[], None]) -> None:
        """Reduce the unit's gradients."""
        if layer < len(self.units) or self.apart:
            self._drop(layer)
            self._reduce(layer, grads)

    def _reduce(self, unit: int, grads: Callable[[], None]) -> None:
        if not self.reduce:
            grads()
            return
        size = sum(self._sizes(unit)) * self.reduce
        self.recorder.free(self.reducing)
        self.reducing = self.recorder.alloc(size, _name(unit, "gradients, to be reduced"), _COMPUTE)
        grads()
        self.grads.append(self.recorder.alloc(size / self.shards, _name(unit, "gradients, reduced"), _REDUCE))

    def end(self, grads: Callable[[], None]) -> list[int]:
        """The root's gradients; returns the blocks of all reduced gradients."""
        self._drop(_ROOT)
        self.recorder.free(self.waiting)
        self.waiting = 0
        self._reduce(_ROOT, grads)
        self.recorder.free(self.reducing, *self.buffers.values())
        self.reducing = 0
        self.buffers.clear()
        found, self.grads = self.grads, []
        return found


class Fsdp1(Fsdp2):
    """Flat parameters, used in place; their frees wait for the computing stream."""

    def _copy_out(self, unit: int, *, forward: bool) -> None:
        if unit in self.copies:
            return
        self._gather(unit)
        flat = self.buffers.pop(unit)
        self.recorder.use(flat, _COMPUTE)
        self.copies[unit] = [flat]

    def _drop(self, unit: int) -> None:
        super()._drop(unit)
        # The rate limiter lets two gathers be under way, then waits for the oldest one's computation.
        if unit % 2:
            self.recorder.complete(_COMPUTE)

    def before(self, layer: int) -> None:
        """Gather the unit and, under the rate limiter, one ahead."""
        super().before(layer)
        if 0 <= layer < len(self.units) - 1:
            self._gather(layer + 1)


def _name(unit: int, what: str) -> str:
    return f"{'root' if unit == _ROOT else f'layer {unit}'}: {what}"
