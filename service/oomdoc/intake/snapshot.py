"""PyTorch memory snapshots (``torch.cuda.memory._dump_snapshot``) as the lines of a log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from oomdoc.isolation import run_isolated
from oomkb.errors import InputError

__all__ = ["is_snapshot", "snapshot_text"]

_MAX_BYTES: Final = 512 << 20


def is_snapshot(head: bytes) -> bool:
    """Whether a file begins like a binary pickle (protocols 2 to 5)."""
    return len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def snapshot_text(file: Path, where: str) -> str:
    """The snapshot as lines: totals, the largest holders, a traceback of the request that failed if it holds one.

    :raises InputError: when it is no memory snapshot, or needs more memory or time to read than it may have.
    """
    if file.stat().st_size > _MAX_BYTES:
        raise InputError("the snapshot is too large", where=where, hint="record fewer entries (max_entries)")
    return str(run_isolated("oomdoc.snapshots", file, where=where)["text"])
