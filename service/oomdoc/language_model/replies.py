"""What an endpoint sends back, read with suspicion: bounded, of the expected shape, nothing else kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from oomdoc.language_model.failing import Unavailable
from oomkb.dataclass import dataclass
from oomkb.kept import lazy

_MAX_CALLS: Final = 16
_LONGEST_ARGUMENTS: Final = 64 << 10
_THOUGHT: Final = lazy(r"<think(?:ing)?>.{0,200000}?</think(?:ing)?>", re.DOTALL)
_FENCED: Final = lazy(r"```(?:json)?\s{0,20}(.{0,200000}?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may ask for; ``parameters`` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """As the endpoint takes it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model asks for."""

    id: str
    name: str
    arguments: str
    """JSON as it was sent; :meth:`values` reads it."""

    def values(self) -> dict[str, Any]:
        """The arguments.

        :raises Unavailable: ``malformed``, where they are no JSON object.
        """
        return json_object(self.arguments or "{}")

    def document(self) -> dict[str, Any]:
        """As it stands in the messages that are sent back."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True, slots=True)
class Reply:
    """One completion."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    cut_off: bool = False
    """Whether it ended at its limit of tokens."""
    prompt_tokens: int = 0
    reply_tokens: int = 0

    def message(self) -> dict[str, Any]:
        """As the assistant's message of a conversation that goes on."""
        said: dict[str, Any] = {"role": "assistant", "content": self.text}
        return said | {"tool_calls": [call.document() for call in self.calls]} if self.calls else said


def reply_of(document: Any) -> Reply:
    """A completion that came in one piece.

    :raises Unavailable: ``malformed`` or ``declined``.
    """
    choice = _first(document)
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise Unavailable("malformed", "no message")
    if message.get("refusal"):
        raise Unavailable("declined")
    text = _text(message.get("content"))
    calls = tuple(_call(one) for one in _list(message.get("tool_calls"))[:_MAX_CALLS])
    if not text and not calls and choice.get("finish_reason") == "content_filter":
        raise Unavailable("declined")
    return Reply(text, calls, choice.get("finish_reason") == "length", *_usage(document))


def streamed(lines: Iterable[str]) -> Iterator[str | Reply]:
    """The words of a streamed completion as they come, then the whole reply.

    :raises Unavailable: ``malformed``, ``cut-off`` where the stream ends without an end.
    """
    text: list[str] = []
    parts: dict[int, dict[str, str]] = {}
    finish, usage = None, (0, 0)
    done = False
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            done = True
            continue
        chunk = _loaded(data)
        if isinstance(chunk, Mapping) and chunk.get("error"):
            raise Unavailable("failed", "an error inside the stream")
        usage = _usage(chunk) if isinstance(chunk, Mapping) and chunk.get("usage") else usage
        if not (isinstance(chunk, Mapping) and chunk.get("choices")):
            continue
        choice = _first(chunk)
        finish = choice.get("finish_reason") or finish
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            continue
        if said := _text(delta.get("content")):
            text.append(said)
            yield said
        _collect(parts, delta)
    if not done and finish is None:
        raise Unavailable("cut-off")
    calls = tuple(_call({"id": p["id"], "function": p}) for _, p in sorted(parts.items()))
    yield Reply("".join(text), calls, finish == "length", *usage)


def _collect(parts: dict[int, dict[str, str]], delta: Mapping[str, Any]) -> None:
    for one in _list(delta.get("tool_calls")):
        at = one.get("index", 0) if isinstance(one, Mapping) else None
        if not isinstance(at, int) or not 0 <= at < _MAX_CALLS:
            raise Unavailable("malformed", "tool calls")
        part = parts.setdefault(at, {"id": "", "name": "", "arguments": ""})
        function = one.get("function") or {}
        if not isinstance(function, Mapping):
            raise Unavailable("malformed", "tool calls")
        part["id"] = _text(one.get("id")) or part["id"]
        part["name"] += _text(function.get("name"))
        part["arguments"] += _text(function.get("arguments"))


def _call(one: Any) -> ToolCall:
    function = one.get("function") if isinstance(one, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise Unavailable("malformed", "tool calls")
    arguments = function.get("arguments")
    arguments = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    if len(arguments) > _LONGEST_ARGUMENTS:
        raise Unavailable("too-large", "tool calls")
    return ToolCall(_text(one.get("id")), function["name"], arguments)


def json_object(said: str) -> dict[str, Any]:
    """The JSON object that a reply holds: alone, in a fence, after thoughts, or among words.

    :raises Unavailable: ``malformed``, where there is none.
    """
    text = _THOUGHT.sub("", said).strip()
    fenced = _FENCED.search(text)
    inner = text[text.find("{") : text.rfind("}") + 1]
    for candidate in (text, fenced[1] if fenced else "", inner):
        if "{" not in candidate:
            continue
        try:
            value = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    raise Unavailable("malformed", "no JSON object")


def _loaded(data: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unavailable("malformed", "no JSON") from error


def _first(document: Any) -> Mapping[str, Any]:
    choices = document.get("choices") if isinstance(document, Mapping) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, Mapping):
        raise Unavailable("malformed", "no choices")
    return choice


def _text(value: Any) -> str:
    if isinstance(value, list):  # parts of a message
        return "".join(_text(part.get("text")) for part in value if isinstance(part, Mapping))
    return value if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _usage(document: Mapping[str, Any]) -> tuple[int, int]:
    usage = document.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    first, second = (n if isinstance(n, int) and 0 <= n < 10**8 else 0 for n in counts)
    return first, second
