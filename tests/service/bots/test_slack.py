"""Slack against a fake of it: signatures, the time limit, retries, threads, files, limits of size."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from oomdoc.bots.message import Call, Refused
from oomdoc.bots.slack import Slack, documents, plain_text, signature

SECRET, TOKEN = "8f742231b10e8888abcd99yyyzzz85a5", "xoxb-test-token"
SETTINGS = {"slack_signing_secret": SECRET, "slack_bot_token": TOKEN}
# The worked example of docs.slack.dev/authentication/verifying-requests-from-slack.
EXAMPLE = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
    b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121."
    b"803a0bc887a14d10d2c447fce8b6703c"
)
EXAMPLE_AT, EXAMPLE_SIGNATURE = "1531420618", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"


class FakeSlack:
    """What Slack does with the bot's calls; it refuses what the real one refuses."""

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []
        self.hooked: list[dict[str, Any]] = []
        self.files: dict[str, httpx.Response] = {}
        self.busy = 0
        self.closed = False
        self.history: list[list[str]] = []
        """Of each message that was posted, what it showed one after the other."""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == "hooks.slack.com":
            assert "authorization" not in request.headers
            self.hooked.append(self.checked(json.loads(request.content)))
            return httpx.Response(200, text="ok")
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return httpx.Response(200, json={"ok": False, "error": "invalid_auth"})
        if request.url.host == "files.slack.com":
            return self.files.get(request.url.path, httpx.Response(302, headers={"location": "https://evil.example/"}))
        if self.busy:
            self.busy -= 1
            return httpx.Response(429, headers={"retry-after": "0"})
        document = self.checked(json.loads(request.content))
        if str(request.url) == "https://slack.com/api/chat.update":
            return httpx.Response(200, json=self.updated(document))
        assert str(request.url) == "https://slack.com/api/chat.postMessage"
        self.posted.append(document)
        self.history.append([shown(document)])
        return httpx.Response(200, json={"ok": True, "ts": f"{len(self.posted)}.000100", "channel": "C1"})

    def updated(self, document: dict[str, Any]) -> dict[str, Any]:
        """As documented of chat.update: only the bot's own message of that channel, by its time stamp."""
        assert document.keys() == {"channel", "ts", "text", "blocks"}
        number = int(document["ts"].partition(".")[0]) - 1 if document["ts"].endswith(".000100") else -1
        if not 0 <= number < len(self.posted) or document["channel"] != self.posted[number]["channel"]:
            return {"ok": False, "error": "message_not_found"}
        if self.closed:
            return {"ok": False, "error": "edit_window_closed"}
        self.history[number].append(shown(document))
        return {"ok": True, "channel": document["channel"], "ts": document["ts"], "text": document["text"]}

    def checked(self, document: dict[str, Any]) -> dict[str, Any]:
        assert len(document["text"]) <= 4000
        assert 1 <= len(document.get("blocks", [])) <= 50
        for block in document["blocks"]:
            assert block["type"] == "section"
            assert 1 <= len(block["text"]["text"]) <= 3000
            assert block["text"]["text"].count("```") % 2 == 0
        return document


