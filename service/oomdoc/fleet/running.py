"""Running over many logs: a process per core or a Ray cluster; rows are written as they come, resumed, summed up."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import oomdoc
import oomkb
from oomkb.dataclass import dataclass
from oomkb.errors import InputError, OomdocError

_ENDINGS: Final = (".log", ".out", ".err", ".txt", ".gz", ".zst", ".json", ".jsonl", ".pickle", "")


@dataclass(frozen=True, slots=True)
class Log:
    """One log: where it is, and a stamp that changes when it does."""

    name: str
    stamp: str
    remote: bool = False


def find_logs(places: Iterable[str]) -> Iterator[Log]:
    """The logs at the given places, each once, in order of name.

    :raises InputError: for a place where nothing is.
    """
    found: dict[str, Log] = {}
    for place in places:
        logs = list(_remote(place) if "://" in place else _local(place))
        if not logs:
            raise InputError("nothing is there", where=place, hint="name files, folders, patterns or URLs")
        found.update({log.name: log for log in logs})
    yield from (found[name] for name in sorted(found))


def _local(place: str) -> Iterator[Log]:
    path = Path(place)
    names = (
        [str(p) for p in path.rglob("*") if p.suffix.lower() in _ENDINGS]
        if path.is_dir()
        else glob.glob(place, recursive=True)
    )
    for name in names:
        file = Path(name)
        if file.is_file():
            state = file.stat()
            yield Log(name, f"{state.st_size}-{state.st_mtime_ns}")


def _remote(place: str) -> Iterator[Log]:
    system, path = _system(place)
    names = system.glob(path) if any(c in path for c in "*?[") else [path]
    for name in names:
        info = system.info(name)
        if info["type"] == "directory":
            yield from (log for child in system.find(name) for log in _described(system, child))
        else:
            yield from _described(system, name)


def _described(system: Any, name: str) -> Iterator[Log]:
    info = system.info(name)
    stamp = info.get("ETag") or info.get("mtime") or info.get("LastModified") or info.get("created") or ""
    yield Log(system.unstrip_protocol(name), f"{info.get('size')}-{stamp}", remote=True)


def _system(place: str) -> tuple[Any, str]:
    try:
        import fsspec

        system, path = fsspec.core.url_to_fs(place)
    except (ImportError, ValueError) as error:
        hint = "pip install fsspec and the package of that store (s3fs, gcsfs, adlfs ...)"
        raise InputError(str(error), where=place, hint=hint) from error
    return system, path


@contextmanager
def local_copy(log: Log) -> Iterator[Path]:
    """A local log where it is; a remote one streamed into a file that lives as long as the block."""
    if not log.remote:
        yield Path(log.name)
        return
    system, path = _system(log.name)
    with tempfile.TemporaryDirectory(prefix="oomdoc-") as folder:
        target = Path(folder) / ("log" + "".join(Path(path).suffixes[-2:]))
        with system.open(path, "rb") as source, target.open("wb") as file:
            while chunk := source.read(1 << 20):
                file.write(chunk)
        yield target


FIELDS: Final = (
    "log", "stamp", "team", "verdict", "cause", "probability", "framework", "model", "gpu", "gpu_count", "phase",
    "requested_gib", "capacity_gib", "wasted_gib", "fix", "fingerprint", "case", "error",
)  # fmt: skip
"""The columns of a row, in order."""
_MAX_GPUS: Final = 1 << 20


def diagnose_log(log: Log, team_pattern: str | None = None, *, plans: bool = True) -> dict[str, Any]:
    """Diagnose one log; an unreadable one gives a row with ``error``, never an exception."""
    row: dict[str, Any] = dict.fromkeys(FIELDS)
    row |= {"log": log.name, "stamp": log.stamp, "team": _team(log.name, team_pattern)}
    try:
        document = _document(log, plans)
    except OomdocError as error:
        return row | {"error": str(error)}
    except Exception as error:
        return row | {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    return row | _summary(document)


def _document(log: Log, plans: bool) -> dict[str, Any]:
    from oomdoc.intake import read
    from oomdoc.intake.stream import load_source

    with local_copy(log) as path:
        source = load_source(path)
    evidence = read([source])
    if evidence.root is None:
        # Most logs of a fleet are of jobs that were fine: what they say is noted, and nothing is looked for.
        facts = {name: {"value": fact.value, "stated": fact.stated} for name, fact in evidence.facts.items()}
        job = {"framework": evidence.framework}
        return {"verdict": "no-failure", "facts": facts, "job": job, "causes": [], "plans": [], "matches": []}
    from oomdoc.diagnosis.engine import diagnose
    from oomdoc.report.report import Report

    return Report(diagnose(evidence, plans=plans, questions=False), evidence.language).document()


def _team(name: str, pattern: str | None) -> str | None:
    match = re.search(pattern, name) if pattern else None
    if match is None:
        return None
    return match[1] if match.groups() else match[0]


def _summary(document: Mapping[str, Any]) -> dict[str, Any]:
    facts = {name: fact["value"] for name, fact in document["facts"].items() if fact["stated"]}
    failure = document.get("failure") or {}
    causes, plans, job = document["causes"], document["plans"], document.get("job") or {}
    # A log in which no failure was read is of a job that ran, whatever its settings make likely.
    verdict = document["verdict"] if failure else "no-failure"
    failed = verdict not in ("no-failure", "not-oom")
    cause = causes[0]["cause"] if causes and failed else None
    capacity = failure.get("capacity_gib") or facts.get("capacity_gib") or job.get("capacity_gib")
    row: dict[str, Any] = {
        "verdict": verdict,
        "cause": cause,
        "probability": causes[0]["probability"] if cause else None,
        "framework": job.get("framework"),
        "model": facts.get("model") if isinstance(facts.get("model"), str) else None,
        "gpu": facts.get("gpu"),
        "gpu_count": _whole(facts.get("gpu_count") or job.get("world")),
        "phase": failure.get("phase"),
        "requested_gib": failure.get("requested_gib"),
        "capacity_gib": capacity,
        "fix": _fix(plans[0]) if plans else None,
        "case": document["matches"][0]["case"] if document["matches"] else None,
    }
    # What the failed job held and could not use: every GPU of it, for the whole run.
    row["wasted_gib"] = round(float(capacity) * (row["gpu_count"] or 1), 2) if failed and capacity else None
    return row | {"fingerprint": _fingerprint(row, failure)}


def _whole(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if 0 < number < _MAX_GPUS else None


def _fix(plan: Mapping[str, Any]) -> str:
    return "; ".join(c["instruction"] or f"{c['key']}: {c['to']}" for c in plan["changes"])[:300]


def _fingerprint(row: Mapping[str, Any], failure: Mapping[str, Any]) -> str:
    """Equal for the same failure of the same kind of job: sizes are rounded, names and paths left out."""
    requested = row["requested_gib"]
    parts = [row["cause"], failure.get("signal"), row["framework"], row["model"], row["phase"]]
    parts.append(None if requested is None else f"{requested:.1f}")
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


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
