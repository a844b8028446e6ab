"""The schema of a topic and its loader.

A table ``[id]`` in any file of ``data/`` is one topic::

    [gradient-accumulation]
    title.en = "Gradient accumulation"            # and title.zh
    questions.en = ["does gradient accumulation reduce memory?", ...]   # four or more, and questions.zh
    answer.en = "Two to six sentences: ..."       # and answer.zh
    sources = ["https://... or file @ release", ...]
    causes = ["activations"]                      # optional: causes of the taxonomy
    settings = ["grad_accum"]                     # optional: job fields
    cases = ["activations/some-case"]             # optional
    shown.job = {model = "Qwen/Qwen3-8B", ...}    # optional: what the memory model computes for an example run,
    shown.sides = [{micro_batch = 8}, {micro_batch = 1, grad_accum = 8}]   # once per side
    shown.figure = "process"                      # or allocated, host, cache, or a term of the memory table
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.errors import JobError, RecordError
from oomkb.kept import lazy
from oomkb.memory.job import FIELD_NAMES, Job
from oomkb.records.taxonomy import CAUSES
from oomkb.tables import read_toml

DATA: Final = Path(__file__).parent / "data"
LANGUAGES: Final = ("en", "zh")
_LEAST_QUESTIONS: Final = 4
_ID: Final = lazy(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_SOURCE: Final = lazy(r"https://\S+\Z|\S.* @ \S+\Z")
"""A page, or a file of a release: ``transformers trainer.py @ 4.57.0``."""
_WRAPPED: Final = lazy(r"(?<=[一-鿿，。；：、）”]) (?=[一-鿿（“])|(?<=[，。；：、）”]) ")
"""A blank that stands for the end of a line within Chinese."""
_FIELDS: Final = frozenset({"title", "questions", "answer", "sources", "causes", "settings", "cases", "shown"})


@dataclass(frozen=True, slots=True)
class Shown:
    """Runs that the memory model prices to show what a topic says."""

    job: Mapping[str, Any]
    """What the runs share; a model that a question names takes the place of its model."""
    sides: tuple[Mapping[str, Any], ...]
    """The fields in which they differ, one mapping per run."""
    figure: str = "process"
    """``process allocated host cache``, or how the names of terms of the peak begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One concept. Texts by language."""

    id: str
    title: Mapping[str, str]
    questions: Mapping[str, tuple[str, ...]]
    """Ways in which people ask about it, by which it is recognised."""
    answer: Mapping[str, str]
    sources: tuple[str, ...]
    causes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    shown: Shown | None = field(default=None)


@cache
def topics() -> Mapping[str, Topic]:
    """The shipped ones by id, in the order of their files.

    :raises RecordError: as :func:`load_topics`.
    """
    return MappingProxyType({topic.id: topic for topic in load_topics(DATA)})


def load_topics(folder: Path) -> Iterator[Topic]:
    """The topics of a folder's files.

    :raises RecordError: for a table that breaks the schema; ``where`` is file, id and field.
    """
    seen: set[str] = set()
    for path in sorted(folder.glob("*.toml")):
        for name, table in read_toml(path).items():
            where = f"{path.name}: {name}"
            if not _ID.match(name) or name in seen or name in CAUSES:
                raise RecordError(f"{name!r} is no id, or is taken", where=where, hint="like-this-one")
            seen.add(name)
            yield _topic(name, table, where)


def _topic(name: str, table: Any, where: str) -> Topic:
    unknown = set(table) - _FIELDS if isinstance(table, Mapping) else {"(not a table)"}
    if unknown:
        raise RecordError(f"unknown {', '.join(sorted(unknown))}", where=where, hint=f"one of {sorted(_FIELDS)}")
    questions = {language: _texts(table, "questions", where, language) for language in LANGUAGES}
    for language, asked in questions.items():
        if len(asked) < _LEAST_QUESTIONS:
            raise RecordError("too few examples", where=f"{where}.questions.{language}", hint=f"{_LEAST_QUESTIONS}")
    return Topic(
        id=name,
        title=_both(table, "title", where),
        questions=MappingProxyType(questions),
        answer=_both(table, "answer", where),
        sources=_among(table, "sources", where, _SOURCE.match, "https://..., or file @ release", least=1),
        causes=_among(table, "causes", where, CAUSES.__contains__, "a cause of the taxonomy"),
        settings=_among(table, "settings", where, _is_setting, "a field of the job document"),
        cases=_texts(table, "cases", where),
        shown=_shown(table["shown"], f"{where}.shown") if "shown" in table else None,
    )


def _is_setting(name: str) -> bool:
    return name.partition(".")[0] in FIELD_NAMES


def _both(table: Mapping[str, Any], name: str, where: str) -> Mapping[str, str]:
    """A text in both languages, its lines joined."""
    given = table.get(name)
    texts = given if isinstance(given, Mapping) else {}
    if sorted(texts) != sorted(LANGUAGES) or not all(isinstance(t, str) and t.strip() for t in texts.values()):
        raise RecordError("is not text in both languages", where=f"{where}.{name}", hint=f"{name}.en and {name}.zh")
    english, chinese = (" ".join(texts[language].split()) for language in LANGUAGES)
    return MappingProxyType({"en": english, "zh": _WRAPPED.sub("", chinese)})


def _texts(table: Mapping[str, Any], name: str, where: str, language: str = "") -> tuple[str, ...]:
    given = table.get(name, {} if language else [])
    found = given.get(language, []) if language and isinstance(given, Mapping) else given
    if not isinstance(found, list) or not all(isinstance(text, str) and text.strip() for text in found):
        raise RecordError("is not a list of texts", where=f"{where}.{name}")
    return tuple(found)


def _among(table: Mapping[str, Any], name: str, where: str, fits: Any, hint: str, *, least: int = 0) -> tuple[str, ...]:
    found = _texts(table, name, where)
    wrong = next((text for text in found if not fits(text)), "nothing" if len(found) < least else None)
    if wrong is not None:
        raise RecordError(f"{wrong!r} does not belong there", where=f"{where}.{name}", hint=hint)
    return found


def _shown(table: Any, where: str) -> Shown:
    if not isinstance(table, Mapping) or not set(table) <= {"job", "sides", "figure"} or not table.get("sides"):
        raise RecordError("is not job, sides and figure", where=where)
    job, sides = table.get("job", {}), tuple(table["sides"])
    try:
        for side in sides:
            Job.from_document(job).with_fields(side)
    except JobError as error:
        raise RecordError(str(error), where=where) from error
    return Shown(job, sides, str(table.get("figure", "process")))
