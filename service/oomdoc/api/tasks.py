"""What a request has computed: plain values in, plain values and one text out, so that it can run in another process.

Each takes its arguments and one blob (a body as it came), and gives a small document and one blob (the answer's text).
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from oomdoc.evidence import Source
from oomkb.errors import CatalogError, InputError, JobError, OomdocError, RecordError

__all__ = ["TASKS", "TaskFailed", "reported", "run_task"]

Outcome = tuple[dict[str, Any], bytes]
_MASKED_CHARS: Final = 200_000
_PLACES: Final = 6
_KINDS: Final = {kind.__name__: kind for kind in (CatalogError, InputError, JobError, OomdocError, RecordError)}
_MOST_CONFIGS: Final = 256
"""Files beside a text: reading one asks for all others that it may take in."""


class TaskFailed(Exception):
    """An error nobody foresaw; ``kind`` and ``places`` say where, never what was pasted."""

    def __init__(self, kind: str, places: list[str]) -> None:
        super().__init__(kind)
        self.kind, self.places = kind, places


def run_task(name: str, arguments: Mapping[str, Any], blob: bytes) -> Outcome:
    """Run a task; whatever it raises comes back as a document that :func:`reported` raises again."""
    try:
        return TASKS[name](dict(arguments), blob)
    except OomdocError as error:
        known = next((k for k in type(error).__mro__ if k.__name__ in _KINDS), OomdocError)
        told = {"kind": known.__name__, "message": error.message, "where": error.where, "hint": error.hint}
        return {"refused": told}, b""
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[-_PLACES:]
        places = [f"{'/'.join(f.filename.split('/')[-3:])}:{f.lineno} {f.name}" for f in frames]
        return {"failed": {"kind": type(error).__name__, "places": places}}, b""


def reported(outcome: Outcome) -> Outcome:
    """The outcome of a task, where it is one.

    :raises OomdocError: what the task refused with.
    :raises TaskFailed: for an error nobody foresaw.
    """
    document = outcome[0]
    if "refused" in document:
        told = document["refused"]
        kind = _KINDS.get(told["kind"], OomdocError)
        raise kind(told["message"], where=told["where"], hint=told["hint"])
    if "failed" in document:
        raise TaskFailed(str(document["failed"]["kind"]), list(document["failed"]["places"]))
    return outcome


def _diagnosis(arguments: dict[str, Any], raw: bytes) -> Outcome:
    """``{kind}`` and a body, JSON or text."""
    from oomdoc.api.bodies import DiagnoseBody, read_body

    if arguments["kind"] == "text/plain":
        text = raw.decode("utf-8", "replace")
        if not text.strip():
            raise InputError("the body is empty", where="body", hint="send the log as text")
        return _diagnosed([Source("input", text)], {}, "auto", plans=True, keep=True)
    body = read_body(DiagnoseBody, raw)
    if len(body.configs) > _MOST_CONFIGS:
        raise JobError(f"more than {_MOST_CONFIGS} files", where="body.configs", hint="send those that matter")
    sources = [Source("input", body.text), *(Source(name, text) for name, text in body.configs.items())]
    return _diagnosed(sources, body.set, body.lang, plans=body.plans, keep=body.keep)


def _diagnosis_of_files(arguments: dict[str, Any], _blob: bytes) -> Outcome:
    """``{files: [[name, path]], fields: {...}, limit_bytes}``."""
    from oomdoc.api.bodies import DiagnoseBody, read_body
    from oomdoc.intake.stream import load_source

    fields, limit_bytes = arguments["fields"], int(arguments["limit_bytes"])
    try:
        options = json.loads(fields.get("set") or "{}")
    except (ValueError, RecursionError) as error:
        raise InputError("not JSON", where="body.set", hint='write job fields as {"gpus": 8}') from error
    lang = fields.get("lang") if fields.get("lang") in ("en", "zh") else "auto"
    settings = {
        "text": "-",
        "lang": lang,
        "keep": fields.get("keep") != "false",
        "plans": fields.get("plans") != "false",
    }
    body = read_body(DiagnoseBody, json.dumps(settings).encode())
    sources = []
    for name, path in arguments["files"]:
        most = max(limit_bytes, Path(path).stat().st_size)
        sources.append(replace(load_source(path, limit_bytes=most), name=name))
    return _diagnosed(sources, options, body.lang, plans=body.plans, keep=body.keep)


def _diagnosed(sources: list[Source], options: Any, language: str, *, plans: bool, keep: bool) -> Outcome:
    from oomdoc.intake.redact import mask
    from oomdoc.library import diagnose

    # Names of files tell about people too; here nobody needs them unmasked to find the files again.
    sources = [Source(mask(source.name).text, source.text) for source in sources]
    report = diagnose(sources, options=options, language=language, plans=plans)
    document = report.document()
    document["language"] = report.language
    causes = document["causes"]
    masked, room = [], _MASKED_CHARS
    for source in sources if keep else ():
        masked.append(mask(source.text[:room]).text)
        room -= len(source.text)
        if room <= 0:
            break
    told = {
        "warnings": document["warnings"],
        "language": report.language,
        "input_masked": "\n".join(masked),
        "verdict": document["verdict"],
        "cause": causes[0]["cause"] if causes else "none",
        "keep": keep,
    }
    text = json.dumps({k: v for k, v in document.items() if k != "id"}, ensure_ascii=False)
    return told, text.encode("utf-8", "replace")


def _estimate(_arguments: dict[str, Any], raw: bytes) -> Outcome:
    from oomdoc.api.bodies import EstimateBody, read_body
    from oomdoc.report.estimates import estimate_document
    from oomkb.memory.job import Job
    from oomkb.pricing import price_planned

    body = read_body(EstimateBody, raw)
    language = "en" if body.lang == "auto" else body.lang
    return {}, _written(estimate_document(price_planned(Job.from_document(body.job)).estimate, language=language))


def _plan(arguments: dict[str, Any], _blob: bytes) -> Outcome:
    """``{text, filename, job, lang}``."""
    from oomdoc.planner import plan_document, plan_job

    language = "en" if arguments["lang"] == "auto" else arguments["lang"]
    return {}, _written(plan_document(plan_job(arguments["text"], arguments["filename"], arguments["job"]), language))


def _search(arguments: dict[str, Any], _blob: bytes) -> Outcome:
    """``{text, top, lang}``."""
    from oomdoc.diagnosis.cases import find_cases
    from oomdoc.intake.digest import language_of
    from oomdoc.report.document import match_document

    text, language = arguments["text"], arguments["lang"]
    language = language_of(text, text) if language == "auto" else language
    found = find_cases(text, top=arguments["top"])
    return {}, _written({"matches": [match_document(match, language) for match in found]})


def _turn(arguments: dict[str, Any], _blob: bytes) -> Outcome:
    """``{session: a stored session or null, text}`` -> ``{session, reply}``."""
    from oomdoc.chat.conversation import respond
    from oomdoc.chat.session import Session
    from oomdoc.intake.redact import mask

    kept = arguments["session"]
    session, reply = respond(Session.from_document(kept) if kept else Session(), mask(arguments["text"]).text)
    return {"session": session.document(), "reply": reply.document()}, b""


def _case_problems(arguments: dict[str, Any], _blob: bytes) -> Outcome:
    """``{id, yaml}`` -> ``{problems}``."""
    from oomdoc.casework import check_text

    return {"problems": [str(p) for p in check_text(arguments["id"], arguments["yaml"])]}, b""


def _written(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")


TASKS: Final[Mapping[str, Callable[[dict[str, Any], bytes], Outcome]]] = {
    "case-problems": _case_problems,
    "diagnosis": _diagnosis,
    "diagnosis-of-files": _diagnosis_of_files,
    "estimate": _estimate,
    "plan": _plan,
    "search": _search,
    "turn": _turn,
}
