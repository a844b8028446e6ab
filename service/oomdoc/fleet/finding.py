"""Which logs: files, folders, patterns, and object-store URLs through fsspec."""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.errors import InputError

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
