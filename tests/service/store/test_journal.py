"""The thread that writes diagnoses outlives whatever happens to those who wait for it."""

from __future__ import annotations

import threading
from pathlib import Path

from oomdoc.store.journal import Journal
from oomdoc.store.store import DiagnosisRow, open_store


def test_who_waits_no_longer_ends_nothing(tmp_path: Path) -> None:
    store, gate = open_store(f"sqlite:///{tmp_path}/x.db"), threading.Event()

    def slow() -> object:
        gate.wait(5)
        return store

    journal = Journal(slow)  # type: ignore[arg-type]
    rows = [DiagnosisRow(f"{n:024x}", "en", "text", "{}") for n in range(4)]
    first = journal.add(rows[0])
    others = [journal.add(row) for row in rows[1:3]]
    for future in (first, *others):
        future.cancel()
    gate.set()
    assert journal.add(rows[3]).result(5) == rows[3].id
    journal.close()
    assert store.diagnosis(rows[3].id) is not None
    store.close()
