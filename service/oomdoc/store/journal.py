"""Diagnoses written by one thread, many in a transaction: one fsync answers for all that came while the last one ran.

Each id is handed out only after the commit that holds it, so an acknowledged id always exists.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from oomdoc.store.store import DiagnosisRow, Store, StoreDown
from oomkb.errors import OomdocError

_MAX_BATCH: Final = 256
_MAX_WAITING: Final = 2048

_Entry = tuple[DiagnosisRow, "Future[str]"]


class Journal:
    """Keeps diagnoses. ``store`` is asked anew for every batch: it may be down and come back."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._queue: queue.Queue[_Entry | None] = queue.Queue(_MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def add(self, row: DiagnosisRow) -> Future[str]:
        """The id of ``row`` once it is committed; the future fails with :class:`StoreDown`."""
        kept: Future[str] = Future()
        self._start()
        try:
            self._queue.put_nowait((row, kept))
        except queue.Full:
            kept.set_exception(StoreDown("the store is too slow", hint="see /readyz and the database's log"))
        return kept

    def close(self) -> None:
        """Write what is waiting, then stop."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout=30)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="oomdoc-journal", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        going = True
        while going:
            batch, going = self._next()
            if batch:
                self._write(batch)

    def _next(self) -> tuple[list[_Entry], bool]:
        """Wait for one entry and take what else is there; False after the last."""
        batch: list[_Entry] = []
        entry = self._queue.get()
        while True:
            if entry is None:
                return batch, False
            # From now on nobody can cancel it: a cancelled one would end this thread when it is told.
            if entry[1].set_running_or_notify_cancel():
                batch.append(entry)
            if len(batch) >= _MAX_BATCH:
                return batch, True
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return batch, True

    def _write(self, batch: list[_Entry]) -> None:
        try:
            self._store().add_diagnoses([row for row, _ in batch])
        except OomdocError as error:
            down = error if isinstance(error, StoreDown) else StoreDown(error.message)
            for _, kept in batch:
                kept.set_exception(down)
        except Exception as error:  # the thread must outlive whatever a driver raises
            for _, kept in batch:
                kept.set_exception(StoreDown(f"the store does not answer ({type(error).__name__})"))
        else:
            for row, kept in batch:
                kept.set_result(row.id)
