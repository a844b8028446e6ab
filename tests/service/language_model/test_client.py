"""The client against a real local server: dialects, streams, limits, masking, the breaker."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from standin import StandIn, completion, stream_of

from oomdoc.language_model import Budget, LanguageModel, Reply, Tool, Unavailable, from_environment, from_settings
from oomdoc.language_model.failing import Breaker
from oomdoc.settings import Settings

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
HELLO = [{"role": "user", "content": "hello"}]


def model_of(endpoint: StandIn, **options: Any) -> LanguageModel:
    return LanguageModel(endpoint.url, "key-1", "m", **({"timeout_s": 5.0} | options))


def reason_of(endpoint: StandIn, **options: Any) -> str:
    with pytest.raises(Unavailable) as refused:
        model_of(endpoint, **options).document(HELLO, SCHEMA)
    return refused.value.reason


def test_one_completion(endpoint: StandIn) -> None:
    endpoint.say = lambda _request: completion("good day")
    reply = model_of(endpoint).ask(HELLO)
    assert reply == Reply("good day", (), False, 10, 5)
    [request] = endpoint.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["model"] == "m"
    assert "response_format" not in request
    assert endpoint.keys == ["Bearer key-1"]


def test_inside_an_event_loop(endpoint: StandIn) -> None:
    endpoint.say = lambda _request: completion("good day")

    async def inside() -> str:
        return model_of(endpoint).ask(HELLO).text

    assert asyncio.run(inside()) == "good day"


@pytest.mark.parametrize("taken", ["json_schema", "schema", "json_object", None])
@pytest.mark.parametrize("status", [400, 500])
def test_servers_without_schemas_are_asked_simpler(endpoint: StandIn, taken: str | None, status: int) -> None:
    forms = ["json_schema", "schema", "json_object", None]

    def say(request: dict[str, Any]) -> Any:
        asked = request.get("response_format", {})
        kind = "schema" if asked.get("schema") == SCHEMA else asked.get("type")
        if forms.index(kind) < forms.index(taken):
            return status, {"error": {"message": f"response_format {kind} is not supported"}}
        return completion('Here it is:\n```json\n{"n": 3}\n```' if taken is None else '{"n": 3}')

    endpoint.say = say
    model = model_of(endpoint)
    assert model.document(HELLO, SCHEMA) == {"n": 3}
    asked = len(endpoint.requests)
    assert model.document(HELLO, SCHEMA) == {"n": 3}
    assert len(endpoint.requests) == asked + 1  # it is remembered


def test_other_tastes(endpoint: StandIn) -> None:
    def say(request: dict[str, Any]) -> Any:
        if "max_tokens" in request:
            return 400, {"error": {"message": "Use 'max_completion_tokens' instead."}}
        if "temperature" in request:
            return 400, {"error": {"message": "'temperature' does not support 0"}}
        return completion("ok")

    endpoint.say = say
    assert model_of(endpoint).ask(HELLO).text == "ok"
    assert endpoint.requests[-1]["max_completion_tokens"] > 0


@pytest.mark.parametrize(
    "said",
    [
        '{"n": 1}',
        '<think>maybe {"n": 2}?</think>{"n": 1}',
        'Sure! {"n": 1} Anything else?',
        '```json\n{"n": 1}\n```',
        [{"type": "text", "text": '{"n": 1}'}],
    ],
)
def test_json_is_found(endpoint: StandIn, said: Any) -> None:
    endpoint.say = lambda _request: completion(said)
    assert model_of(endpoint).document(HELLO, SCHEMA) == {"n": 1}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (completion("[1]"), "malformed"),
        (completion('{"n": '), "malformed"),
        (completion("{" * 100_000), "malformed"),
        (completion('{"n": ', finish_reason="length"), "cut-off"),
        (completion("", message={"refusal": "I cannot help", "content": None}), "declined"),
        (completion("", finish_reason="content_filter"), "declined"),
        ({"choices": []}, "malformed"),
        ({"choices": [{"message": "hi"}]}, "malformed"),
        ([1], "malformed"),
        (b"<html>busy</html>", "malformed"),
        (b"", "malformed"),
        (b'{"choices": "' + b"x" * (2 << 20), "too-large"),
        ((401, {}), "refused"),
        ((404, {}), "failed"),
        ((302, {}), "failed"),
        ((429, {}), "busy"),
        ((500, {}), "failed"),
        ((400, {"error": "context length exceeded"}), "failed"),
    ],
)
def test_every_fault_has_a_reason(endpoint: StandIn, said: Any, reason: str) -> None:
    endpoint.say = lambda _request: said
    assert reason_of(endpoint) == reason


def test_an_answer_that_breaks_off(endpoint: StandIn) -> None:
    endpoint.say = lambda _request: completion("x" * 1000)
    endpoint.cut_at = 200
    assert reason_of(endpoint) == "unreachable"


def test_nobody_there() -> None:
    for url in ("http://127.0.0.1:1/v1", "nonsense://", "http://[", ""):
        with pytest.raises(Unavailable) as refused:
            LanguageModel(url, timeout_s=1.0).ask(HELLO)
        assert refused.value.reason == "unreachable"


def test_a_dripping_server_cannot_stretch_the_limit(endpoint: StandIn) -> None:
    endpoint.say = lambda _request: completion("x" * 400)
    endpoint.drip_s = 0.2
    started = time.monotonic()
    assert reason_of(endpoint, timeout_s=0.4) == "timeout"
    assert time.monotonic() - started < 40


def test_a_stream_gives_words_then_the_reply(endpoint: StandIn) -> None:
    endpoint.say = lambda _request: stream_of({"content": "good "}, {"content": "day"})
    assert list(model_of(endpoint).stream(HELLO)) == ["good ", "day", Reply("good day")]


def test_a_server_that_does_not_stream(endpoint: StandIn) -> None:
    endpoint.say = lambda _request: completion("good day")
    assert list(model_of(endpoint).stream(HELLO)) == ["good day", Reply("good day", (), False, 10, 5)]


def test_a_stream_that_is_cut_off(endpoint: StandIn) -> None:
    endpoint.say = lambda _request: stream_of({"content": "good "}, done=False)
    words = model_of(endpoint).stream(HELLO)
    assert next(words) == "good "
    with pytest.raises(Unavailable) as refused:
        next(words)
    assert refused.value.reason == "cut-off"


def test_a_stream_that_is_left_early(endpoint: StandIn) -> None:
    endpoint.drip_s = 0.05
    endpoint.say = lambda _request: stream_of(*[{"content": "word "}] * 200)
    words = model_of(endpoint).stream(HELLO)
    assert next(words) == "word "
    started = time.monotonic()
    words.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < 30


TOOL = Tool("estimate", "Price a job.", {"type": "object", "properties": {"model": {"type": "string"}}})


def test_tools_in_one_piece_and_streamed(endpoint: StandIn) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "estimate", "arguments": '{"model": "m"}'}}
    endpoint.say = lambda _request: completion("", message={"content": None, "tool_calls": [call]})
    [whole] = model_of(endpoint).ask(HELLO, tools=[TOOL]).calls
    assert endpoint.requests[0]["tools"] == [TOOL.document()]
    first = {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "estimate", "arguments": '{"mod'}}]}
    second = {"tool_calls": [{"index": 0, "function": {"arguments": 'el": "m"}'}}]}
    endpoint.say = lambda _request: stream_of(first, second, finish="tool_calls")
    [reply] = model_of(endpoint).stream(HELLO, tools=[TOOL])
    assert isinstance(reply, Reply)
    assert reply.calls == (whole,)
    assert whole.values() == {"model": "m"}
    assert reply.message()["tool_calls"] == [call]


@pytest.mark.parametrize("at", [-1, 99, "0", None])
def test_tool_calls_of_no_place(endpoint: StandIn, at: Any) -> None:
    endpoint.say = lambda _request: stream_of({"tool_calls": [{"index": at, "function": {"name": "x"}}]})
    with pytest.raises(Unavailable) as refused:
        list(model_of(endpoint).stream(HELLO, tools=[TOOL]))
    assert refused.value.reason == "malformed"


def test_everything_sent_is_masked(endpoint: StandIn) -> None:
    secret = "mail me at wangwei@corp.example, token=hf_abcdefghijklmnopqrstuvwxyz, /home/wangwei/x"
    messages = [
        {"role": "system", "content": secret},
        {"role": "user", "content": [{"type": "text", "text": secret}]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": secret}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": secret},
    ]
    model_of(endpoint).ask(messages)
    sent = json.dumps(endpoint.requests)
    assert "wangwei" not in sent
    assert "hf_abc" not in sent
    assert sent.count("path-user-1") == 4


def test_budgets(endpoint: StandIn) -> None:
    budget = Budget(calls=2)
    model = model_of(endpoint)
    model.ask(HELLO, budget=budget)
    model.ask(HELLO, budget=budget)
    for spent in (budget, Budget(tokens=5), Budget(seconds=0.0)):
        with pytest.raises(Unavailable) as refused:
            model.ask(HELLO, budget=spent)
        assert refused.value.reason == "budget"
    assert len(endpoint.requests) == 2
    assert budget.spent_tokens >= 10


def test_an_endpoint_that_fails_is_left_alone_for_a_while(endpoint: StandIn) -> None:
    endpoint.say = lambda _request: (500, {})
    assert [reason_of(endpoint) for _ in range(5)] == ["failed"] * 3 + ["paused"] * 2
    assert len(endpoint.requests) == 3


def test_the_breaker_lets_one_call_try() -> None:
    now = [0.0]
    breaker = Breaker(lambda: now[0])
    for _ in range(3):
        breaker.check()
        breaker.record("timeout")
    with pytest.raises(Unavailable):
        breaker.check()
    now[0] = 31.0
    breaker.check()
    with pytest.raises(Unavailable):  # another call, while the first one tries
        breaker.check()
    breaker.record(None)
    breaker.check()
    breaker.record("malformed")  # words that cannot be read are no failure of the endpoint
    breaker.check()


def test_off_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OOMDOC_LLM_URL", raising=False)
    monkeypatch.delenv("OOMDOC_CONFIG", raising=False)
    assert from_environment() is None
    assert from_settings(Settings()) is None
    monkeypatch.setenv("OOMDOC_LLM_URL", "http://localhost:1/v1")
    monkeypatch.setenv("OOMDOC_LLM_MODEL", "m")
    monkeypatch.setenv("OOMDOC_LLM_KEY", "k")
    monkeypatch.setenv("OOMDOC_LLM_TIMEOUT", "2.5")
    assert from_environment() == LanguageModel("http://localhost:1/v1", "k", "m", 2.5)
