"""Following the store's submitted cases: each replica mirrors them into a private case folder of its own.

The loader and the index notice new files by themselves, so a case added through one replica is found by the
others within a refresh.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Final

from oomdoc.api.work import Work
from oomdoc.store.store import StoreDown
from oomkb.records.files import case_files, case_id
from oomkb.records.loader import shipped_ids
from oomkb.state import state_dir

# Sequence numbers are given out before commit: one may become visible after a larger one.
_LOOK_BACK: Final = 64


class Corpus:
    """Mirrors submitted cases and says when something was new."""

    def __init__(self, work: Work, folder: Path | None = None) -> None:
        self._work = work
        self._folder = folder or state_dir() / "submitted-cases"
        self._sequence = 0
        self._stop = threading.Event()
        # The follower and a caller may refresh at the same time: two writers of one mirror file would race.
        self._refreshing = threading.Lock()
        self._thread = threading.Thread(target=self._follow, name="oomdoc-corpus", daemon=True)

    def start(self) -> None:
        """Begin to follow; the folder joins ``OOMDOC_CASES`` for this process."""
        self._folder.mkdir(parents=True, exist_ok=True)
        known = [p for p in os.environ.get("OOMDOC_CASES", "").split(os.pathsep) if p]
        if str(self._folder) not in known:
            os.environ["OOMDOC_CASES"] = os.pathsep.join([*known, str(self._folder)])
        self._thread.start()

    def stop(self) -> None:
        """Stop following; the folder leaves ``OOMDOC_CASES`` again."""
        self._stop.set()
        known = [p for p in os.environ.get("OOMDOC_CASES", "").split(os.pathsep) if p and p != str(self._folder)]
        os.environ["OOMDOC_CASES"] = os.pathsep.join(known)
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def refresh(self) -> int:
        """Fetch what is new; how many cases. Callers take turns.

        :raises StoreDown: where the store does not answer.
        """
        with self._refreshing:
            return self._refresh()

    def _refresh(self) -> int:
        store, shipped = self._work.store(), shipped_ids()
        new = self._withdrawn(store.case_ids())
        for case in store.cases_after(max(0, self._sequence - _LOOK_BACK)):
            path = self._folder / f"{case.id}.yaml"
            # A later version may ship a case of the same id: the shipped one counts.
            if case.id in shipped:
                continue
            if not path.exists() or path.read_text(encoding="utf-8") != case.yaml:
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_suffix(f".{os.getpid()}.part")
                partial.write_text(case.yaml, encoding="utf-8")
                partial.replace(path)
                new += 1
            self._sequence = max(self._sequence, case.sequence)
        if new:
            self._work.answers.clear()
            self._work.cases_changed()
        return new

    def _withdrawn(self, known: set[str]) -> int:
        """Delete the mirrors of cases that are in the store no more (or of another store); how many."""
        gone = [path for path in case_files(self._folder) if case_id(path) not in known]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    def _follow(self) -> None:
        while not self._stop.is_set():
            # /readyz tells about a store that is down; the next round tries again.
            with contextlib.suppress(StoreDown, OSError):
                self.refresh()
            self._stop.wait(self._work.settings.case_refresh_s)
