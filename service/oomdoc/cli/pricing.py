"""Pricing many jobs: one line in, one line out, in order, on all cores.

Jobs of the same architecture go to the same process, so that what is read of a model and played of a step is not made
twice. Rows are taken in windows, so that memory does not grow with the file.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from oomdoc.report.estimates import SCHEMA, estimate_document, refused_document
from oomkb.catalog import models
from oomkb.errors import JobError, OomdocError
from oomkb.memory.job import Job
from oomkb.pricing import price

__all__ = ["line_of", "priced_lines", "run"]

Row = tuple[int, dict[str, Any]]
_WINDOW: Final = 20_000
_ALONE: Final = 1_000
"""Rows under which a second process costs more than it saves."""
_MOST: Final = 8


def run(rows: Iterator[Row], path: Path, language: str, write: Callable[[str], Any]) -> None:
    """Price all rows and write a line for each, in their order.

    :param rows: line number and document; what reading them raises is raised after the rows before were written.
    """
    gc.freeze()  # what is loaded stays; pricing makes few cycles and very many small objects
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        while True:
            window: list[Row] = []
            failed: Exception | None = None
            try:
                window.extend(islice(rows, _WINDOW))
            except OomdocError as error:
                failed = error
            for line in priced_lines(window, path, language):
                write(line + "\n")
            if failed is not None:
                raise failed
            if len(window) < _WINDOW:
                return
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def priced_lines(window: Sequence[Row], path: Path, language: str) -> list[str]:
    """The results of some rows, in their order."""
    count = min(_cores(), _MOST, len(window) // (_ALONE // 2))
    if count < 2:
        return [line_of(row, path, language) for row in window]
    import multiprocessing

    parts = _parts(window, count)
    jobs = [([window[i] for i in part], path, language) for part in parts]
    with multiprocessing.get_context("fork").Pool(count) as pool:
        found = pool.starmap(_lines, jobs, chunksize=1)
    lines = [""] * len(window)
    for part, texts in zip(parts, found, strict=True):
        for i, text in zip(part, texts, strict=True):
            lines[i] = text
    return lines


def _cores() -> int:
    """Cores this process may use; one where processes cannot simply be forked."""
    if sys.platform != "linux":
        return 1
    return len(os.sched_getaffinity(0))


def _parts(window: Sequence[Row], count: int) -> list[list[int]]:
    """Places of the rows for each of ``count`` processes: architectures together, the largest ones first."""
    groups: dict[str, list[int]] = {}
    for place, (_, row) in enumerate(window):
        groups.setdefault(_architecture(row), []).append(place)
    share = -(-len(window) // count)
    parts: list[list[int]] = [[] for _ in range(count)]
    for group in sorted(groups.values(), key=len, reverse=True):
        for start in range(0, len(group), share):
            min(parts, key=len).extend(group[start : start + share])
    return parts


def _architecture(row: dict[str, Any]) -> str:
    job = row.get("job")
    model = job.get("model") if isinstance(job, dict) else None
    if isinstance(model, dict):
        return str(model.get("model_type"))
    found = models.find(model) if isinstance(model, str) else None
    return str(found.config.get("model_type")) if found else ""


def _lines(window: Sequence[Row], path: Path, language: str) -> list[str]:
    return [line_of(row, path, language) for row in window]


def line_of(numbered: Row, path: Path, language: str) -> str:
    """The result of one row: an estimate, or why there is none."""
    number, row = numbered
    identifier = row.get("id")
    try:
        if not isinstance(row.get("job"), dict):
            raise JobError("no job", where=f"{path}:{number}", hint='each line is {"id": ..., "job": {...}}')
        priced = price(Job.from_document(row["job"]))
        document = estimate_document(priced.estimate, identifier=identifier, language=language)
    except OomdocError as error:
        document = refused_document(SCHEMA, identifier, error)
    return json.dumps(document, ensure_ascii=False)
