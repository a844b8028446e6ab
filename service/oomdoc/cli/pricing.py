"""Pricing many jobs: one line in, one line out, in order, on all cores.

Rows are taken in windows, so that memory does not grow with the file.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from oomdoc.cli.rows import MAX_PROCESSES, Row, cores
from oomdoc.report.estimates import SCHEMA, estimate_document, refused_document
from oomkb.catalog import models
from oomkb.errors import JobError, OomdocError
from oomkb.memory.job import Job
from oomkb.pricing import price_planned

_WINDOW: Final = 20_000
_ROWS_EACH: Final = 500
"""Rows under which another process costs more than it saves."""


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
    line = partial(line_of, path=path, language=language)
    processes = min(cores(), MAX_PROCESSES, len(window) // _ROWS_EACH)
    if processes < 2:
        return [line(row) for row in window]
    # One architecture after the other: what is read of a model and played of a step is made in one process.
    order = sorted(range(len(window)), key=lambda place: _architecture(window[place][1]))
    try:
        with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
            lines = pool.map(line, [window[place] for place in order], chunksize=-(-len(order) // processes))
            return [text for _, text in sorted(zip(order, lines, strict=True))]
    except BrokenProcessPool:  # whatever ended one of them: what it would have said is said here
        return [line(row) for row in window]


def _architecture(row: dict[str, Any]) -> str:
    job = row.get("job")
    model = job.get("model") if isinstance(job, dict) else None
    if isinstance(model, dict):
        return str(model.get("model_type"))
    found = models.find(model) if isinstance(model, str) else None
    return str(found.config.get("model_type")) if found else ""


def line_of(numbered: Row, path: Path, language: str) -> str:
    """The result of one row: an estimate, or why there is none."""
    number, row = numbered
    identifier = row.get("id")
    try:
        if not isinstance(row.get("job"), dict):
            raise JobError("no job", where=f"{path}:{number}", hint='each line is {"id": ..., "job": {...}}')
        estimate = price_planned(Job.from_document(row["job"])).estimate
        document = estimate_document(estimate, identifier=identifier, language=language)
    except OomdocError as error:
        document = refused_document(SCHEMA, identifier, error)
    return json.dumps(document, ensure_ascii=False)
