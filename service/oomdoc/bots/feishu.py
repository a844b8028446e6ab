"""Feishu and Lark: event callbacks of an in-house app, encrypted or with a verification token; answers as cards.

Conventions as documented at open.larkoffice.com: the body is AES-256-CBC under SHA-256 of the Encrypt Key, its
signature a plain SHA-256 over timestamp, nonce, Encrypt Key and raw body; the check of the address is not signed; an
answer within three seconds, retries with the same ``event_id`` for hours; a card of at most 30 KB, changed at most five
times a second.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

import httpx

from oomdoc.bots import aes
from oomdoc.bots.blocks import Dialect, pieces
from oomdoc.bots.message import NOTHING, Call, File, Message, Platform, Received, Refused, packed, parsed
from oomdoc.bots.outgoing import Outgoing, Tokens
from oomdoc.report.words import word
from oomdoc.settings import Settings
from oomkb.errors import InputError

_HOSTS: Final = ("open.feishu.cn", "open.larksuite.com")
_WINDOW_S: Final = 3600
# Without an Encrypt Key only the event's own time is there, and it is delivered again for up to six hours.
_RETRIED_S: Final = 8 * 3600
_CARD_BYTES: Final = 28_000
_MESSAGES: Final = 5
_STALE_TOKEN: Final = frozenset({99991661, 99991663, 99991664, 99991671})
_MENTION: Final = re.compile(r"@_user_\d{1,4}\b|@_all\b")
_ID: Final = re.compile(r"[A-Za-z0-9_\-]{1,120}")
_ENTITIES: Final = {c: f"&#{ord(c)};" for c in "&<>*_~`[]()#$"}


def _escape(text: str) -> str:
    """Entities, which cards show literally: neither looks nor mentions nor links come out of pasted text."""
    return "".join(_ENTITIES.get(c, c) for c in text)


def signature(timestamp: str, nonce: str, encrypt_key: str, body: bytes) -> str:
    """``X-Lark-Signature`` of a body."""
    return hashlib.sha256((timestamp + nonce + encrypt_key).encode() + body).hexdigest()


class Feishu(Platform):
    """A Feishu or Lark app; which of the two shows when the first token is asked for."""

    name = "feishu"

    def __init__(
        self,
        app_id: str,
        app_secret: str,
        encrypt_key: str = "",
        verification_token: str = "",
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._app = {"app_id": app_id, "app_secret": app_secret}
        self._key = encrypt_key
        self._token = verification_token
        self._out = Outgoing(_HOSTS, transport)
        self._host = ""
        self._tokens = Tokens(self._new_token)

    @classmethod
    def from_settings(cls, settings: Settings, transport: httpx.AsyncBaseTransport | None = None) -> Feishu | None:
        """The app, where it is set up: with an Encrypt Key or a verification token at least."""
        secret = settings.feishu_app_secret.get_secret_value()
        key = settings.feishu_encrypt_key.get_secret_value()
        token = settings.feishu_verification_token.get_secret_value()
        if not (settings.feishu_app_id and secret and (key or token)):
            return None
        if key:
            aes.ready()
        return cls(settings.feishu_app_id, secret, key, token, transport)

    def session_key(self) -> bytes:
        """See :class:`oomdoc.bots.message.Platform`."""
        return self._app["app_secret"].encode()

    def receive(self, call: Call, now_s: float) -> Received:
        """See :class:`oomdoc.bots.message.Platform`."""
        if call.method != "POST":
            raise Refused("Feishu posts", status=400)
        signed = self._verified(call, now_s)
        document = self._document(call.body)
        if document.get("type") == "url_verification":
            self._check_token(document.get("token"))
            answer = {"challenge": str(document.get("challenge", ""))[:1000]}
            return Received(body=json.dumps(answer).encode(), media_type="application/json")
        if self._key and not signed:
            raise Refused("the signature is missing")
        header, event = document.get("header"), document.get("event")
        if not isinstance(header, dict) or not isinstance(event, dict):
            if self._key:
                return NOTHING
            raise Refused("the verification token is missing")
        self._check_token(header.get("token"))
        if not signed:
            self.check_fresh(header.get("create_time"), now_s, _RETRIED_S, per_s=1000)
        if header.get("event_type") != "im.message.receive_v1":
            return NOTHING
        return Received(body=b"{}", media_type="application/json", message=_message(header, event))

    def _verified(self, call: Call, now_s: float) -> bool:
        """Whether the call carries a signature; a wrong or stale one is refused before anything is parsed."""
        given = call.headers.get("x-lark-signature", "")
        if not self._key or not given:
            return False
        timestamp = call.headers.get("x-lark-request-timestamp", "")
        self.check_same(signature(timestamp, call.headers.get("x-lark-request-nonce", ""), self._key, call.body), given)
        self.check_fresh(timestamp, now_s, _WINDOW_S)
        return True

    def _document(self, body: bytes) -> dict[str, Any]:
        document = parsed(body)
        if not self._key:
            return document
        sealed = document.get("encrypt")
        if not isinstance(sealed, str):
            raise Refused("the body is not encrypted")
        data = aes.sealed_bytes(sealed)
        return parsed(aes.decrypt(hashlib.sha256(self._key.encode()).digest(), data[:16].ljust(16), data[16:]))

    def _check_token(self, given: Any) -> None:
        if self._token:
            self.check_same(self._token, given, "verification token")

    async def fetch(self, message: Message, file: File, limit_bytes: int) -> bytes:
        """See :class:`oomdoc.bots.message.Platform`."""
        if not _ID.fullmatch(file.at):
            raise InputError("the platform names no file", where="file")
        token = await self._tokens.get()
        path = f"/open-apis/im/v1/messages/{message.address['message_id']}/resources/{file.at}?type=file"
        headers = {"authorization": f"Bearer {token}"}
        return await self._out.download(f"https://{self._host}{path}", headers, limit_bytes)

    async def begin(self, message: Message, markdown: str, language: str) -> str:
        """See :class:`oomdoc.bots.message.Platform`."""
        return await self._reply(message, 0, cards(markdown, language)[0])

    async def revise(self, message: Message, draft: str, markdown: str, language: str) -> None:
        """See :class:`oomdoc.bots.message.Platform`."""
        await self._called("PATCH", draft, {"content": cards(markdown, language)[0]})

    async def send(self, message: Message, markdown: str, language: str, draft: str = "") -> None:
        """See :class:`oomdoc.bots.message.Platform`."""
        for number, card in enumerate(cards(markdown, language)):
            if draft and number == 0:
                await self._called("PATCH", draft, {"content": card})
            else:
                await self._reply(message, number, card)

    async def _reply(self, message: Message, number: int, card: str) -> str:
        """The id of a card that answers a message; ``uuid`` keeps a repeated call from answering twice."""
        body = {
            "msg_type": "interactive",
            "content": card,
            "reply_in_thread": bool(message.address.get("in_thread")),
            "uuid": hashlib.sha256(f"{message.event_ids[0]}:{number}:{card}".encode()).hexdigest()[:40],
        }
        data = (await self._called("POST", f"{message.address['message_id']}/reply", body)).get("data")
        identifier = str(data.get("message_id") or "") if isinstance(data, dict) else ""
        return identifier if _ID.fullmatch(identifier) else ""

    async def _called(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        for _attempt in range(2):
            token = await self._tokens.get()
            url = f"https://{self._host}/open-apis/im/v1/messages/{path}"
            answer = await self._out.post(url, body, {"authorization": f"Bearer {token}"}, method=method)
            if answer.get("code") not in _STALE_TOKEN:
                break
            self._tokens.forget(token)
        if answer.get("code") != 0:
            code = str(answer.get("code"))[:20]
            raise InputError(f"Feishu refused the answer (code {code})", where="im/v1/messages")
        return answer

    async def _new_token(self) -> tuple[str, float]:
        """From the host that knows the app: an app id exists at one of the two only."""
        answer: Mapping[str, Any] = {}
        for host in (self._host,) if self._host else _HOSTS:
            url = f"https://{host}/open-apis/auth/v3/tenant_access_token/internal"
            try:
                answer = await self._out.post(url, self._app)
            except InputError:
                if host == _HOSTS[-1] or self._host:
                    raise
                continue
            if answer.get("code") == 0 and isinstance(answer.get("tenant_access_token"), str):
                self._host = host
                return str(answer["tenant_access_token"]), float(answer.get("expire") or 0)
        raise InputError(f"no token for this app (code {str(answer.get('code'))[:20]})", where="OOMDOC_FEISHU_APP_ID")


def _message(header: Mapping[str, Any], event: Mapping[str, Any]) -> Message | None:
    """A private message, or one in a group that mentions somebody (groups send only what mentions the bot)."""
    inner, sender = event.get("message"), event.get("sender")
    if not isinstance(inner, dict) or not isinstance(sender, dict) or sender.get("sender_type") != "user":
        return None
    identifier, direct = str(inner.get("message_id") or ""), inner.get("chat_type") == "p2p"
    if not _ID.fullmatch(identifier) or (not direct and not inner.get("mentions")):
        return None
    text, files = _content(str(inner.get("message_type") or ""), str(inner.get("content") or ""))
    chat, root = str(inner.get("chat_id") or ""), str(inner.get("root_id") or "")
    thread = (root if inner.get("thread_id") else "") if direct else root or identifier
    ids = sender.get("sender_id")
    return Message(
        "feishu",
        str(header.get("tenant_key") or ""),
        f"{chat}:{thread}",
        str(ids.get("open_id") or "") if isinstance(ids, dict) else "",
        text,
        tuple(filter(None, (str(header.get("event_id") or ""), identifier))),
        files,
        {"message_id": identifier, "in_thread": not direct},
    )


def _content(kind: str, content: str) -> tuple[str, tuple[File, ...]]:
    """Text and files of a message's content (JSON in a string)."""
    try:
        value = parsed(content)
    except Refused:
        return "", ()
    if kind == "file":
        return "", (File(str(value.get("file_name") or "file"), str(value.get("file_key") or "")),)
    if kind == "post":
        return _post(value), ()
    return _MENTION.sub(" ", str(value.get("text") or "")).strip(), ()


def _post(value: Mapping[str, Any]) -> str:
    """The lines of a rich text."""
    lines = [str(value.get("title") or "")]
    rows = value.get("content")
    for row in rows if isinstance(rows, list) else []:
        cells = [c for c in row if isinstance(c, dict)] if isinstance(row, list) else []
        lines.append(
            "".join(str(c.get("text") or "") for c in cells if c.get("tag") in ("text", "a", "code_block", "md"))
        )
    return "\n".join(lines).strip()


_DIALECT: Final = Dialect(_escape)


def _card(text: str) -> str:
    # Only a card that is shared (update_multi), before and after, may be changed.
    card = {
        "config": {"wide_screen_mode": True, "update_multi": True},
        "elements": [{"tag": "markdown", "content": text}],
    }
    return json.dumps(card, ensure_ascii=False)


def _size(text: str) -> int:
    return len(_card(text).encode("utf-8", "replace"))


def cards(markdown: str, language: str) -> list[str]:
    """The cards of an answer, as the JSON strings that are sent."""
    return [
        _card(t) for t in packed(pieces(markdown, _DIALECT), _CARD_BYTES, _size, _MESSAGES, word("bots.cut", language))
    ]
