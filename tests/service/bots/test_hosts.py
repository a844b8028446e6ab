"""Only the platform's own hosts are called, however an address is dressed up."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from oomdoc.bots.outgoing import Outgoing, allowed
from oomkb.errors import InputError

HOSTS = {"hooks.slack.com", ".dingtalk.com"}


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("https://hooks.slack.com/commands/T1/2/x", "https://hooks.slack.com/commands/T1/2/x"),
        ("https://HOOKS.slack.com:443/a?b=c#d", "https://hooks.slack.com/a?b=c"),
        (
            "https://oapi.dingtalk.com/robot/sendBySession?session=1",
            "https://oapi.dingtalk.com/robot/sendBySession?session=1",
        ),
        ("https://hooks.slack.com", "https://hooks.slack.com/"),
    ],
)
def test_the_platforms_own(url: str, written: str) -> None:
    assert allowed(url, HOSTS) == written


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.slack.com/x",
        "http://hooks.slack.com/x",
        "ftp://hooks.slack.com/x",
        "file:///etc/passwd",
        "//hooks.slack.com/x",
        "https://hooks.slack.com.evil.example/x",
        "https://evilhooks.slack.com/x",
        "https://evil.example/hooks.slack.com",
        "https://hooks.slack.com@evil.example/x",
        "https://user:password@hooks.slack.com/x",
        "https://evil.example\\@hooks.slack.com/x",
        "https://evil.example#@hooks.slack.com/x",
        "https://evil.example?@hooks.slack.com/x",
        "https://hooks.slack.com:8443/x",
        "https://hooks.slack.com:99999/x",
        "https://hooks.slack.com:x/x",
        "https://hooks.slack.com./x",
        "https://127.0.0.1/x",
        "https://2130706433/x",
        "https://0x7f.1/x",
        "https://[::1]/x",
        "https://[::ffff:127.0.0.1]/x",
        "https://169.254.169.254/latest/meta-data",
        "https://localhost/x",
        "https://dingtalk.com/x",
        "https://evildingtalk.com/x",
        "https://oapi.dingtalk.com.evil.example/x",
        "https://hooks。slack.com/x",
        "https://ｈooks.slack.com/x",
        "https://hooks.slack.com/x\r\nHost: evil.example",
        "https://hooks.slack.com/ x",
        "https://hooks.slack.com\t/x",
        "https://hooks.slack.com/" + "x" * 5000,
    ],
)
def test_everything_else_is_refused(url: str) -> None:
    with pytest.raises(InputError) as refused:
        allowed(url, HOSTS)
    assert "evil" not in str(refused.value)


def calls(handler: object) -> Outgoing:
    return Outgoing(HOSTS, httpx.MockTransport(handler))  # type: ignore[arg-type]


def test_a_redirect_is_not_followed() -> None:
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(307, headers={"location": "https://169.254.169.254/"})

    with pytest.raises(InputError, match="307"):
        asyncio.run(calls(answer).post("https://hooks.slack.com/x", {}))
    with pytest.raises(InputError, match="307"):
        asyncio.run(calls(answer).download("https://hooks.slack.com/x", {}, 100))
    assert seen == ["https://hooks.slack.com/x"] * 2


def test_what_comes_back_is_bounded() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b"x" * 1000)

    assert len(asyncio.run(calls(answer).download("https://hooks.slack.com/x", {}, 1000))) == 1000
    with pytest.raises(InputError, match="larger"):
        asyncio.run(calls(answer).download("https://hooks.slack.com/x", {}, 999))


def test_a_dead_platform_is_an_error_to_act_on() -> None:
    def dead(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("secret")

    with pytest.raises(InputError, match="does not answer") as error:
        asyncio.run(calls(dead).get("https://hooks.slack.com/x"))
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("content", [b"ok", b"[1]", b"\xff", b"[" * 100_000])
def test_answers_that_are_no_objects_are_empty(content: bytes) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content) == {"a": "b"}
        return httpx.Response(200, content=content)

    assert asyncio.run(calls(answer).post("https://hooks.slack.com/x", {"a": "b"})) == {}
