"""WeCom against a fake of it: the published example, encrypted XML and JSON, retries, tokens, 2,048 bytes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import httpx
import pytest
from tests.service.bots.sealing import encrypt

from oomdoc.bots.message import Call, Refused
from oomdoc.bots.wecom import WeCom, messages, xml_fields
from oomdoc.settings import Settings

# The platform's sample program (WXBizMsgCrypt) and its check of an address.
TOKEN, AES_KEY, CORP = (
    "hJqcu3uJ9Tn2gXPmxx2w9kkCkCE2EPYo",
    "6qkdMrq68nTKduznJYO1A37W2oEgpkMUvkttRToqhUt",
    "ww1436e0e65a779aee",
)
ECHO = "fsi1xnbH4yQh0+PJxcOdhhK6TDXkjMyhEPA7xB2TGz6b+g7xyAbEkRxN/3cNXW9qdqjnoVzEtpbhnFyq6SVHyA=="
ECHO_QUERY = {
    "msg_signature": "012bc692d0a58dd4b10f8dfe5c4ac00ae211ebeb",
    "timestamp": "1476416373",
    "nonce": "47744683",
    "echostr": ECHO,
}
SETTINGS = {
    "wecom_corp_id": CORP,
    "wecom_agent_id": "1000002",
    "wecom_secret": "secret",
    "wecom_token": TOKEN,
    "wecom_aes_key": AES_KEY,
}
RAW_KEY = base64.b64decode(AES_KEY + "=")
HOOK = "https://qyapi.weixin.qq.com/cgi-bin/aibot/response?response_code=CODE"


class FakeWeCom:
    """The API host; it refuses what the real one refuses."""

    def __init__(self) -> None:
        self.issued, self.token = 0, ""
        self.sent: list[dict[str, Any]] = []
        self.hooked: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.url.host == "qyapi.weixin.qq.com"
        query = dict(request.url.params)
        if request.url.path == "/cgi-bin/gettoken":
            if query != {"corpid": CORP, "corpsecret": "secret"}:
                return httpx.Response(200, json={"errcode": 40001})
            self.issued += 1
            self.token = f"token-{self.issued}"
            return httpx.Response(200, json={"errcode": 0, "access_token": self.token, "expires_in": 7200})
        document = json.loads(request.content)
        content = document["markdown"]["content"]
        assert document["msgtype"] == "markdown"
        assert content.count("```") % 2 == 0
        if request.url.path == "/cgi-bin/aibot/response":
            if self.hooked or len(content.encode()) > 20480:
                return httpx.Response(200, json={"errcode": 40001})
            self.hooked.append(document)
            return httpx.Response(200, json={"errcode": 0})
        assert request.url.path == "/cgi-bin/message/send"
        if query["access_token"] != self.token:
            return httpx.Response(200, json={"errcode": 42001})
        assert document["agentid"] == 1000002
        assert len(content.encode()) <= 2048
        self.sent.append(document)
        return httpx.Response(200, json={"errcode": 0})

    def text(self) -> str:
        return "\n".join(d["markdown"]["content"] for d in self.sent)


def seal(plain: bytes, receiver: str = CORP) -> str:
    framed = os.urandom(16) + struct.pack(">I", len(plain)) + plain + receiver.encode()
    return base64.b64encode(encrypt(RAW_KEY, RAW_KEY[:16], framed, block=32)).decode()


def query(sealed: str, at: float | None = None) -> dict[str, str]:
    """Signed independently of the code under test."""
    stamp, nonce = str(int(time.time() if at is None else at)), "1372623149"
    digest = hashlib.sha1("".join(sorted([TOKEN, stamp, nonce, sealed])).encode()).hexdigest()
    return {"msg_signature": digest, "timestamp": stamp, "nonce": nonce}


def app_message(text: str, number: int = 1, **fields: str) -> bytes:
    values = {
        "ToUserName": CORP,
        "FromUserName": "zhang",
        "CreateTime": "1",
        "MsgType": "text",
        "Content": text,
        "MsgId": str(number),
        "AgentID": "1000002",
    } | fields
    return ("<xml>" + "".join(f"<{k}>{escape(v)}</{k}>" for k, v in values.items()) + "</xml>").encode()


def send(client: Any, plain: bytes, receiver: str = CORP) -> httpx.Response:
    sealed = seal(plain, receiver)
    if plain.startswith(b"{"):
        body = json.dumps({"encrypt": sealed}).encode()
    else:
        body = f"<xml><ToUserName><![CDATA[{CORP}]]></ToUserName><Encrypt><![CDATA[{sealed}]]></Encrypt></xml>".encode()
    return client.post("/integrations/wecom/messages", params=query(sealed), content=body)


def test_the_published_example() -> None:
    app = WeCom(CORP, "1", "s", TOKEN, AES_KEY)
    received = app.receive(Call("GET", {}, ECHO_QUERY, b""), 1476416373)
    assert received.body == b"1288432023552776189"
    for change in ({"nonce": "1"}, {"msg_signature": ""}, {"timestamp": "1476416374"}, {"echostr": "AAAA"}):
        with pytest.raises(Refused):
            app.receive(Call("GET", {}, ECHO_QUERY | change, b""), 1476416373)
    with pytest.raises(Refused, match="too old"):
        app.receive(Call("GET", {}, ECHO_QUERY, b""), 1476416373 + 301)
    with pytest.raises(Refused, match="another company"):
        WeCom("ww-other", "1", "s", TOKEN, AES_KEY).receive(Call("GET", {}, ECHO_QUERY, b""), 1476416373)


def test_the_address_is_verified_over_http(service: Any) -> None:
    client = service(FakeWeCom(), **SETTINGS)
    sealed = seal(b"4242")
    answer = client.get("/integrations/wecom/messages", params=query(sealed) | {"echostr": sealed})
    assert (answer.status_code, answer.text) == (200, "4242")
    assert client.get("/integrations/wecom/messages", params=ECHO_QUERY).status_code == 401


def test_a_message_is_answered_once(service: Any, log: str) -> None:
    fake = FakeWeCom()
    one, two = service(fake, **SETTINGS), service(fake, **SETTINGS)
    answer = send(one, app_message(log))
    assert (answer.status_code, answer.content) == (200, b"")
    assert 1 <= len(fake.sent) <= 8
    assert {d["touser"] for d in fake.sent} == {"zhang"}
    assert "**logits**" in fake.text()
    count = len(fake.sent)
    for client in (one, two):
        assert send(client, app_message(log)).status_code == 200
    assert len(fake.sent) == count
    fake.sent.clear()
    send(two, app_message("cutoff 2048 呢？", 2))
    assert "seq_len = 2048" in fake.text()
    assert fake.issued == 2, "each replica keeps its token"
    fake.token, fake.sent = "revoked", []
    send(two, app_message("hello", 3))
    assert len(fake.sent) == 1


def robot_message(text: str, **fields: Any) -> bytes:
    document = {
        "msgid": "m1",
        "aibotid": "b1",
        "chatid": "c1",
        "chattype": "group",
        "from": {"userid": "zhang"},
        "response_url": HOOK,
        "msgtype": "text",
        "text": {"content": f"@oomdoc {text}"},
    }
    return json.dumps(document | fields).encode()


def test_a_robot_is_answered_in_one_message(service: Any, log: str) -> None:
    fake = FakeWeCom()
    robot = {k: v for k, v in SETTINGS.items() if k not in ("wecom_agent_id", "wecom_secret")}
    client = service(fake, **robot)
    assert send(client, robot_message(log), receiver="").status_code == 200
    assert len(fake.hooked) == 1
    assert "**logits**" in fake.hooked[0]["markdown"]["content"]
    for hook in ("https://evil.example/x", "http://qyapi.weixin.qq.com/x", "https://qyapi.weixin.qq.com@evil.example/"):
        assert send(client, robot_message(log, response_url=hook, msgid=hook), receiver="").status_code == 400
    assert send(client, app_message("hello")).status_code == 200
    assert not fake.sent


def test_an_app_announces_a_long_answer_and_a_robot_has_one_message(service: Any, growing: Any) -> None:
    fake = FakeWeCom()
    client = service(fake, **SETTINGS, **growing("It is ", "large."))
    send(client, app_message("why?"))
    working, answer = (d["markdown"]["content"] for d in fake.sent)
    assert "in a moment" in working
    assert answer == "It is large."
    assert send(client, robot_message("why?"), receiver="").status_code == 200
    assert [d["markdown"]["content"] for d in fake.hooked] == ["It is large."]


@pytest.mark.parametrize("fields", [{"MsgType": "event"}, {"AgentID": "7"}, {"FromUserName": ""}, {"MsgId": ""}])
def test_what_is_not_for_the_bot_is_left_alone(service: Any, fields: dict[str, str]) -> None:
    fake = FakeWeCom()
    assert send(service(fake, **SETTINGS), app_message("OOM", **fields)).status_code == 200
    assert not fake.sent


@pytest.mark.parametrize(
    "xml",
    [
        b'<!DOCTYPE x [<!ENTITY a "b">]><xml><Encrypt>&a;</Encrypt></xml>',
        b'<?xml version="1.0"?><!doctype x SYSTEM "file:///etc/passwd"><xml/>',
        b'<?xml-stylesheet href="x"?><xml/>',
        '<!DOCTYPE x [<!ENTITY a "b">]><xml><Encrypt>&a;</Encrypt></xml>'.encode("utf-16"),
        b"<xml><Encrypt>&undefined;</Encrypt></xml>",
        b"<xml>",
        b"",
        b"\xff\xfe",
        b"<xml>" + b"<a>" * 50_000,
    ],
)
def test_xml_that_declares_or_breaks_is_refused(xml: bytes) -> None:
    with pytest.raises(Refused) as refused:
        xml_fields(xml)
    assert refused.value.status == 400


def test_flat_xml() -> None:
    text = "<?xml version='1.0' encoding='utf-8'?><xml><A><![CDATA[<!DOCTYPE a>]]></A><B>二</B></xml>"
    assert xml_fields(text.replace("<!DOCTYPE a>", "a < b").encode()) == {"A": "a < b", "B": "二"}


@pytest.mark.parametrize("plain", [b"", b"short", bytes(16) + b"\xff\xff\xff\xff" + b"x" * 20])
def test_ciphertexts_that_are_none(plain: bytes) -> None:
    sealed = base64.b64encode(encrypt(RAW_KEY, RAW_KEY[:16], plain, block=32)).decode()
    body = f"<xml><Encrypt>{sealed}</Encrypt></xml>".encode()
    with pytest.raises(Refused):
        WeCom(CORP, "1", "s", TOKEN, AES_KEY).receive(Call("POST", {}, query(sealed, 5), body), 5)


def test_a_key_that_is_none_is_said_and_stops_no_other_platform(service: Any) -> None:
    slack = {"slack_signing_secret": "s", "slack_bot_token": "t"}
    client = service(FakeWeCom(), **(SETTINGS | slack | {"wecom_aes_key": "short"}))
    answer = send(client, app_message("x"))
    assert answer.status_code == 400
    assert answer.json()["where"] == "OOMDOC_WECOM_AES_KEY"
    assert client.post("/integrations/slack/events", content=b"{}").status_code == 401


def test_the_registry_is_the_folder(root: Path) -> None:
    from oomdoc.bots import PLATFORMS, configured

    folder = root / "service" / "oomdoc" / "bots"
    modules = {p.stem for p in folder.glob("*.py") if "def from_settings" in p.read_text("utf-8")}
    assert [name for name, _ in PLATFORMS] == sorted(modules)
    assert all(configured(name, Settings()) is None for name, _ in PLATFORMS)


def test_encrypted_platforms_say_what_is_missing(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    client = service(FakeWeCom(), **SETTINGS)
    answer = client.post("/integrations/wecom/messages", content=b"")
    assert answer.status_code == 400
    assert "oomdoc[bots]" in answer.json()["hint"]


def test_messages_keep_to_the_limit() -> None:
    long = "\n\n".join(f"第 {n} 段：{'显存' * 500}" for n in range(3)) + "\n\n```diff\n" + "+行 <@all>\n" * 900 + "```"
    made = messages(long, "zh")
    assert 1 < len(made) <= 8
    for text in made:
        assert len(text.encode()) <= 2048
        assert text.count("```") % 2 == 0
        assert "<@" not in text
    [single] = messages(long, "zh", robot=True)
    assert len(single.encode()) <= 20480
