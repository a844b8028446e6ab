"""Running over many logs: a process per core or a Ray cluster; rows are written as they come, resumed, summed up."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import oomdoc
import oomkb
from oomdoc.fleet.diagnosing import FIELDS, diagnose_log
from oomdoc.fleet.finding import Log, find_logs
from oomkb.dataclass import dataclass
from oomkb.errors import InputError

_BATCHES_AHEAD: Final = 4
"""Batches handed out per worker before its answers come back: memory stays bounded however many logs there are."""
_MAX_PER_BATCH: Final = 8
_SINGLE_THREADED: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run."""

    output: Path
    workers: int = 0
    """0: one per core."""
    engine: Literal["processes", "ray"] = "processes"
    team_pattern: str | None = None
    plans: bool = True


def run_fleet(places: Iterable[str], settings: Settings, progress: Callable[[int, int], None] | None = None) -> int:
    """Diagnose the logs at ``places`` into ``settings.output`` (JSONL); how many were new.

    A log whose row is there already, with the same stamp, is not read again: a run that was cut off goes on.

    :raises InputError: for a place where nothing is, or an output that cannot be written.
    """
    logs = list(find_logs(places))
    done = {(row["log"], row["stamp"]) for row in read_rows(settings.output)}
    todo = [log for log in logs if (log.name, log.stamp) not in done]
    work = partial(diagnose_log, team_pattern=settings.team_pattern, plans=settings.plans)
    run = _with_ray if settings.engine == "ray" else _with_processes
    try:
        settings.output.parent.mkdir(parents=True, exist_ok=True)
        with settings.output.open("a", encoding="utf-8") as file:
            for number, row in enumerate(run(work, todo, settings.workers), 1):
                # A whole line per write: a run that is killed leaves at most one broken line, which is skipped.
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
                if progress is not None:
                    progress(number, len(todo))
    except OSError as error:
        raise InputError(
            error.strerror or str(error), where=str(settings.output), hint="choose another --output"
        ) from error
    return len(todo)


def _with_processes(work: Callable[[Log], dict[str, Any]], logs: list[Log], workers: int) -> Iterator[dict[str, Any]]:
    count = min(workers or os.cpu_count() or 1, max(1, len(logs)))
    if count == 1:
        yield from map(work, logs)
        return
    with ProcessPoolExecutor(count, initializer=_single_threaded) as pool:
        waiting = _batches(logs, count * _BATCHES_AHEAD)
        running = deque(pool.submit(_call_all, work, batch) for batch in islice(waiting, count * _BATCHES_AHEAD))
        while running:
            yield from running.popleft().result()
            running.extend(pool.submit(_call_all, work, batch) for batch in islice(waiting, 1))


def _single_threaded() -> None:
    """One core a worker: libraries that start threads of their own would only get in each other's way."""
    os.environ.update(_SINGLE_THREADED)


def _with_ray(work: Callable[[Log], dict[str, Any]], logs: list[Log], workers: int) -> Iterator[dict[str, Any]]:
    try:
        import ray
    except ImportError as error:
        raise InputError("Ray is not installed", where="--engine ray", hint="pip install 'oomdoc[ray]'") from error
    if not ray.is_initialized():
        ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False, configure_logging=False)
    environment = {"env_vars": {"PYTHONPATH": _import_path(), **_SINGLE_THREADED}}
    task = ray.remote(num_cpus=1, max_retries=3, runtime_env=environment)(_call_all)
    cores = ray.cluster_resources().get("CPU", 1)  # type: ignore[no-untyped-call,unused-ignore]
    most = (workers or int(cores)) * _BATCHES_AHEAD
    waiting = _batches(logs, most)
    running = [task.remote(work, batch) for batch in islice(waiting, most)]
    while running:
        (ready, *_), running = ray.wait(running, num_returns=1)
        yield from ray.get(ready)
        running.extend(task.remote(work, batch) for batch in islice(waiting, 1))


def _call_all(work: Callable[[Log], dict[str, Any]], logs: list[Log]) -> list[dict[str, Any]]:
    return [work(log) for log in logs]


def _batches(logs: list[Log], parts: int) -> Iterator[list[Log]]:
    """Several logs a message where there are many, one where there are few: every worker has something to do."""
    size = max(1, min(_MAX_PER_BATCH, len(logs) // max(1, parts)))
    return (logs[first : first + size] for first in range(0, len(logs), size))


def _import_path() -> str:
    """Where this process found the two packages, so that a worker on a shared file system finds the same ones."""
    homes = [str(Path(module.__file__).parents[1]) for module in (oomdoc, oomkb) if module.__file__]
    return os.pathsep.join(dict.fromkeys([*homes, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of an output file; a line that a killed run left broken is passed over."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and "log" in row:
                yield row


def write_parquet(rows: Iterable[dict[str, Any]], path: Path) -> None:
    """The rows as a Parquet table.

    :raises InputError: where pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise InputError("pyarrow is not installed", where=str(path), hint="pip install 'oomdoc[fleet]'") from error
    numbers = {"probability", "requested_gib", "capacity_gib", "wasted_gib"}
    kinds = {f: pa.float64() if f in numbers else pa.int64() if f == "gpu_count" else pa.string() for f in FIELDS}
    schema = pa.schema(list(kinds.items()))
    parquet.write_table(pa.Table.from_pylist([{f: row.get(f) for f in FIELDS} for row in rows], schema=schema), path)


_Row = dict[str, Any]


def summarise(rows: Iterable[_Row]) -> dict[str, Any]:
    """The document of ``oomdoc batch``; of a log that was diagnosed twice (it had grown) the later row counts."""
    latest = {row["log"]: row for row in rows}
    failed = [r for r in latest.values() if r.get("cause") and r.get("verdict") not in (None, "no-failure")]
    groups: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in failed:
        groups[str(row.get("fingerprint"))].append(row)
    return {
        "schema": "oomdoc.fleet/1",
        "logs": len(latest),
        "failures": len(failed),
        "unreadable": sum(bool(r.get("error")) for r in latest.values()),
        "wasted_gib": _wasted(failed),
        **{f"by_{name}": _counts(failed, name) for name in ("cause", "framework", "team")},
        "groups": [_group(*group) for group in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0]))],
    }


def _wasted(rows: Sequence[_Row]) -> float:
    return round(sum(r.get("wasted_gib") or 0.0 for r in rows), 1)


def _counts(rows: Sequence[_Row], name: str) -> dict[str, int]:
    return dict(Counter(str(r[name]) for r in rows if r.get(name)).most_common())


def _group(fingerprint: str, members: Sequence[_Row]) -> dict[str, Any]:
    """Failures that are the same, with the first of them as their example."""
    first = members[0]
    same = {name: first.get(name) for name in ("cause", "framework", "model")}
    ways = {"example": first["log"], "fix": first.get("fix"), "wasted_gib": _wasted(members)}
    return {"fingerprint": fingerprint, "count": len(members), **same, **ways}
