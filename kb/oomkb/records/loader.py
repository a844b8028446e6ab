"""The case records: those shipped, and those of private folders (``OOMDOC_CASES=path[:path]``)."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.errors import RecordError
from oomkb.records import compiled
from oomkb.records.case import Case
from oomkb.records.files import Listed, case_id, listed, parse, read_text

Problems = tuple[RecordError, ...]
_WALK_EVERY_S: Final = 0.25
_READ: Final[dict[Listed, Case]] = {}
"""The cases of the files of the last state: where one file changes, the others are not read again."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The cases in order of their ids, and what is wrong with the files that could not be read."""

    cases: tuple[Case, ...]
    problems: Problems = ()


def cases_dir() -> Path:
    """The shipped cases: inside the installed package, or the checkout's ``cases`` folder.

    :raises RecordError: where neither exists.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_cases", package.parent.parent / "cases"):
        if folder.is_dir():
            return folder
    raise RecordError("no case records are installed", where=str(package / "_cases"), hint="install oomdoc again")


def shipped_ids() -> frozenset[str]:
    """The ids of the shipped cases: nobody else's case may have one of them."""
    return frozenset(case_id(Path(path)) for path, _, _ in listed(cases_dir()))


def private_dirs() -> tuple[Path, ...]:
    """The folders named in ``OOMDOC_CASES``, in order; a folder that does not exist yet counts as empty."""
    value = os.environ.get("OOMDOC_CASES", "")
    return tuple(Path(part).expanduser() for part in value.split(os.pathsep) if part.strip())


def read_case(path: Path, *, private: bool = False) -> Case:
    """One case file, checked against the schema.

    :raises RecordError: naming the file and the first wrong field (:mod:`oomkb.records.lint` names all).
    """
    return parse_case(read_text(path), case_id=case_id(path), path=str(path), private=private)


def parse_case(text: str, *, case_id: str, path: str = "", private: bool = False) -> Case:
    """A case from its text, checked against the schema.

    :raises RecordError: naming ``path`` (else the id) and the first wrong field.
    """
    from pydantic import ValidationError

    from oomkb.records.schema import Record, to_case

    where = path or case_id
    try:
        record = Record.model_validate(parse(text, where=where))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise RecordError(first["msg"], where=f"{where}: {field}", hint="run `oomdoc case lint`") from error
    return to_case(record, case_id=case_id, path=path, private=private, content=text.encode())


def load_cases(paths: Iterable[Path | str] | None = None) -> tuple[Case, ...]:
    """The cases of the given folders; by default those shipped and those of ``OOMDOC_CASES``.

    Files that cannot be read are left out: :func:`load` tells which. Where two folders hold the same id, the
    private one counts.
    """
    return load(paths).cases


def cached_cases() -> tuple[Case, ...]:
    """As :func:`load_cases` by default, but the folders are not walked again within a quarter of a second.

    For what asks many times in a second: walking 444 files takes 2 ms, a tenth of a diagnosis.
    """
    return _lately((cases_dir(), *private_dirs()), int(time.monotonic() / _WALK_EVERY_S))


@lru_cache(maxsize=2)
def _lately(_folders: tuple[Path, ...], _moment: int) -> tuple[Case, ...]:
    return load_cases()


def pin_cases() -> tuple[Case, ...]:
    """Load the cases by default and keep to them in this process, whatever is written, until the next call.

    For processes that answer: who adds cases has them loaded and indexed beside, not before the next answer.
    """
    _HELD.clear()
    _lately.cache_clear()
    _HELD.append(load())
    return _HELD[0].cases


_HELD: Final[list[Loaded]] = []


def load(paths: Iterable[Path | str] | None = None) -> Loaded:
    """As :func:`load_cases`, with the problems."""
    if paths is None and _HELD:
        return _HELD[0]
    if paths is None:
        folders = ((cases_dir(), False), *((folder, True) for folder in private_dirs()))
    else:
        folders = tuple((Path(folder), False) for folder in paths)
    return _load(folders, tuple(tuple(listed(folder)) for folder, _ in folders))


@lru_cache(maxsize=4)
def _load(folders: tuple[tuple[Path, bool], ...], files: tuple[tuple[Listed, ...], ...]) -> Loaded:
    """:param files: of each folder, so that any change is another question."""
    folders_key = hashlib.sha256(repr(folders).encode()).hexdigest()
    mark = compiled.fingerprint([file for held in files for file in held])
    if len(folders) == 1 and folders[0][0] == cases_dir():
        packaged = compiled.load_with_package(folders[0][0], files[0])
        if packaged is not None:
            _remember(packaged, files)
            return Loaded(packaged)
    found = compiled.load(folders_key, mark)
    if found is not None:
        _remember(found[0], files)
        return Loaded(found[0], tuple(RecordError(p["message"], where=p["where"], hint=p["hint"]) for p in found[1]))
    cases: dict[str, Case] = {}
    problems: list[RecordError] = []
    for (_, private), held in zip(folders, files, strict=True):
        for file in held:
            try:
                case = _READ[file] if file in _READ else read_case(Path(file[0]), private=private)
            except RecordError as error:
                problems.append(error)
            else:
                cases[case.id] = case
    ordered = tuple(cases[key] for key in sorted(cases))
    _remember(ordered, files)
    plain = [{"message": e.message, "where": e.where, "hint": e.hint} for e in problems]
    compiled.store(folders_key, mark, ordered, plain)
    return Loaded(ordered, tuple(problems))


def _remember(cases: Iterable[Case], files: Iterable[Iterable[Listed]]) -> None:
    by_path = {file[0]: file for held in files for file in held}
    _READ.clear()
    _READ.update({by_path[case.path]: case for case in cases if case.path in by_path})
