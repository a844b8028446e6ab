"""One answer per row of a JSONL file, in the rows' order, on all cores."""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing import get_context
from typing import Any, Final

from oomkb.errors import OomdocError

Row = tuple[int, dict[str, Any]]
"""A line number and the object on that line."""
Work = Callable[[Row], dict[str, Any]]

_MIN_ROWS_EACH: Final = 8
"""Rows below which another process, which loads the index, costs more than it saves."""
MAX_PROCESSES: Final = 8
_ROWS_AHEAD: Final = 4
"""Rows per process that wait beside the one it works on."""


def answered(work: Work, rows: Iterator[Row], *, streamed: bool) -> Iterator[dict[str, Any]]:
    """``work`` on each row, in their order; with many rows in processes, which need ``work`` to be picklable.

    :param streamed: whether who writes the rows may wait for an answer before the next: then none is read ahead.
    :raises OomdocError: what reading the rows raises, after the answers of the rows before.
    """
    if streamed:
        yield from map(work, rows)
        return
    failed: list[OomdocError] = []
    readable = _until_failure(rows, failed)
    usable = cores()
    head = list(islice(readable, usable * _MIN_ROWS_EACH))
    processes = min(usable, MAX_PROCESSES, len(head) // _MIN_ROWS_EACH)
    everything = chain(head, readable)
    yield from map(work, everything) if processes < 2 else _in_processes(work, everything, processes)
    if failed:
        raise failed[0]


def _in_processes(work: Work, rows: Iterator[Row], processes: int) -> Iterator[dict[str, Any]]:
    # Forked before this process starts threads of its own: an index or an encoder is loaded in each.
    pool = ProcessPoolExecutor(processes, mp_context=get_context("fork"), initializer=_begin)
    try:
        running = deque(pool.submit(work, row) for row in islice(rows, processes * (1 + _ROWS_AHEAD)))
        while running:
            yield running.popleft().result()
            running.extend(pool.submit(work, row) for row in islice(rows, 1))
    except BrokenProcessPool as error:
        hint = "look for the OOM killer in dmesg; taskset -c 0 runs it in one process"
        raise OomdocError("a process that answered rows was killed", where="--batch", hint=hint) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _until_failure(rows: Iterator[Row], failed: list[OomdocError]) -> Iterator[Row]:
    """The rows up to one that cannot be read, whose error is put into ``failed``."""
    try:
        yield from rows
    except OomdocError as error:
        failed.append(error)


def _begin() -> None:
    """One core for each process; an interrupt is the parent's to answer."""
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def cores() -> int:
    """Cores this process may use; one where processes cannot simply be forked."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
