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
from oomkb.dataclass import dataclass
from oomkb.errors import CatalogError, InputError, JobError, OomdocError, RecordError

Outcome = tuple[dict[str, Any], bytes]
_MASKED_CHARS: Final = 200_000
_PLACES: Final = 6
_KINDS: Final = {kind.__name__: kind for kind in (CatalogError, InputError, JobError, OomdocError, RecordError)}
_TIMES_PACKED: Final = 100
_UNPACKED_BYTES: Final = 64 << 20
"""Logs pack to a tenth or a thirtieth: what unpacks to more than this and a hundred times its size is none."""
_MAX_CONFIGS: Final = 256
"""Files beside a text: reading one asks for all others that it may take in."""
_CONFIG_CHARS: Final = 2_000_000
"""Of all of them: reading more takes longer than the deadline."""


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
        from oomdoc.intake.redact import masked_text

        said = {"message": error.message, "where": error.where, "hint": error.hint}
        # What is quoted was sent: in a field of a job, or as its name.
        return {"refused": {"kind": known.__name__, **{name: masked_text(text) for name, text in said.items()}}}, b""
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
        refusal = document["refused"]
        kind = _KINDS.get(refusal["kind"], OomdocError)
        raise kind(refusal["message"], where=refusal["where"], hint=refusal["hint"])
    if "failed" in document:
        raise TaskFailed(str(document["failed"]["kind"]), list(document["failed"]["places"]))
    return outcome


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked to be diagnosed."""

    sources: list[Source]
    options: Any
    language: str = "auto"
    plans: bool = True
    keep: bool = True
    language_model: bool = True


def _request(arguments: dict[str, Any], raw: bytes) -> _Request:
    """Of ``{kind}`` and a body, JSON or text; or of ``{files: [[name, path]], fields: {...}, limit_bytes}``."""
    if "files" in arguments:
        return _of_files(arguments)
    from oomdoc.api.bodies import DiagnoseBody, read_body

    if arguments["kind"] == "text/plain":
        text = raw.decode("utf-8", "replace")
        if not text.strip():
            raise InputError("the body is empty", where="body", hint="send the log as text")
        return _Request([Source("input", text)], {})
    body = read_body(DiagnoseBody, raw)
    if len(body.configs) > _MAX_CONFIGS:
        raise JobError(f"more than {_MAX_CONFIGS} files", where="body.configs", hint="send those that matter")
    if sum(map(len, body.configs.values())) > _CONFIG_CHARS:
        raise JobError(f"more than {_CONFIG_CHARS:,} characters", where="body.configs", hint="send those that matter")
    sources = [Source("input", body.text), *(Source(name, text) for name, text in body.configs.items())]
    return _Request(sources, body.set, body.lang, body.plans, body.keep, body.language_model)


def _of_files(arguments: dict[str, Any]) -> _Request:
    from oomdoc.api.bodies import DiagnoseBody, read_body
    from oomdoc.intake.stream import load_source

    fields, limit_bytes = arguments["fields"], int(arguments["limit_bytes"])
    try:
        options = json.loads(fields.get("set") or "{}")
    except (ValueError, RecursionError) as error:
        raise InputError("not JSON", where="body.set", hint='write job fields as {"gpus": 8}') from error
    lang = fields.get("lang") if fields.get("lang") in ("en", "zh") else "auto"
    settings = {"text": "-", "lang": lang}
    settings |= {name: fields.get(name) != "false" for name in ("keep", "plans", "language_model")}
    body = read_body(DiagnoseBody, json.dumps(settings).encode())
    sources = []
    for name, path in arguments["files"]:
        size_bytes = Path(path).stat().st_size
        max_bytes = max(min(limit_bytes, _UNPACKED_BYTES + _TIMES_PACKED * size_bytes), size_bytes)
        try:
            sources.append(replace(load_source(path, limit_bytes=max_bytes), name=name))
        except InputError as error:  # where it lies here is nobody's concern
            raise InputError(error.message.replace(path, name), where=name, hint=error.hint) from error
    return _Request(sources, options, body.lang, body.plans, body.keep, body.language_model)


def _named(sources: list[Source]) -> list[Source]:
    """With masked names: names of files tell about people too, and here nobody needs them to find the files again."""
    from oomdoc.intake.redact import mask

    return [Source(mask(source.name).text, source.text) for source in sources]


def _questions(arguments: dict[str, Any], raw: bytes) -> Outcome:
    """What a language model is to be asked: a request's arguments with ``{style, context_tokens}``."""
    from oomdoc.intake import read
    from oomdoc.intake.read import prepared
    from oomdoc.language_model.reader import questions_of

    request = _request(arguments, raw)
    if not request.language_model:
        return {"questions": []}, b""
    sources = _named(request.sources)
    style, tokens = arguments["style"], int(arguments["context_tokens"])
    _, questions = questions_of(prepared(sources), read(sources), style=style, context_tokens=tokens)
    return {"questions": [question.document() for question in questions]}, b""


def _diagnosis(arguments: dict[str, Any], raw: bytes) -> Outcome:
    """A request's arguments, with ``{replies, trouble, style, context_tokens}`` where a language model was asked."""
    from oomdoc.intake.redact import mask
    from oomdoc.language_model.reader import recorded
    from oomdoc.library import diagnosed

    request = _request(arguments, raw)
    sources = _named(request.sources)
    said = arguments.get("reading")
    report = diagnosed(
        sources,
        options=request.options,
        language=request.language,
        plans=request.plans,
        reader=recorded(**said) if said is not None else None,
    )
    document = report.document()
    document["language"] = report.language
    causes = document["causes"]
    masked, room = [], _MASKED_CHARS
    for source in sources if request.keep else ():
        masked.append(mask(source.text[:room]).text)
        room -= len(source.text)
        if room <= 0:
            break
    summary = {
        "warnings": document["warnings"],
        "language": report.language,
        "input_masked": "\n".join(masked),
        "verdict": document["verdict"],
        "cause": causes[0]["cause"] if causes else "none",
        "keep": request.keep,
    }
    text = json.dumps({k: v for k, v in document.items() if k != "id"}, ensure_ascii=False)
    return summary, text.encode("utf-8", "replace")


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
    from oomdoc.diagnosis.searching import find_cases
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


def _tool(arguments: dict[str, Any], _blob: bytes) -> Outcome:
    """``{name, arguments}`` of a function of :mod:`oomdoc.tools` -> its answer."""
    from oomdoc.tools import tool_named

    return {}, _written(tool_named(arguments["name"]).call(arguments["arguments"]))


def _case_problems(arguments: dict[str, Any], _blob: bytes) -> Outcome:
    """``{id, yaml}`` -> ``{problems}``."""
    from oomdoc.casework import check_text

    return {"problems": [str(p) for p in check_text(arguments["id"], arguments["yaml"])]}, b""


def _written(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")


TASKS: Final[Mapping[str, Callable[[dict[str, Any], bytes], Outcome]]] = {
    "case-problems": _case_problems,
    "diagnosis": _diagnosis,
    "estimate": _estimate,
    "plan": _plan,
    "questions": _questions,
    "search": _search,
    "tool": _tool,
    "turn": _turn,
}
