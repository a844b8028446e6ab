"""DingTalk against a fake of it: signatures that cover no body, single use, the session webhook."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import httpx
import pytest

from oomdoc.bots.dingtalk import DingTalk, documents
from oomdoc.bots.message import Call, Refused

SECRET = "robot-secret"
SETTINGS = {"dingtalk_app_key": "ding1", "dingtalk_app_secret": SECRET}
HOOK = "https://oapi.dingtalk.com/robot/sendBySession?session=abc"


class FakeDingTalk:
    """The session webhook; it refuses what the real one refuses."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert str(request.url) == HOOK
        document = json.loads(request.content)
        assert document["msgtype"] == "markdown"
        assert document["markdown"]["title"]
        if len(document["markdown"]["text"].encode()) > 20_000:
            return httpx.Response(200, json={"errcode": 460101, "errmsg": "message too long"})
        self.sent.append(document)
        return httpx.Response(200, json={"errcode": 0, "errmsg": "ok"})

    def text(self) -> str:
        return "\n".join(d["markdown"]["text"] for d in self.sent)


def signed(at_ms: int, secret: str = SECRET) -> dict[str, str]:
    """Signed independently of the code under test."""
    digest = hmac.new(secret.encode(), b"%d\n" % at_ms + secret.encode(), hashlib.sha256).digest()
    return {"timestamp": str(at_ms), "sign": base64.b64encode(digest).decode()}


def event(said: str, number: int = 1, **fields: Any) -> bytes:
    document = {
        "msgtype": "text",
        "text": {"content": f" {said} "},
        "msgId": f"msg{number}",
        "conversationId": "cid1",
        "conversationType": "2",
        "senderStaffId": "staff1",
        "chatbotCorpId": "corp1",
        "sessionWebhook": HOOK,
    }
    return json.dumps(document | fields).encode()


_last_ms = [0]


def send(client: Any, body: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
    _last_ms[0] = max(int(time.time() * 1000), _last_ms[0] + 1)
    return client.post("/integrations/dingtalk/messages", content=body, headers=headers or signed(_last_ms[0]))


def test_the_signature_is_checked_before_anything_is_parsed() -> None:
    robot, now = DingTalk(SECRET), 1_700_000_000
    good = signed(now * 1000)
    assert robot.receive(Call("POST", good, {}, event("OOM")), now + 3600).message is not None
    for headers, at in (
        ({}, now),
        (good | {"sign": "x"}, now),
        (good | {"timestamp": str(now * 1000 + 1)}, now),
        (signed(now * 1000, "other"), now),
        (good, now + 3601),
        (good, now - 3601),
    ):
        with pytest.raises(Refused) as refused:
            robot.receive(Call("POST", headers, {}, b"{"), at)
        assert refused.value.status == 401
    with pytest.raises(Refused) as parsed:
        robot.receive(Call("POST", good, {}, b"{"), now)
    assert parsed.value.status == 400


def test_a_message_is_answered_once(service: Any, log: str) -> None:
    fake = FakeDingTalk()
    one, two = service(fake, **SETTINGS), service(fake, **SETTINGS)
    assert send(one, event(log)).status_code == 200
    assert "**logits**" in fake.text()
    count = len(fake.sent)
    for client in (one, two):
        assert send(client, event(log)).status_code == 200
    assert len(fake.sent) == count
    fake.sent.clear()
    send(two, event("cutoff 2048 呢？", 2))
    assert "seq_len = 2048" in fake.text()
    fake.sent.clear()
    send(two, event("cutoff 2048 呢？", 3, senderStaffId="staff2"))
    assert "15.77" not in fake.text(), "another person's conversation"


def test_a_long_answer_is_announced(service: Any, growing: Any) -> None:
    fake = FakeDingTalk()
    send(service(fake, **SETTINGS, **growing("It is ", "large.")), event("why?"))
    working, answer = fake.sent
    assert "in a moment" in working["markdown"]["text"]
    assert answer["markdown"]["text"] == "It is large."


def test_a_signature_carries_one_message_only(service: Any) -> None:
    fake = FakeDingTalk()
    client = service(fake, **SETTINGS)
    headers = signed(int(time.time() * 1000) - 5000)
    send(client, event("hello", 1), headers)
    send(client, event("another body under a signature that was seen", 2), headers)
    assert len(fake.sent) == 1


@pytest.mark.parametrize(
    "hook",
    [
        "http://oapi.dingtalk.com/x",
        "https://dingtalk.com.evil.example/x",
        "https://evildingtalk.com/x",
        "https://169.254.169.254/x",
        "https://oapi.dingtalk.com:8080/x",
        "https://a@oapi.dingtalk.com/x",
        5,
    ],
)
def test_no_other_webhook_is_called(service: Any, hook: Any) -> None:
    fake = FakeDingTalk()
    assert send(service(fake, **SETTINGS), event("OOM", sessionWebhook=hook)).status_code == 400
    assert not fake.sent


def test_rich_text_files_and_the_rest(service: Any, log: str) -> None:
    fake = FakeDingTalk()
    client = service(fake, **SETTINGS)
    rich = {"richText": [{"type": "picture"}, {"text": log}]}
    send(client, event("", 1, msgtype="richText", text=None, content=rich))
    assert "**logits**" in fake.text()
    fake.sent.clear()
    send(client, event("", 2, msgtype="file", text=None, content={"fileName": "a.log", "downloadCode": "x"}))
    assert "paste its text" in fake.text()
    fake.sent.clear()
    send(client, event("", 3, msgtype="audio", text=None))
    assert "Paste" in fake.text()
    fake.sent.clear()
    assert send(client, event("OOM", 4, msgId="")).status_code == 200
    assert send(client, b'{"unrelated": 1}').status_code == 200
    assert not fake.sent


def test_messages_keep_to_the_limit() -> None:
    long = (
        "\n\n".join(f"第 {n} 段：{'显存' * 300}" for n in range(80))
        + "\n\n```diff\n"
        + "+行 <b> [x](y)\n" * 3000
        + "```"
    )
    made = documents(long, "zh")
    assert 1 < len(made) <= 5
    for document in made:
        text = document["markdown"]["text"]
        assert len(text.encode()) <= 20_000
        assert text.count("```") % 2 == 0
        assert "<b>" not in text
        assert "[x](y)" not in text
