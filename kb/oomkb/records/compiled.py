"""Compiled cases: the parsed records of a set of files kept as one JSON file, so that a cold start reads no YAML.

The key is a hash over every file's path, size and time of change and over the format, so a stale file is never used;
where the state folder cannot be written, nothing is kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from oomkb.errors import OomdocError
from oomkb.records.case import Case
from oomkb.records.files import Listed
from oomkb.state import baked_dir, state_dir, write_atomically

T = TypeVar("T")
Read = Callable[[Any], Any]
_FORMAT: Final = 3
"""Raise it when :class:`Case` changes its fields."""
_PACKAGED: Final = "cases.json"
_UNREADABLE: Final = (OSError, OomdocError, ValueError, KeyError, TypeError)


def from_plain(kind: type[T], plain: dict[str, Any]) -> T:
    """``kind`` (a dataclass) with the values of ``plain``: lists become tuples, mappings the records they stand for.

    Mappings of free keys stay as they are.

    :raises TypeError: for a key that is no field, or a field without a value or default.
    """
    values = dict(plain)
    for name, read in _readers(kind):  # type: ignore[arg-type]  # a class is hashable
        if name in values:
            values[name] = read(values[name])
    return kind(**values)


@lru_cache(maxsize=32)
def _readers(kind: type[Any]) -> tuple[tuple[str, Read], ...]:
    """The fields that are not taken as they are."""
    hints = get_type_hints(kind)
    found = ((field.name, _reader(hints[field.name])) for field in dataclasses.fields(kind))
    return tuple((name, read) for name, read in found if read is not None)


def _reader(hint: Any) -> Read | None:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        record: type[Any] = hint
        return lambda value: from_plain(record, value)
    arguments = get_args(hint)
    if get_origin(hint) is tuple:
        each = _reader(arguments[0])
        return tuple if each is None else lambda values: tuple(each(value) for value in values)
    if get_origin(hint) in (Union, types.UnionType):
        inner = next((read for read in map(_reader, arguments) if read is not None), None)
        return None if inner is None else lambda value: None if value is None else inner(value)
    return None


def fingerprint(files: Sequence[Listed]) -> str:
    """What changes whenever one of the files does."""
    digest = hashlib.sha256(f"oomkb.records {_FORMAT}".encode())
    for path, size_bytes, changed_ns in files:
        digest.update(f"\0{path}\0{size_bytes}\0{changed_ns}".encode())
    return digest.hexdigest()


def _place(folders_key: str) -> Path:
    return state_dir() / f"cases-{folders_key[:12]}.json"


def store(folders_key: str, mark: str, cases: Sequence[Case], problems: Sequence[Mapping[str, str]]) -> None:
    """Write the compiled form; silently nothing where that is not possible."""
    with contextlib.suppress(OSError, OomdocError):
        write_atomically(_place(folders_key), _text(mark, map(dataclasses.asdict, cases), problems))


def load(folders_key: str, mark: str) -> tuple[tuple[Case, ...], list[dict[str, str]]] | None:
    """The compiled cases and the problems found with the others; ``None`` where there are none for this mark."""
    with contextlib.suppress(*_UNREADABLE):
        body = json.loads(_place(folders_key).read_bytes())
        if body["mark"] == mark:
            return tuple(from_plain(Case, c) for c in body["cases"]), body["problems"]
    return None


def store_with_package(place: Path, root: Path, files: Sequence[Listed], cases: Sequence[Case]) -> None:
    """Write the compiled form of the shipped cases for a wheel: paths relative to ``root``, no times of change."""
    plain = (dataclasses.asdict(c) | {"path": Path(c.path).relative_to(root).as_posix()} for c in cases)
    (place / _PACKAGED).write_bytes(_text(_package_mark(root, files), plain))


def load_with_package(root: Path, files: Sequence[Listed]) -> tuple[Case, ...] | None:
    """The cases of ``root`` as the wheel was built with them; ``None`` where it has none or they were changed."""
    place = baked_dir()
    with contextlib.suppress(*_UNREADABLE):
        body = {} if place is None else json.loads((place / _PACKAGED).read_bytes())
        if body["mark"] == _package_mark(root, files):
            return tuple(from_plain(Case, c | {"path": str(root / c["path"])}) for c in body["cases"])
    return None


def _text(mark: str, cases: Iterable[Mapping[str, Any]], problems: Sequence[Mapping[str, str]] = ()) -> bytes:
    body = {"mark": mark, "cases": list(cases), "problems": list(problems)}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _package_mark(root: Path, files: Sequence[Listed]) -> str:
    """Names and sizes alone: an installer sets the times."""
    names = [(Path(path).relative_to(root).as_posix(), size_bytes, 0) for path, size_bytes, _ in files]
    return fingerprint(names)
