"""Feishu and Lark against a fake of them: encrypted and plain callbacks, signatures, tokens, cards, files."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from typing import Any

import httpx
import pytest
from tests.service.bots.sealing import encrypt

from oomdoc.bots import aes
from oomdoc.bots.feishu import Feishu, cards
from oomdoc.bots.message import Call, Refused

KEY, VERIFY = "test key", "verification-token"
APP = {"feishu_app_id": "cli_1", "feishu_app_secret": "app-secret"}
SEALED = APP | {"feishu_encrypt_key": KEY, "feishu_verification_token": VERIFY}


class FakeFeishu:
    """The open platform at one of its two hosts; it refuses what the real one refuses."""

    def __init__(self, host: str = "open.feishu.cn") -> None:
        self.host = host
        self.token, self.issued = "", 0
        self.replies: dict[str, list[dict[str, Any]]] = {}
        self.files: dict[str, bytes] = {}
        self.cards: dict[str, list[str]] = {}
        """Of each reply, the cards that it showed one after the other."""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/open-apis/auth/v3/tenant_access_token/internal":
            given = json.loads(request.content)
            if request.url.host != self.host or given != {"app_id": "cli_1", "app_secret": "app-secret"}:
                return httpx.Response(200, json={"code": 10003, "msg": "invalid param"})
            self.issued += 1
            self.token = f"t-{self.issued}"
            return httpx.Response(200, json={"code": 0, "tenant_access_token": self.token, "expire": 7200})
        assert request.url.host == self.host
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return httpx.Response(200, json={"code": 99991663, "msg": "token invalid"})
        parts = path.split("/")
        assert parts[:5] == ["", "open-apis", "im", "v1", "messages"]
        if request.method == "PATCH":
            return httpx.Response(200, json={"code": self.changed(parts[5:], json.loads(request.content))})
        assert request.method == ("GET" if parts[6] == "resources" else "POST")
        if parts[6] == "resources":
            assert request.url.query == b"type=file"
            return httpx.Response(200, content=self.files[parts[7]])
        assert parts[6:] == ["reply"]
        body = json.loads(request.content)
        assert body["msg_type"] == "interactive"
        assert isinstance(body["content"], str)
        assert len(body["content"].encode()) <= 30 * 1024
        assert len(body["uuid"]) <= 50
        for element in json.loads(body["content"])["elements"]:
            assert element["tag"] == "markdown"
            assert element["content"].count("```") % 2 == 0
        self.replies.setdefault(parts[5], []).append(body)
        identifier = f"om_reply_{sum(map(len, self.replies.values()))}"
        self.cards[identifier] = [body["content"]]
        return httpx.Response(200, json={"code": 0, "data": {"message_id": identifier}})

    def changed(self, place: list[str], body: dict[str, Any]) -> int:
        """The code for a change of a card: both must be shared ones (update_multi), of at most 30 KB."""
        [identifier] = place
        if identifier not in self.cards:
            return 230001
        if len(body["content"].encode()) > 30 * 1024:
            return 230025
        both = (json.loads(self.cards[identifier][-1]), json.loads(body["content"]))
        if not all(card["config"].get("update_multi") is True for card in both):
            return 230099
        assert body.keys() == {"content"}
        self.cards[identifier].append(body["content"])
        return 0

    def text(self, message_id: str) -> str:
        return "\n".join(e["content"] for r in self.replies[message_id] for e in json.loads(r["content"])["elements"])


def seal(plain: bytes, key: str = KEY) -> bytes:
    start = os.urandom(16)
    data = start + encrypt(hashlib.sha256(key.encode()).digest(), start, plain)
    return json.dumps({"encrypt": base64.b64encode(data).decode()}).encode()


def signed(body: bytes, at: float | None = None) -> dict[str, str]:
    """Signed independently of the code under test."""
    stamp, nonce = str(int(time.time() if at is None else at)), "n0nce"
    digest = hashlib.sha256(b"".join((stamp.encode(), nonce.encode(), KEY.encode(), body))).hexdigest()
    return {"x-lark-request-timestamp": stamp, "x-lark-request-nonce": nonce, "x-lark-signature": digest}


def event(text: str, number: int = 1, *, header: dict[str, Any] | None = None, **message: Any) -> bytes:
    inner = {
        "message_id": f"om_{number}",
        "chat_id": "oc_1",
        "chat_type": "group",
        "message_type": "text",
        "content": json.dumps({"text": text}),
        "mentions": [{"key": "@_user_1", "name": "oomdoc"}],
    } | message
    head = {
        "event_id": f"ev{number}",
        "event_type": "im.message.receive_v1",
        "create_time": str(int(time.time() * 1000)),
        "token": VERIFY,
        "tenant_key": "tk",
    } | (header or {})
    sender = {"sender_id": {"open_id": "ou_1"}, "sender_type": "user"}
    return json.dumps({"schema": "2.0", "header": head, "event": {"sender": sender, "message": inner}}).encode()


def send(client: Any, plain: bytes) -> httpx.Response:
    body = seal(plain)
    return client.post("/integrations/feishu/events", content=body, headers=signed(body))


def test_the_documented_example_of_decryption() -> None:
    # open.larkoffice.com, "Encrypt Key" configuration case: key "test key".
    data = base64.b64decode("P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk=")
    assert aes.decrypt(hashlib.sha256(b"test key").digest(), data[:16], data[16:]) == b"hello world"


def test_the_address_is_verified(service: Any) -> None:
    client = service(FakeFeishu(), **SEALED)
    check = {"type": "url_verification", "challenge": "c1", "token": VERIFY}
    # This call is not signed.
    answer = client.post("/integrations/feishu/events", content=seal(json.dumps(check).encode()))
    assert answer.json() == {"challenge": "c1"}
    wrong = seal(json.dumps(check | {"token": "other"}).encode())
    assert client.post("/integrations/feishu/events", content=wrong).status_code == 401
    other_key = seal(json.dumps(check).encode(), "other key")
    assert client.post("/integrations/feishu/events", content=other_key).status_code in (400, 401)
    assert client.post("/integrations/feishu/events", content=json.dumps(check).encode()).status_code == 401


def test_an_event_needs_its_signature() -> None:
    app = Feishu("cli_1", "s", KEY, VERIFY)
    body = seal(event("OOM"))
    good = signed(body, 10_000)
    assert app.receive(Call("POST", good, {}, body), 10_000).message is not None
    bad = (
        {},
        good | {"x-lark-signature": "0" * 64},
        good | {"x-lark-request-nonce": "other"},
        good | {"x-lark-request-timestamp": "10001"},
    )
    for headers in bad:
        with pytest.raises(Refused) as refused:
            app.receive(Call("POST", headers, {}, body), 10_000)
        assert refused.value.status == 401
    with pytest.raises(Refused):
        app.receive(Call("POST", good, {}, body), 10_000 + 3601)
    with pytest.raises(Refused):
        app.receive(Call("POST", good, {}, body + b" "), 10_000)
    # Wrongly signed rubbish is refused for its signature: nothing was parsed.
    with pytest.raises(Refused) as refused:
        app.receive(Call("POST", good, {}, b"{"), 10_000)
    assert refused.value.status == 401


@pytest.mark.parametrize(
    "sealed", ["", "!!", "QUJD", base64.b64encode(bytes(48)).decode(), base64.b64encode(bytes(33)).decode()]
)
def test_ciphertexts_that_are_none(sealed: str) -> None:
    body = json.dumps({"encrypt": sealed}).encode()
    with pytest.raises(Refused):
        Feishu("cli_1", "s", KEY, VERIFY).receive(Call("POST", signed(body, 5), {}, body), 5)


def test_with_a_verification_token_only() -> None:
    app = Feishu("cli_1", "s", "", VERIFY)
    now = time.time()
    assert app.receive(Call("POST", {}, {}, event("OOM")), now).message is not None
    for header, late in (({"token": "other"}, 0), ({"token": None}, 0), ({"create_time": ""}, 0), ({}, 9 * 3600)):
        with pytest.raises(Refused):
            app.receive(Call("POST", {}, {}, event("OOM", header=header)), now + late)
    with pytest.raises(Refused):
        app.receive(Call("POST", {}, {}, b"{}"), now)


def test_a_mention_is_answered_once_in_its_thread(service: Any, log: str) -> None:
    fake = FakeFeishu()
    one, two = service(fake, **SEALED), service(fake, **SEALED)
    plain = event(f"@_user_1 {log}")
    assert send(one, plain).status_code == 200
    replies = list(fake.replies["om_1"])
    assert all(r["reply_in_thread"] for r in replies)
    assert len({r["uuid"] for r in replies}) == len(replies)
    assert "**logits**" in fake.text("om_1")
    for client in (one, two):
        assert send(client, plain).status_code == 200
    assert fake.replies == {"om_1": replies}
    send(two, event("@_user_1 cutoff 2048 呢？", 2, root_id="om_1"))
    assert "seq&#95;len = 2048" in fake.text("om_2")
    assert "每张卡的需求" in fake.text("om_2")


def test_an_answer_is_shown_as_it_grows(service: Any, growing: Any) -> None:
    fake = FakeFeishu()
    send(service(fake, **SEALED, **growing("它很大。\n", "减小 batch。")), event("@_user_1 为什么？"))
    [cards_shown] = fake.cards.values()
    texts = [json.loads(card)["elements"][0]["content"] for card in cards_shown]
    assert "正在" in texts[0]
    assert texts[1:] == ["它很大。", "它很大。\n\n减小 batch。", "它很大。\n\n减小 batch。"]


def test_an_app_of_lark_is_found_at_its_host(service: Any) -> None:
    fake = FakeFeishu("open.larksuite.com")
    client = service(fake, **SEALED)
    send(client, event("hello", 1))
    send(client, event("hello", 2))
    assert set(fake.replies) == {"om_1", "om_2"}
    assert fake.issued == 1, "the token is kept"


def test_a_token_that_went_stale_is_fetched_again(service: Any) -> None:
    fake = FakeFeishu()
    client = service(fake, **SEALED)
    send(client, event("hello", 1))
    fake.token = "revoked"
    send(client, event("hello", 2))
    assert fake.issued == 2
    assert len(fake.replies["om_2"]) == 1


def test_files_and_rich_text(service: Any, log: str) -> None:
    fake = FakeFeishu()
    fake.files["file_1"] = log.encode()
    client = service(fake, **SEALED)
    content = json.dumps({"file_key": "file_1", "file_name": "train.log"})
    send(client, event("", 1, chat_type="p2p", message_type="file", content=content, mentions=None))
    assert "**logits**" in fake.text("om_1")
    post = {"title": "", "content": [[{"tag": "at", "user_id": "x"}, {"tag": "text", "text": log}]]}
    send(client, event("", 2, message_type="post", content=json.dumps(post)))
    assert "**logits**" in fake.text("om_2")
    evil = json.dumps({"file_key": "../../../evil", "file_name": "x"})
    send(client, event("", 3, chat_type="p2p", message_type="file", content=evil))
    assert "could not be read" in fake.text("om_3")


@pytest.mark.parametrize(
    ("message", "header"),
    [
        ({"mentions": []}, {}),
        ({"message_id": "../x"}, {}),
        ({"content": "not json", "chat_type": "p2p", "message_id": ""}, {}),
        ({}, {"event_type": "im.chat.updated_v1"}),
    ],
)
def test_what_is_not_for_the_bot_is_left_alone(service: Any, message: dict[str, Any], header: dict[str, Any]) -> None:
    fake = FakeFeishu()
    assert send(service(fake, **SEALED), event("CUDA out of memory", header=header, **message)).status_code == 200
    assert not fake.replies


def test_cards_keep_to_the_limit_and_mention_nobody() -> None:
    [card] = cards("**b** \\<at id=all\\>\\</at\\> a\\_b [l](https://x.org/1)\n\n```\n<at id=all>\n```", "en")
    content = json.loads(card)["elements"][0]["content"]
    assert "<at" not in content
    assert "**b**" in content
    assert "[l](https://x.org/1)" in content
    long = "\n\n".join(f"第 {n} 段：{'显存' * 200}" for n in range(100)) + "\n\n```diff\n" + "+行\n" * 5000 + "```"
    made = cards(long, "zh")
    assert 1 < len(made) <= 5
    assert all(len(c.encode()) <= 30 * 1024 for c in made)
    assert "oomdoc diagnose" in made[-1]