def signed(body: bytes, at: float | None = None, secret: str = SECRET) -> dict[str, str]:
    """Signed independently of the code under test."""
    stamp = str(int(time.time() if at is None else at))
    base = b":".join((b"v0", stamp.encode(), body))
    digest = hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()
    return {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={digest}"}


def event(text: str, number: int = 1, **fields: Any) -> bytes:
    inner = {"type": "app_mention", "user": "U1", "text": text, "ts": f"170000000{number}.1", "channel": "C1"} | fields
    return json.dumps({"type": "event_callback", "team_id": "T1", "event_id": f"Ev{number}", "event": inner}).encode()


def send(client: Any, body: bytes, **headers: str) -> httpx.Response:
    return client.post(
        "/integrations/slack/events",
        content=body,
        headers={"content-type": "application/json", **signed(body), **headers},
    )


def shown(document: dict[str, Any]) -> str:
    return "\n".join(b["text"]["text"] for b in document["blocks"])


def test_the_documented_example() -> None:
    assert signature(SECRET, EXAMPLE_AT, EXAMPLE) == EXAMPLE_SIGNATURE
    headers = {
        "x-slack-request-timestamp": EXAMPLE_AT,
        "x-slack-signature": EXAMPLE_SIGNATURE,
        "content-type": "application/x-www-form-urlencoded",
    }
    received = Slack(SECRET, TOKEN).receive(Call("POST", headers, {}, EXAMPLE), int(EXAMPLE_AT) + 300)
    assert received.message is not None
    assert received.message.event_ids == ("398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",)
    for changed, now in ((EXAMPLE + b" ", 0), (EXAMPLE, 301), (EXAMPLE, -301)):
        with pytest.raises(Refused):
            Slack(SECRET, TOKEN).receive(Call("POST", headers, {}, changed), int(EXAMPLE_AT) + now)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-slack-signature": "v0=00"},
        {"x-slack-request-timestamp": "١٢٣"},
        {"x-slack-request-timestamp": "-5"},
        {"x-slack-request-timestamp": "9" * 400},
        {"x-slack-signature": "v0=é"},
    ],
)
def test_nothing_is_parsed_before_it_is_verified(headers: dict[str, str]) -> None:
    good = signed(b"{", at=1000)
    with pytest.raises(Refused) as refused:
        Slack(SECRET, TOKEN).receive(Call("POST", (good | headers) if headers else {}, {}, b"{"), 1000)
    assert refused.value.status == 401
    with pytest.raises(Refused) as parsed:
        Slack(SECRET, TOKEN).receive(Call("POST", good, {}, b"{"), 1000)
    assert parsed.value.status == 400


def test_the_address_is_verified_and_others_are_turned_away(service: Any) -> None:
    fake = FakeSlack()
    client = service(fake, **SETTINGS)
    body = json.dumps({"type": "url_verification", "challenge": "abc123"}).encode()
    assert send(client, body).text == "abc123"
    assert client.post("/integrations/slack/events", content=body).status_code == 401
    old = signed(body, at=time.time() - 301)
    assert client.post("/integrations/slack/events", content=body, headers=old).status_code == 401
    assert client.post("/integrations/feishu/events", content=body).status_code == 404
    assert client.post("/integrations/nobody/events", content=body).status_code == 404
    huge = b'"' + b"x" * (1 << 20) + b'"'
    assert send(client, huge).status_code == 413


def test_a_mention_is_answered_once_in_its_thread(service: Any, log: str) -> None:
    fake = FakeSlack()
    one, two = service(fake, **SETTINGS), service(fake, **SETTINGS)
    body = event(f"<@U0BOT> {log}")
    assert send(one, body).status_code == 200
    posted = list(fake.posted)
    assert posted
    assert {p["channel"] for p in posted} == {"C1"}
    assert {p["thread_ts"] for p in posted} == {"1700000001.1"}
    text = "".join(map(shown, posted))
    assert "GiB" in text
    assert "*logits*" in text
    # Slack's retries, and a replay, at this replica and at another one.
    for client in (one, two):
        assert (
            send(client, body, **{"x-slack-retry-num": "1", "x-slack-retry-reason": "http_timeout"}).status_code == 200
        )
    assert fake.posted == posted


def test_a_thread_is_a_session_on_any_replica(service: Any, log: str) -> None:
    fake = FakeSlack()
    one, two = service(fake, **SETTINGS), service(fake, **SETTINGS)
    send(one, event(log, 1))
    fake.posted.clear()
    send(two, event("cutoff 2048 呢？", 2, thread_ts="1700000001.1"))
    [answer] = fake.posted
    assert answer["thread_ts"] == "1700000001.1"
    assert "seq_len = 2048" in shown(answer)
    assert "每张卡的需求" in shown(answer)
    fake.posted.clear()
    send(two, event("cutoff 2048 呢？", 3, channel="C2"))
    assert "15.77" not in shown(fake.posted[0]), "another thread knows nothing of this one"


def test_a_private_chat_is_one_conversation(service: Any, log: str) -> None:
    fake = FakeSlack()
    client = service(fake, **SETTINGS)
    direct = {"type": "message", "channel_type": "im", "channel": "D1"}
    send(client, event(log, 1, **direct))
    assert all("thread_ts" not in p for p in fake.posted)
    fake.posted.clear()
    send(client, event("what if seq 1024?", 2, **direct))
    assert "1024" in shown(fake.posted[0])


