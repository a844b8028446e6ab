"""Counting the bytes of live tensors: each storage once, rounded up to 512 bytes as the CUDA caching allocator does."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils import _python_dispatch
from torch.utils._pytree import tree_leaves

_ROUND_BYTES: Final = 512


_Mode: Any = _python_dispatch.TorchDispatchMode


@contextmanager
def scalars() -> Iterator[None]:
    """Numbers that a step reads off tensors without values (norms in Adafactor, say) are 1."""
    tensor: Any = torch.Tensor
    plain = {name: getattr(tensor, name) for name in ("item", "__bool__", "__float__")}

    def reading(name: str) -> Any:
        def read(self: Any) -> Any:
            try:
                return plain[name](self)
            except DataDependentOutputException:
                return True if name == "__bool__" else 1.0 if self.is_floating_point() else 1

        return read

    for name in plain:
        setattr(tensor, name, reading(name))
    try:
        yield
    finally:
        for name, method in plain.items():
            setattr(tensor, name, method)


class Meter(_Mode):  # type: ignore[misc, unused-ignore]
    """Counts the bytes of all live storages that operations produce."""

    def __init__(self, *, events: bool = False) -> None:
        super().__init__()
        self.seen: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.sizes: dict[int, int] = {}
        self.live = 0
        self.peak = 0
        self.events: list[tuple[str, int, int]] | None = [] if events else None
        self.owners: dict[int, tuple[str, int]] = {}
        self.op = ""

    def add(self, tensor: torch.Tensor) -> None:
        """Count the storage of a tensor, once."""
        tensor = getattr(tensor, "_local_tensor", tensor)  # a DTensor owns nothing itself
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self.seen:
            return
        size = -(-storage.nbytes() // _ROUND_BYTES) * _ROUND_BYTES
        self.seen[key] = weakref.ref(storage, partial(self._gone, key))
        self.sizes[key] = size
        self.live += size
        if self.events is not None:
            self.owners[key] = (f"{self.op} {tuple(tensor.shape)} {str(tensor.dtype)[6:]}", size)
            self.events.append((f"+{self.owners[key][0]}", size, self.live))
        self.peak = max(self.peak, self.live)

    def _gone(self, key: int, _: object) -> None:
        if self.seen.pop(key, None) is None:
            return
        size = self.sizes.pop(key)
        self.live -= size
        if self.events is not None:
            self.events.append((f"-{self.owners.pop(key)[0]}", -size, self.live))

    def resized(self, storage: torch.UntypedStorage) -> None:
        """FSDP empties and refills the storages of gathered parameters in place."""
        key = id(storage)
        if key not in self.seen:
            return
        size = -(-storage.nbytes() // _ROUND_BYTES) * _ROUND_BYTES
        change, self.sizes[key] = size - self.sizes[key], size
        self.live += change
        self.peak = max(self.peak, self.live)
        if self.events is not None and change:
            self.events.append((f"{'+' if change > 0 else '-'}resize {self.owners[key][0]}", change, self.live))

    def __enter__(self) -> Any:
        storages: Any = torch.UntypedStorage
        plain, meter = storages.resize_, self

        def resize(storage: Any, size: Any) -> Any:
            out = plain(storage, size)
            meter.resized(storage)
            return out

        self.plain_resize = plain
        storages.resize_ = resize
        return super().__enter__()

    def __exit__(self, *details: Any) -> Any:
        storages: Any = torch.UntypedStorage
        storages.resize_ = self.plain_resize
        return super().__exit__(*details)

    def reset(self) -> None:
        """Start a new peak from what is alive now."""
        self.peak = self.live

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.op = func.name()
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return out
