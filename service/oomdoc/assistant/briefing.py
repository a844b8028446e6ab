"""What a language model is told before it converses, and the functions that it may call, as it sees them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from oomdoc.chat.session import Session, flat
from oomdoc.evidence import Source
from oomdoc.language_model import Tool
from oomdoc.language_model.reader.passage import estimated_tokens, passage_of
from oomdoc.stated import job_schema
from oomdoc.tools import tool_named

CHANGE: Final = "change_job"
_WHOLE: Final = ("diagnose", "estimate", "compare", "extrapolate", "plan", "fix", "search", "explain", "scan")
_SMALL: Final = ("estimate", "compare", "plan", "explain")
_BOUND: Final = ("lang", "detail", "text", "filename", "configs")
"""Arguments that the conversation gives: its language, and what was pasted in it."""
_WITH_TEXT: Final = ("search",)
_SELDOM: Final = frozenset(
    {
        *(
            "loop",
            "extra_models",
            "buckets",
            "versions",
            "env",
            "nvme_offload",
            "video_frames",
            "host_gib",
            "planned",
            "failed",
        ),
        *("optimizer_impl", "compile", "micro_tokens", "eval_micro_batch", "log_prob_batch", "reshard_after_forward"),
        *("world", "dp", "capacity_gib", "trained_layers"),
    }
)
"""Fields of a job that a small model is not shown."""
_USUAL: Final = 11
_CHANGES_SHOWN: Final = 8
_TEXT_TOKENS: Final = {"full": 3_000, "small": 1_200}
"""Of what was pasted, as the model sees it."""
_LANGUAGES: Final = {"en": "English", "zh": "Chinese"}
_SYSTEM: Final = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
AGAIN: Final = (
    "(oomdoc) These sentences of yours were withheld, the others were given:\n{withheld}\nSay what is missing once "
    "more in one or two sentences, with figures that stand above or that a function gives; or reply only OK."
)


def instructions(language: str, style: str = "full") -> str:
    """The system message; lines that begin with a plus are for models that have all functions."""
    lines = [line for line in _SYSTEM.splitlines(keepends=True) if style == "full" or not line.startswith("+")]
    text = "".join(f"-{line[1:]}" if line.startswith("+") else line for line in lines)
    return text.format(language=_LANGUAGES[language])


@cache
def functions(style: str, *, changes: bool) -> tuple[Tool, ...]:
    """The functions: one carries the schema of a job, the others refer to it.

    :param changes: whether the job may be changed.
    """
    found = []
    for name in _SMALL if style == "small" else _WHOLE:
        tool = tool_named(name)
        schema = tool.input_schema
        hidden = [n for n in _BOUND if not (n == "text" and name in _WITH_TEXT)]
        shown = {n: p for n, p in schema["properties"].items() if n not in hidden}
        properties = {n: _slim(n, p, style, whole=name == "estimate") for n, p in shown.items()}
        required = [n for n in schema.get("required", ()) if n in properties and n != "job"]
        slim = {"type": "object", "properties": properties, "required": required}
        found.append(Tool(name, tool.description.partition("\n")[0], slim))
    if changes:
        properties = {
            "fields": {"type": "object", "description": "job fields, as in estimate; null clears one"},
            "undo": {"type": "integer", "description": "take back that many of the latest changes first"},
        }
        what = "Change the conversation's job, because the person wants that."
        found.append(Tool(CHANGE, what, {"type": "object", "properties": properties}))
    return tuple(found)


def _without_rare(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """A field whose long list of values names the usual ones alone."""
    values = field.get("enum", ())
    return field if len(values) <= _USUAL else {"type": "string", "description": f"{', '.join(values[:_USUAL])}, ..."}


def _slim(name: str, schema: Mapping[str, Any], style: str, *, whole: bool) -> dict[str, Any]:
    if name in ("job", "base", "fields"):
        if not whole:
            return {"type": "object", "description": "job fields, as in estimate"}
        left_out = _SELDOM if style == "small" else frozenset()
        fields = {n: f for n, f in job_schema(short=True)["properties"].items() if n not in left_out}
        if style == "small":
            fields = {n: _without_rare(f) for n, f in fields.items()}
        return {"type": "object", "properties": fields}
    if name == "jobs":
        return {"type": "array", "items": {"type": "object"}, "description": "job fields of each, as in estimate"}
    if name == "points":
        point = {"type": "object", "properties": {"size": {"type": "number"}, "gib": {"type": "number"}}}
        return {"type": "array", "items": point, "description": schema["description"]}
    kept = {k: v for k, v in schema.items() if k in ("type", "description", "items", "enum", "anyOf")}
    return kept or {"type": "string"}


def changes_of(session: Session) -> list[dict[str, list[Any]]]:
    """What was changed so far, the latest last: field -> [before, after]."""
    pairs = list(pairwise(session.steps))[-_CHANGES_SHOWN:]
    return [{n: [flat(old.job).get(n), flat(new.job).get(n)] for n in new.changed} for old, new in pairs]


def brief(found: dict[str, Any]) -> dict[str, Any]:
    """A function's answer without what says nothing: empty parts, reasons of what was assumed."""
    shown = {name: value for name, value in found.items() if value not in (None, [], {})}
    if isinstance(shown.get("estimate"), dict):
        shown["estimate"] = brief(shown["estimate"])
    if isinstance(shown.get("assumed"), dict):
        values = {name: one["value"] for name, one in shown["assumed"].items()}
        shown["assumed"] = {name: value for name, value in values.items() if value not in ([], "none", False)}
    return shown


def shown_text(text: str, style: str) -> str:
    """What the person said; of a long log the lines that tell."""
    most = _TEXT_TOKENS[style]
    if estimated_tokens(text) <= most:
        return text
    from oomdoc.intake import read

    source = Source("chat", text)
    return passage_of([source], read([source]), most).text