@pytest.mark.parametrize(
    "fields",
    [
        {"bot_id": "B1"},
        {"type": "message"},
        {"type": "message", "channel_type": "im", "subtype": "message_changed"},
        {"type": "message", "channel_type": "im", "subtype": "message_deleted"},
        {"type": "reaction_added"},
        {"user": None},
    ],
)
def test_what_is_not_for_the_bot_is_left_alone(service: Any, fields: dict[str, Any]) -> None:
    fake = FakeSlack()
    assert send(service(fake, **SETTINGS), event("CUDA out of memory", **fields)).status_code == 200
    assert not fake.posted


def test_shared_files_are_read(service: Any, log: str) -> None:
    fake = FakeSlack()
    fake.files["/f/train.log"] = httpx.Response(200, content=log.encode(), headers={"content-type": "text/plain"})
    fake.files["/f/page"] = httpx.Response(200, content=b"<html>log in", headers={"content-type": "text/html"})
    fake.files["/f/binary"] = httpx.Response(200, content=bytes(range(256)) * 20)
    client = service(fake, **SETTINGS)

    def share(number: int, url: str, size: int = 100) -> str:
        fake.posted.clear()
        files = [{"name": "train.log", "url_private_download": url, "size": size}]
        fields = {"type": "message", "channel_type": "im", "channel": f"D{number}", "subtype": "file_share"}
        send(client, event("", number, files=files, **fields))
        return "".join(map(shown, fake.posted))

    assert "*logits*" in share(1, "https://files.slack.com/f/train.log")
    for number, url in enumerate(
        (
            "https://files.slack.com/f/page",
            "https://files.slack.com/f/binary",
            "https://files.slack.com/f/redirects",
            "https://evil.example/f/train.log",
            "http://files.slack.com/f/train.log",
            "https://slack.com/f/train.log",
            "",
        ),
        2,
    ):
        assert "could not be read" in share(number, url), url
    assert "larger than" in share(20, "https://files.slack.com/f/train.log", size=1 << 30)


def test_the_slash_command_answers_to_its_hook(service: Any, log: str) -> None:
    fake = FakeSlack()
    client = service(fake, **SETTINGS)

    def command(text: str, hook: str, trigger: str) -> httpx.Response:
        form = {"command": "/oomdoc", "text": text, "response_url": hook, "trigger_id": trigger}
        body = urlencode(form | {"team_id": "T1", "channel_id": "C1", "user_id": "U1"}).encode()
        headers = {"content-type": "application/x-www-form-urlencoded", **signed(body)}
        return client.post("/integrations/slack/commands", content=body, headers=headers)

    first = command(log, "https://hooks.slack.com/commands/T1/2/x", "t1")
    assert first.json()["response_type"] == "ephemeral"
    assert 1 <= len(fake.hooked) <= 5
    assert "*logits*" in "".join(map(shown, fake.hooked))
    fake.hooked.clear()
    assert command("换 4 张卡呢？", "https://hooks.slack.com/commands/T1/2/y", "t2").json()["text"].startswith("正在")
    assert "gpus" in shown(fake.hooked[0])
    fake.hooked.clear()
    for hook in ("https://hooks.slack.com.evil.example/x", "https://127.0.0.1/x", "http://hooks.slack.com/x", ""):
        assert command(log, hook, hook or "none").status_code == 400
    check = b"ssl_check=1&token=x"
    headers = {"content-type": "application/x-www-form-urlencoded", **signed(check)}
    assert client.post("/integrations/slack/commands", content=check, headers=headers).status_code == 200
    assert not fake.hooked


def test_it_waits_where_told_to(service: Any) -> None:
    fake = FakeSlack()
    fake.busy = 1
    send(service(fake, **SETTINGS), event("hello"))
    assert len(fake.posted) == 1


