"""The interview that starts a case: what is asked, which answers hold, and the record that they make."""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from oomdoc.casework.starting import _SLUG, OURS, create, record_text
from oomkb.dataclass import dataclass
from oomkb.errors import JobError, RecordError
from oomkb.frameworks import PLAIN
from oomkb.memory.job import Job
from oomkb.records.case import SCHEMA, Case
from oomkb.records.files import case_id, read_text
from oomkb.records.lint import Problem, lint_text
from oomkb.records.loader import load_cases, private_dirs
from oomkb.records.taxonomy import CAUSES, FRAMEWORKS


def listed(*, cause: str | None = None, framework: str | None = None) -> tuple[Case, ...]:
    """The shipped and private cases in order of their ids, of one cause and/or framework where asked.

    :raises RecordError: for what is no cause.
    """
    if cause is not None and cause not in CAUSES:
        near = difflib.get_close_matches(cause, CAUSES, n=1)
        raise RecordError(f"{cause!r} is no cause", hint=f"did you mean {near[0]}?" if near else ", ".join(CAUSES))
    wanted = framework.lower() if framework else None
    return tuple(
        case
        for case in load_cases()
        if (cause is None or case.cause == cause) and (wanted is None or wanted in case.frameworks)
    )


def found(identifier: str) -> Case:
    """The case with this id (``cause/slug``, or the slug alone where only one case has it).

    :raises RecordError: where there is none, naming those that are spelled alike.
    """
    cases = {case.id: case for case in load_cases()}
    if identifier in cases:
        return cases[identifier]
    same = [case for case in cases.values() if case.slug == identifier]
    if len(same) == 1:
        return same[0]
    near = [case.id for case in same] or difflib.get_close_matches(identifier, cases, n=3)
    raise RecordError(f"no case {identifier!r}", hint=f"near it: {', '.join(near)}" if near else "see oomdoc case list")


@dataclass(frozen=True, slots=True)
class Added:
    """Where the case lies now, or what is wrong with it (then nothing was written)."""

    path: Path | None = None
    problems: tuple[Problem, ...] = ()


def check_text(identifier: str, text: str) -> tuple[Problem, ...]:
    """What is wrong with a case that was handed in as text under the id ``cause/slug``."""
    return tuple(lint_text(text, case_id=identifier))


def add(file: Path, folder: Path | None = None, *, cause: str | None = None) -> Added:
    """Check a case file and copy it into a private folder as ``<cause>/<slug>.yaml``.

    The cause is the name of the folder that the file lies in, unless given. A case that is there under the same id
    is not written over.

    :raises RecordError: where no folder is known, the cause is not clear, or the case exists.
    """
    target = folder or next(iter(private_dirs()), None)
    if target is None:
        raise RecordError(
            "no private case folder", where="OOMDOC_CASES", hint="set OOMDOC_CASES=~/cases, or give --folder"
        )
    cause = cause or file.resolve().parent.name
    if cause not in CAUSES:
        near = difflib.get_close_matches(cause, CAUSES, n=1)
        hint = f"did you mean {near[0]}?" if near else "move it to <cause>/<slug>.yaml, or give --cause"
        raise RecordError(f"lies in {cause!r}, which is no cause", where=str(file), hint=hint)
    identifier = f"{cause}/{file.stem}"
    text = read_text(file)
    problems = lint_text(text, case_id=identifier, file=str(file))
    if problems:
        return Added(problems=tuple(problems))
    path = target.expanduser() / cause / f"{file.stem}.yaml"
    return Added(path=create(path, text, f"{case_id(path)} is there already", "rename the file"))


@dataclass(frozen=True, slots=True)
class Question:
    """One question; ``check`` gives the value of an answer or raises with what would do.

    ``default`` is ``None`` where an answer is needed, and empty where it may be left out.
    """

    key: str
    text: str
    check: Callable[[str], Any]
    default: str | None = ""


