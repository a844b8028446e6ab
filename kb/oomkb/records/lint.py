"""Everything that is wrong with case files, with file and field: nothing stops at the first problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from oomkb.errors import RecordError
from oomkb.records.case import Case
from oomkb.records.files import case_files, case_id, overlap, parse, read_text, shingles
from oomkb.records.loader import cases_dir, private_dirs
from oomkb.records.rules import RULES, events

MAX_LINES: Final = 80
_MAX_OVERLAP: Final = 0.8


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """``field`` is dotted (``fixes[1].changes``), or empty for the file as a whole; ``hint`` is the next step."""

    file: str
    field: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}: {self.field}" if self.field else self.file
        step = f" ({self.hint})" if self.hint else ""
        return f"{place}: {self.message}{step}"


def lint(paths: Iterable[Path | str] | None = None) -> list[Problem]:
    """All problems of the given case files and folders of cases (default: all), in order of file and field.

    Duplicates are looked for among all that is given. A path that does not exist is a problem, too.
    """
    if paths is None:
        paths = (cases_dir(), *private_dirs())
    problems: list[Problem] = []
    cases: list[Case] = []
    for path in _files(paths, problems):
        case = _one(path, problems)
        if case is not None:
            cases.append(case)
    problems += _duplicates(cases)
    return sorted(set(problems))


def _files(paths: Iterable[Path | str], problems: list[Problem]) -> list[Path]:
    found: dict[Path, None] = {}
    for given in map(Path, paths):
        if given.is_dir():
            found.update(dict.fromkeys(case_files(given)))
            found.update(dict.fromkeys(_strays(given, problems)))
        elif given.is_file():
            found[given] = None
        else:
            problems.append(Problem(str(given), "", "does not exist", "give a case file or a folder of causes"))
    return list(found)


def _strays(folder: Path, problems: list[Problem]) -> Iterator[Path]:
    """Files that the loader would pass over in silence; a folder of one cause may be given as well."""
    for path in sorted(folder.glob("*.y*ml")):
        if path.suffix == ".yaml" and folder.name != "cases":
            yield path
        else:
            problems.append(Problem(str(path), "", "lies outside a cause's folder", "move it to <cause>/<slug>.yaml"))
    for path in sorted(folder.glob("*/*.yml")):
        problems.append(Problem(str(path), "", "is not read: it ends in .yml", "name it .yaml"))


def lint_text(text: str, *, case_id: str, file: str = "") -> list[Problem]:
    """All problems of one case that is not, or not yet, a file of its own."""
    problems: list[Problem] = []
    _check(text, case_id, file or case_id, problems)
    return sorted(set(problems))


def _one(path: Path, problems: list[Problem]) -> Case | None:
    try:
        text = read_text(path)
    except RecordError as error:
        problems.append(Problem(str(path), "", error.message, error.hint))
        return None
    return _check(text, case_id(path), str(path), problems)


def _check(text: str, identifier: str, file: str, problems: list[Problem]) -> Case | None:
    try:
        document = parse(text, where=file)
    except RecordError as error:
        place, _, field = error.where.partition(": ")
        problems.append(Problem(place, field, error.message, error.hint))
        return None
    if len(text.splitlines()) > MAX_LINES:
        problems.append(Problem(file, "", f"is longer than {MAX_LINES} lines", "condense the symptoms"))
    case = _validated(document, identifier, file, problems)
    if case is not None:
        for rule in RULES:
            problems += [Problem(file, *finding) for finding in rule(case)]
        problems += [Problem(file, *finding) for finding in events(document)]
    return case


def _validated(document: dict[str, Any], identifier: str, file: str, problems: list[Problem]) -> Case | None:
    from pydantic import ValidationError

    from oomkb.records.schema import Record, to_case

    try:
        return to_case(Record.model_validate(document), case_id=identifier, path=file)
    except ValidationError as error:
        for found in error.errors(include_url=False):
            unknown = found["type"] == "extra_forbidden"
            message = "is no field of a case" if unknown else found["msg"]
            hint = "remove it, or see the template in cases/README.md" if unknown else ""
            problems.append(Problem(file, _dotted(found["loc"]), message, hint))
        return None


def _dotted(location: Sequence[str | int]) -> str:
    out = ""
    for part in location:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else str(part)
    return out


def _duplicates(cases: Sequence[Case]) -> Iterator[Problem]:
    reports: dict[tuple[str, str], Case] = {}
    ids: dict[str, Case] = {}
    for case in cases:
        for reference in case.references:
            if reference.role == "report":
                first = reports.setdefault((reference.url, case.cause), case)
                if first is not case:
                    yield Problem(
                        case.path, "references", f"{first.id} reports the same page for the same cause", "merge them"
                    )
        first = ids.setdefault(case.id, case)
        if first is not case:
            yield Problem(case.path, "", f"{first.path} has the same id", "rename one")
    yield from _alike(cases)


def _alike(cases: Sequence[Case]) -> Iterator[Problem]:
    marks = [(case, i, shingles(symptom)) for case in cases for i, symptom in enumerate(case.symptoms)]
    marks.sort(key=lambda m: len(m[2]))
    for n, (case, i, mark) in enumerate(marks):
        if not mark:
            yield Problem(
                case.path, f"symptoms[{i}]", "says too little", "a line of the log, the settings, the question"
            )
            continue
        for other, j, twin in marks[n + 1 :]:
            if len(twin) * _MAX_OVERLAP > len(mark):
                break  # sorted by size: nothing after it can share enough
            if (other is not case or i != j) and overlap(mark, twin) >= _MAX_OVERLAP:
                yield Problem(
                    other.path, f"symptoms[{j}]", f"is all but that of {case.id}", "merge the cases, or tell them apart"
                )
