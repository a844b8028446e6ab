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
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from oomdoc.report.estimates import SCHEMA, estimate_line, refused_document
from oomkb.catalog import models
from oomkb.errors import JobError, OomdocError
from oomkb.memory.job import Job
from oomkb.pricing import price_planned

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

Row = tuple[int, dict[str, Any]]
_WINDOW: Final = 20_000
_MIN_ROWS_FOR_PROCESSES: Final = 1_000
"""Rows under which a second process costs more than it saves."""
_MAX_PROCESSES: Final = 8


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
    count = min(_cores(), _MAX_PROCESSES, len(window) // (_MIN_ROWS_FOR_PROCESSES // 2))
    if count < 2:
        return [line_of(row, path, language) for row in window]
    parts = _parts(window, count)
    lines = [""] * len(window)
    for part, texts in zip(parts, _divided(window, parts, path, language), strict=True):
        for i, text in zip(part, texts, strict=True):
            lines[i] = text
    return lines


def _divided(window: Sequence[Row], parts: Sequence[list[int]], path: Path, language: str) -> Iterator[list[str]]:
    """The lines of each part: the first part here, each other one in a process that is forked with all that is read.

    Nothing is pickled: rows are inherited, lines come back through a file in memory, where no disk can be written.
    """
    import multiprocessing

    fork = multiprocessing.get_context("fork")
    with ExitStack() as stack:
        started = []
        for part in parts[1:]:
            file = stack.enter_context(os.fdopen(os.memfd_create("lines"), "w+", encoding="utf-8", newline="\n"))
            process = fork.Process(target=_write, args=(file, window, part, path, language))
            process.start()
            stack.callback(_stop, process)
            started.append((part, process, file))
        yield [line_of(window[i], path, language) for i in parts[0]]
        for part, process, file in started:
            process.join()
            if process.exitcode != 0:  # whatever ended it: what it would have said is said here
                yield [line_of(window[i], path, language) for i in part]
                continue
            file.seek(0)
            yield [line.removesuffix("\n") for line in file]


def _write(file: TextIO, window: Sequence[Row], part: Sequence[int], path: Path, language: str) -> None:
    file.writelines(line_of(window[i], path, language) + "\n" for i in part)
    file.flush()


def _stop(process: BaseProcess) -> None:
    if process.is_alive():
        process.terminate()
    process.join()


def _cores() -> int:
    """Cores this process may use; one where processes cannot simply be forked and share files in memory."""
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
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


def line_of(numbered: Row, path: Path, language: str) -> str:
    """The result of one row: an estimate, or why there is none."""
    number, row = numbered
    identifier = row.get("id")
    try:
        if not isinstance(row.get("job"), dict):
            raise JobError("no job", where=f"{path}:{number}", hint='each line is {"id": ..., "job": {...}}')
        priced = price_planned(Job.from_document(row["job"]))
        return estimate_line(priced.estimate, identifier=identifier, language=language)
    except OomdocError as error:
        return json.dumps(refused_document(SCHEMA, identifier, error), ensure_ascii=False)