def _one_of(names: Any, what: str) -> Callable[[str], str]:
    def check(answer: str) -> str:
        name = answer.strip().lower()
        if name in names:
            return name
        near = difflib.get_close_matches(name, list(names), n=3)
        raise RecordError(
            f"{answer!r} is no {what}", hint=f"near it: {', '.join(near)}" if near else "see the taxonomy"
        )

    return check


def _slug(answer: str) -> str:
    slug = re.sub(r"[\s_]", "-", answer.strip().lower())[:160]
    if not _SLUG.fullmatch(slug):
        raise RecordError(f"{answer!r} is no slug", hint="small letters, digits and single hyphens")
    return slug


def _text(answer: str) -> str:
    return answer.strip()


def _field(name: str) -> Callable[[str], Any]:
    """An answer that a job takes for this field."""

    def check(answer: str) -> Any:
        value: Any = int(answer) if answer.strip().isdigit() else answer.strip()
        try:
            return Job().with_fields({name: value}).get(name)
        except JobError as error:
            raise RecordError(str(error.message), hint=error.hint) from error

    return check


def _link(answer: str) -> str:
    if not re.fullmatch(r"https://[^\s]{4,500}", answer.strip()):
        raise RecordError(f"{answer!r} is no https link", hint="the thread where it was reported, or leave it empty")
    return answer.strip()


QUESTIONS: Final = (
    Question("cause", "Cause (a name of the taxonomy)", _one_of(CAUSES, "cause"), None),
    Question("slug", "Short name, words joined by -", _slug, None),
    Question("title", "What happened and why, in one line", _text, None),
    Question("symptom", "The log line that somebody would paste", _text, None),
    Question("framework", "Framework or library", _one_of(FRAMEWORKS, "framework"), PLAIN),
    Question("model", "Model", _field("model")),
    Question("method", "Method (full, lora, qlora ...)", _field("method")),
    Question("gpu", "GPU", _field("gpu")),
    Question("world", "How many GPUs", _field("world"), "1"),
    Question("micro_batch", "Samples per GPU and step", _field("micro_batch")),
    Question("seq_len", "Tokens per sample", _field("seq_len")),
    Question("fix", "What solved it", _text),
    Question("url", "Link to the thread", _link),
)
_JOB: Final = ("model", "method", "gpu", "world", "micro_batch", "seq_len")


def from_answers(answers: Mapping[str, Any]) -> str:
    """The text of a case from the answers (checked values by key); what was not answered says FILL IN.

    :raises OomdocError: for answers that describe no possible job.
    """
    job = Job().with_fields({name: answers[name] for name in _JOB if answers.get(name) not in (None, "")})
    fix = str(answers.get("fix") or "")
    url = answers.get("url") or "FILL IN"
    seen = [{"by": "reporter-tried", "result": "worked", "ref": url}] if answers.get("url") else OURS
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "title": {"en": answers["title"], "zh": "FILL IN"},
        "summary": {"en": "FILL IN: who ran what on which hardware, and what came of it", "zh": "FILL IN"},
        "date": datetime.date.today(),
        "languages": ["en"],
        "frameworks": [answers["framework"]],
        "hardware": {k: v for k, v in (("gpu", job.gpu), ("count", job.world)) if v},
        "phase": "unknown",
        "symptoms": [answers["symptom"], "FILL IN: how somebody would ask it"],
        "before": job.document(),
        "outcome": {"before": {"fits": False}, "witness": OURS},
        "cause": {"witness": OURS},
        "why": {"en": "FILL IN: the mechanism, with its arithmetic", "zh": "FILL IN", "witness": OURS},
        "fixes": [{"text": {"en": fix, "zh": "FILL IN"}, "safety": "not-applicable", "witness": seen}] if fix else [],
        "references": [{"role": "report", "url": url}],
    }
    if not record["hardware"]:
        del record["hardware"]
    return record_text(record)