def test_the_acknowledgement_does_not_wait_for_the_answer(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, order = FakeSlack(), []
    client = service(fake, **SETTINGS)
    from oomdoc.api.routes import integrations

    def slow(*_args: Any, **_more: Any) -> Iterator[dict[str, Any]]:
        order.append("work")
        yield {"answer": "done"}

    monkeypatch.setattr(integrations, "answering", slow)
    body = event("anything")
    headers = {"content-type": "application/json", **signed(body)}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/integrations/slack/events",
        "raw_path": b"/integrations/slack/events",
        "query_string": b"",
        "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def note(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            order.append("acknowledged")

    asyncio.run(client.app(scope, receive, note))
    assert order == ["acknowledged", "work"]
    assert len(fake.posted) == 1


def test_an_answer_is_shown_as_it_grows(service: Any, growing: Any) -> None:
    fake = FakeSlack()
    send(service(fake, **SETTINGS, **growing("It is large.\n", "Take <@U1> less.")), event("why?", thread_ts="9.1"))
    assert [p["thread_ts"] for p in fake.posted] == ["9.1"]
    [[working, first, second, last]] = fake.history
    assert "in a moment" in working
    assert first == "It is large."
    assert second == last == "It is large.\n\nTake &lt;@U1&gt; less."


def test_an_answer_that_cannot_take_its_place_is_a_message_of_its_own(service: Any, growing: Any) -> None:
    fake = FakeSlack()
    fake.closed = True
    send(service(fake, **SETTINGS, **growing("It is large.")), event("why?"))
    [[working], [answer]] = fake.history
    assert "in a moment" in working
    assert answer == "It is large."


def test_a_message_is_not_changed_more_often_than_the_platform_allows(service: Any, growing: Any) -> None:
    fake = FakeSlack()
    pieces = [f"sentence {number}. " for number in range(20)]
    send(service(fake, **SETTINGS, **growing(*pieces, often=False)), event("why?"))
    [[_, last]] = fake.history
    assert last.endswith("sentence 19.")


def test_a_failure_on_the_way_takes_the_place_of_the_working_line(service: Any, growing: Any) -> None:
    fake = FakeSlack()
    send(service(fake, **SETTINGS, **growing("It is", RuntimeError("hunter2secret"))), event("why?"))
    [[_, first, apology]] = fake.history
    assert first == "It is"
    assert "send it again" in apology


def test_a_failure_is_told_without_what_was_pasted(
    service: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from oomdoc.api.routes import integrations

    def broken(*_args: Any, **_more: Any) -> Iterator[dict[str, Any]]:
        raise RuntimeError("hunter2secret")

    monkeypatch.setattr(integrations, "answering", broken)
    fake = FakeSlack()
    with caplog.at_level("WARNING", logger="oomdoc.bots"):
        assert send(service(fake, **SETTINGS), event("hunter2secret")).status_code == 200
    assert "send it again" in shown(fake.posted[0])
    assert "bot-failed" in caplog.text
    assert "hunter2secret" not in caplog.text + "".join(str(getattr(r, "fields", "")) for r in caplog.records)


def test_a_store_that_is_down_takes_no_answer_away(service: Any, log: str) -> None:
    fake = FakeSlack()
    client = service(fake, **SETTINGS)
    client.app.state.work.settings.database_url = "postgresql://nobody@127.0.0.1:1/none"
    send(client, event(log))
    first = len(fake.posted)
    assert "*logits*" in "".join(map(shown, fake.posted))
    send(client, event(log))
    assert len(fake.posted) == first


def test_pasted_text_cannot_call_anybody(service: Any) -> None:
    fake = FakeSlack()
    nasty = "model: &lt;!channel&gt; <!here> <@U2|bob> <https://evil.example|click> CUDA out of memory. Tried to allocate 4.64 GiB"
    send(service(fake, **SETTINGS), event(nasty))
    text = "".join(map(shown, fake.posted))
    assert "<!" not in text
    assert "<@" not in text
    assert "<https://evil" not in text


def test_what_the_person_typed() -> None:
    assert (
        plain_text("<@U0BOT> 8 &lt; 16 &amp;&amp; <https://x.org/a|x.org> <mailto:a@b.c|a@b.c>")
        == "8 < 16 && x.org a@b.c"
    )


def test_long_answers_are_split_at_slacks_limits() -> None:
    patch = "\n".join(f"+line_{n}: {'x' * 60}" for n in range(400))
    markdown = (
        "## Title\n\n"
        + "\n\n".join(f"Paragraph {n} & <{'w ' * 400}>" for n in range(60))
        + f"\n\n```diff\n{patch}\n```\n"
    )
    made = documents(markdown, "en")
    assert 1 < len(made) <= 5
    for document in made:
        FakeSlack().checked(document)
        assert sum(len(b["text"]["text"]) for b in document["blocks"]) <= 13_000
    assert "did not fit" in shown(made[-1])
    [small] = documents("Fits & is **bold**: [a](https://b.org/c)", "en")
    assert shown(small) == "Fits &amp; is *bold*: <https://b.org/c|a>"
