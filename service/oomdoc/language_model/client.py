"""The client: completions in one piece or streamed, with tools, as JSON of a schema; masked, bounded, and left alone
where it fails.

Servers differ in what they take. What one refuses (a JSON schema, a JSON object, ``max_tokens``, a temperature) is left
out and asked again, and remembered for the endpoint and model.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from oomdoc.intake.redact import mask
from oomdoc.language_model.failing import Budget, Unavailable, breaker_of
from oomdoc.language_model.replies import Reply, Tool, json_object, reply_of, streamed
from oomkb.dataclass import dataclass

Style = Literal["full", "small"]
Message = Mapping[str, Any]
_DIALECTS_TRIED: Final = 6
_CHARS_PER_TOKEN: Final = 3
"""For budgets, where the endpoint's own count is not known yet; careful for English, logs and code."""
_REPLY_TOKENS: Final = 1200


@dataclass(frozen=True, slots=True)
class _Dialect:
    """What an endpoint takes, as far as it is known."""

    format: Literal["schema", "object-schema", "object", "plain"] = "schema"
    """``object-schema``: a JSON object with the schema beside it, as llama.cpp and its Python server take it."""
    limit: str = "max_tokens"
    temperature: bool = True


_SIMPLER: Final[Mapping[str, Any]] = {"schema": "object-schema", "object-schema": "object", "object": "plain"}
_KNOWN: Final[dict[tuple[str, str], _Dialect]] = {}
_LOCK: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """An endpoint (``.../v1``), its key and model, and how long one call may take."""

    url: str
    key: str = ""
    model: str = ""
    timeout_s: float = 30.0
    style: Style = "full"
    """``small``: one question a call, for models of about 8B parameters."""
    context_tokens: int = 8192
    """Tokens that a prompt and its reply may take together."""

    def ask(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        budget: Budget | None = None,
        max_tokens: int = _REPLY_TOKENS,
    ) -> Reply:
        """One completion.

        :param messages: as the endpoint takes them (``{"role", "content"}`` ...); every text is masked here.
        :raises Unavailable: where there is none that can be used.
        """
        reply = Reply()
        for part in self._converse(messages, tools, None, budget, max_tokens, stream=False):
            reply = part if isinstance(part, Reply) else reply
        return reply

    def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        budget: Budget | None = None,
        max_tokens: int = _REPLY_TOKENS,
    ) -> Iterator[str | Reply]:
        """A completion's words as they come; last comes the whole :class:`Reply`.

        :raises Unavailable: also after words have come.
        """
        yield from self._converse(messages, tools, None, budget, max_tokens, stream=True)

    def document(
        self,
        messages: Sequence[Message],
        schema: Mapping[str, Any],
        *,
        name: str = "answer",
        budget: Budget | None = None,
        max_tokens: int = _REPLY_TOKENS,
    ) -> dict[str, Any]:
        """A completion that is a JSON object of ``schema``; of servers without schemas, whatever object it gives.

        Whether it has the form of the schema is for the caller to check.

        :raises Unavailable: ``malformed`` or ``cut-off`` where there is no object, and as :meth:`ask`.
        """
        asked = {"type": "json_schema", "json_schema": {"name": name, "schema": dict(schema), "strict": True}}
        reply = Reply()
        for part in self._converse(messages, (), asked, budget, max_tokens, stream=False):
            reply = part if isinstance(part, Reply) else reply
        try:
            return json_object(reply.text)
        except Unavailable as error:
            raise (Unavailable("cut-off") if reply.cut_off else error) from error

    def _converse(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        schema: Mapping[str, Any] | None,
        budget: Budget | None,
        max_tokens: int,
        *,
        stream: bool,
    ) -> Iterator[str | Reply]:
        breaker = breaker_of(self.url)
        breaker.check()
        budget = budget or Budget(seconds=self.timeout_s)
        body: dict[str, Any] = {"model": self.model, "messages": masked_messages(messages), "stream": stream}
        if tools:
            body["tools"] = [tool.document() for tool in tools]
        prompt = sum(len(str(m)) for m in body["messages"]) + (len(str(body["tools"])) if tools else 0)
        estimated = prompt // _CHARS_PER_TOKEN
        budget.take_call(estimated)
        try:
            last = Reply()
            for part in self._answered(body, schema, budget, max_tokens):
                last = part if isinstance(part, Reply) else last
                yield part
        except Unavailable as error:
            breaker.record(error.reason)
            raise
        breaker.record(None)
        budget.take_reply(last.reply_tokens + max(0, last.prompt_tokens - estimated) or len(last.text) // 3)

    def _answered(
        self, body: dict[str, Any], schema: Mapping[str, Any] | None, budget: Budget, max_tokens: int
    ) -> Iterator[str | Reply]:
        """Ask, in the dialect that is known; leave out what is refused and ask again."""
        from oomdoc.language_model.exchange import Refusal, exchanged

        dialect = _KNOWN.get((self.url, self.model), _Dialect())
        url = self.url.rstrip("/")
        url = url if url.endswith("/chat/completions") else f"{url}/chat/completions"
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        for _ in range(_DIALECTS_TRIED):
            lines = exchanged(
                url, headers, body | _spoken(dialect, schema, max_tokens), min(self.timeout_s, budget.left_s)
            )
            try:
                yield from _read(lines, stream=body["stream"])
            except Refusal as refusal:
                simpler = _simpler(dialect, refusal.status, refusal.said.lower(), schema is not None)
                if simpler is None:
                    raise
                dialect = simpler
                continue
            with _LOCK:
                _KNOWN[self.url, self.model] = dialect
            return
        raise Unavailable("failed", "no form of the request is taken")


def masked_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages with every text masked, equal things by equal placeholders."""
    table: Mapping[str, str] = {}

    def shown(value: Any) -> Any:
        nonlocal table
        if isinstance(value, str):
            done = mask(value, table)
            table = done.table
            return done.text
        if isinstance(value, Mapping):
            return {k: v if k in ("type", "role", "id", "tool_call_id", "name") else shown(v) for k, v in value.items()}
        return [shown(one) for one in value] if isinstance(value, list | tuple) else value

    return [shown(message) for message in messages]


def _read(lines: Iterator[str], *, stream: bool) -> Iterator[str | Reply]:
    import json
    from itertools import chain

    first = next((line for line in lines if line.strip()), "")
    if stream and first.startswith(("data:", ":", "event:", "id:", "retry:")):
        yield from streamed(chain((first,), lines))
        return
    try:
        document = json.loads("\n".join((first, *lines)))
    except (ValueError, RecursionError) as error:
        raise Unavailable("malformed", "no JSON") from error
    reply = reply_of(document)
    if stream and reply.text:  # a server that does not stream
        yield reply.text
    yield reply


def _spoken(dialect: _Dialect, schema: Mapping[str, Any] | None, max_tokens: int) -> dict[str, Any]:
    spoken: dict[str, Any] = {dialect.limit: max_tokens}
    if dialect.temperature:
        spoken["temperature"] = 0
    if schema is not None and dialect.format != "plain":
        beside = {"schema": schema["json_schema"]["schema"]} if dialect.format == "object-schema" else {}
        spoken["response_format"] = schema if dialect.format == "schema" else {"type": "json_object", **beside}
    return spoken


def _simpler(dialect: _Dialect, status: int, said: str, formatted: bool) -> _Dialect | None:
    """The dialect to try after a refusal; ``None`` where leaving something out would not help."""
    if status in (401, 403, 404, 408, 429) or "context length" in said or "context_length" in said:
        return None
    if "max_completion_tokens" in said and dialect.limit == "max_tokens":
        return replace(dialect, limit="max_completion_tokens")
    if "temperature" in said and dialect.temperature:
        return replace(dialect, temperature=False)
    named = any(word in said for word in ("response_format", "schema", "json", "grammar", "guided"))
    if formatted and dialect.format != "plain" and (named or status in (400, 415, 422, 501)):
        return replace(dialect, format=_SIMPLER[dialect.format])
    return None
