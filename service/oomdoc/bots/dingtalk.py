"""DingTalk: the robot's HTTP callbacks, answered through the session webhook that each of them names.

Conventions as documented at open.dingtalk.com: ``sign`` is HMAC-SHA256 over the header ``timestamp`` and the app
secret, good for an hour. It covers nothing of the body; so each one may carry a single message, once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

import httpx

from oomdoc.bots.blocks import Dialect, pieces
from oomdoc.bots.message import NOTHING, Call, File, Message, Platform, Received, Refused, packed, parsed, utf8
from oomdoc.bots.outgoing import Outgoing, allowed
from oomdoc.report.words import word
from oomdoc.settings import Settings
from oomkb.errors import InputError

_WINDOW_S: Final = 3600
_HOSTS: Final = frozenset({".dingtalk.com"})
_MESSAGE_BYTES: Final = 18_000
_MESSAGES: Final = 5


def signature(timestamp: str, secret: str) -> str:
    """The header ``sign`` that goes with a header ``timestamp``."""
    digest = hmac.new(secret.encode(), f"{timestamp}\n{secret}".encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


class DingTalk(Platform):
    """A DingTalk robot. Files lie on hosts that are not DingTalk's own, so they are not fetched."""

    name = "dingtalk"

    def __init__(self, app_secret: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._secret = app_secret
        self._out = Outgoing(_HOSTS, transport)

    @classmethod
    def from_settings(cls, settings: Settings, transport: httpx.AsyncBaseTransport | None = None) -> DingTalk | None:
        """The robot, where it is set up."""
        secret = settings.dingtalk_app_secret.get_secret_value()
        return cls(secret, transport) if settings.dingtalk_app_key and secret else None

    def session_key(self) -> bytes:
        """See :class:`oomdoc.bots.message.Platform`."""
        return self._secret.encode()

    def receive(self, call: Call, now_s: float) -> Received:
        """See :class:`oomdoc.bots.message.Platform`."""
        timestamp, given = call.headers.get("timestamp", ""), call.headers.get("sign", "")
        self.check_same(signature(timestamp, self._secret), given)
        self.check_fresh(timestamp, now_s, _WINDOW_S, per_s=1000)
        if call.method != "POST":
            raise Refused("DingTalk posts", status=400)
        document = parsed(call.body)
        hook = document.get("sessionWebhook")
        if hook is None:
            return NOTHING
        try:
            hook = allowed(str(hook), _HOSTS)
        except InputError as error:
            raise Refused("sessionWebhook is not DingTalk's", status=400) from error
        return Received(body=b"{}", media_type="application/json", message=_message(document, hook, given))

    async def send(self, message: Message, markdown: str, language: str, draft: str = "") -> None:
        """See :class:`oomdoc.bots.message.Platform`."""
        for document in documents(markdown, language):
            answer = await self._out.post(message.address["hook"], document)
            if answer.get("errcode") != 0:
                code = str(answer.get("errcode"))[:20]
                raise InputError(f"DingTalk refused the answer (code {code})", where="sessionWebhook")


def _message(document: Mapping[str, Any], hook: str, sign: str) -> Message | None:
    """In a group everybody has a conversation of their own with the robot: there are no threads."""
    identifier = str(document.get("msgId") or "")
    user = str(document.get("senderStaffId") or document.get("senderId") or "")
    conversation = str(document.get("conversationId") or "")
    if not identifier or not user:
        return None
    text, files = _content(document)
    return Message(
        "dingtalk",
        str(document.get("chatbotCorpId") or document.get("senderCorpId") or ""),
        f"{conversation}:{user}",
        user,
        text,
        (identifier, f"sign:{sign}"),
        files,
        {"hook": hook},
    )


def _content(document: Mapping[str, Any]) -> tuple[str, tuple[File, ...]]:
    kind, content = document.get("msgtype"), document.get("content")
    inner = document.get("text")
    if kind == "text" and isinstance(inner, dict):
        return str(inner.get("content") or "").strip(), ()
    if not isinstance(content, dict):
        return "", ()
    if kind == "file":
        return "", (File(str(content.get("fileName") or "file"), ""),)
    rich = content.get("richText")
    cells = [c for c in rich if isinstance(c, dict)] if isinstance(rich, list) else []
    return "\n".join(str(c["text"]) for c in cells if c.get("text")).strip(), ()


def _escape(text: str) -> str:
    """DingTalk's Markdown knows no escapes for looks; tags, links and pictures are taken apart."""
    return text.replace("<", "&lt;").replace("](", "] (")


_DIALECT: Final = Dialect(_escape, heading="### {}", fence_language=False)


def documents(markdown: str, language: str) -> list[dict[str, Any]]:
    """The messages of an answer."""
    cut = word("bots.cut", language)
    texts = packed(pieces(markdown, _DIALECT), _MESSAGE_BYTES, utf8, _MESSAGES, cut)
    title = word("bots.title", language)
    return [{"msgtype": "markdown", "markdown": {"title": title, "text": text}} for text in texts]
