"""WeCom: callbacks of an in-house app (XML) or robot (JSON), always encrypted; answers through the send call.

Conventions as documented at developer.work.weixin.qq.com: the signature is SHA-1 over token, timestamp, nonce and
ciphertext in sorted order; AES-256-CBC under the EncodingAESKey; an empty answer within five seconds, else three
retries with the same ``MsgId``; an app's Markdown has at most 2,048 bytes a message; a robot's ``response_url`` takes a
single message of at most 20,480 bytes within an hour.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode
from xml.etree import ElementTree

import httpx

from oomdoc.bots import aes
from oomdoc.bots.blocks import Dialect, pieces
from oomdoc.bots.message import NOTHING, Call, Message, Platform, Received, Refused, packed, parsed, utf8
from oomdoc.bots.outgoing import Outgoing, Tokens, allowed
from oomdoc.report.words import word
from oomdoc.settings import Settings
from oomkb.errors import InputError

_WINDOW_S: Final = 300
_HOST: Final = "qyapi.weixin.qq.com"
_API: Final = f"https://{_HOST}/cgi-bin"
_MESSAGE_BYTES: Final = 2048
_MESSAGES: Final = 8
_ROBOT_BYTES: Final = 20_000
_STALE_TOKEN: Final = frozenset({40014, 42001})
_BLOCK: Final = 32
_DECLARATION: Final = re.compile(r"<!(?!\[CDATA\[)|<\?(?!xml[\s?])", re.IGNORECASE)
_AT: Final = re.compile(r"^\s{0,4}@\S{1,64}\s")


def signature(token: str, timestamp: str, nonce: str, sealed: str) -> str:
    """``msg_signature`` of a ciphertext; SHA-1 is the platform's choice."""
    return hashlib.sha1("".join(sorted((token, timestamp, nonce, sealed))).encode("utf-8", "replace")).hexdigest()


class WeCom(Platform):
    """A WeCom app; its callback carries no files."""

    name = "wecom"
    brief = True

    def __init__(
        self,
        corp_id: str,
        agent_id: str,
        secret: str,
        token: str,
        aes_key: str,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        try:
            self._key = base64.b64decode(aes_key + "=", validate=True)
        except (binascii.Error, ValueError):
            self._key = b""
        if len(self._key) != 32:
            raise InputError("not an EncodingAESKey: it has 43 characters", where="OOMDOC_WECOM_AES_KEY")
        self._corp, self._agent, self._secret, self._token = corp_id, agent_id, secret, token
        self._out = Outgoing({_HOST}, transport)
        self._tokens = Tokens(self._new_token)

    @classmethod
    def from_settings(cls, settings: Settings, transport: httpx.AsyncBaseTransport | None = None) -> WeCom | None:
        """The app or robot, where it is set up; a robot needs neither agent id nor secret.

        :raises InputError: for an EncodingAESKey that is none.
        """
        secrets = (settings.wecom_secret, settings.wecom_token, settings.wecom_aes_key)
        secret, token, key = (s.get_secret_value() for s in secrets)
        if not (settings.wecom_corp_id and token and key):
            return None
        aes.ready()
        return cls(settings.wecom_corp_id, settings.wecom_agent_id, secret, token, key, transport)

    def session_key(self) -> bytes:
        """See :class:`oomdoc.bots.message.Platform`."""
        return self._key

    def receive(self, call: Call, now_s: float) -> Received:
        """See :class:`oomdoc.bots.message.Platform`."""
        if call.method == "GET":
            return Received(body=self._opened(call, call.query.get("echostr", ""), now_s))
        plain = self._opened(call, _sealed(call.body), now_s)
        fields = parsed(plain) if plain.lstrip().startswith(b"{") else xml_fields(plain)
        message = _robot_message(fields) if "msgtype" in fields else self._app_message(fields)
        return Received(message=message) if message is not None else NOTHING

    def _opened(self, call: Call, sealed: str, now_s: float) -> bytes:
        """The plain text of a ciphertext whose signature is right and fresh."""
        timestamp, nonce = call.query.get("timestamp", ""), call.query.get("nonce", "")
        self.check_same(signature(self._token, timestamp, nonce, sealed), call.query.get("msg_signature"))
        self.check_fresh(timestamp, now_s, _WINDOW_S)
        plain = aes.decrypt(self._key, self._key[:16], aes.sealed_bytes(sealed), block=_BLOCK)
        # 16 random bytes, the length, the text, and whom it is for (nobody, where a robot is called).
        end = 20 + int.from_bytes(plain[16:20], "big")
        if len(plain) < 20 or end > len(plain):
            raise Refused("not encrypted as agreed", status=400)
        if plain[end:] not in (self._corp.encode(), b""):
            raise Refused("this is for another company")
        return plain[20:end]

    def _app_message(self, fields: Mapping[str, Any]) -> Message | None:
        user, identifier = str(fields.get("FromUserName") or ""), str(fields.get("MsgId") or "")
        if fields.get("MsgType") != "text" or not user or not identifier:
            return None
        if not (self._agent and self._secret) or fields.get("AgentID") not in (None, "", self._agent):
            return None
        text = str(fields.get("Content") or "").strip()
        return Message("wecom", self._corp, f"app:{user}", user, text, (identifier,), address={"user": user})

    async def begin(self, message: Message, markdown: str, language: str) -> str:
        """See :class:`oomdoc.bots.message.Platform`; a robot has one message, which is the answer."""
        return "" if "hook" in message.address else await super().begin(message, markdown, language)

    async def send(self, message: Message, markdown: str, language: str, draft: str = "") -> None:
        """See :class:`oomdoc.bots.message.Platform`."""
        robot = "hook" in message.address
        for text in messages(markdown, language, robot=robot):
            body: dict[str, Any] = {"msgtype": "markdown", "markdown": {"content": text}}
            if robot:
                _check((await self._out.post(message.address["hook"], body)).get("errcode", 0), "response_url")
                continue
            body |= {"touser": message.address["user"], "agentid": int(self._agent) if self._agent.isdigit() else 0}
            code: Any = None
            for _attempt in range(2):
                token = await self._tokens.get()
                query = urlencode({"access_token": token})
                code = (await self._out.post(f"{_API}/message/send?{query}", body)).get("errcode")
                if code not in _STALE_TOKEN:
                    break
                self._tokens.forget(token)
            _check(code, "message/send")

    async def _new_token(self) -> tuple[str, float]:
        query = urlencode({"corpid": self._corp, "corpsecret": self._secret})
        answer = await self._out.get(f"{_API}/gettoken?{query}")
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            code = str(answer.get("errcode"))[:20]
            raise InputError(f"no token for this app (code {code})", where="OOMDOC_WECOM_SECRET")
        return token, float(answer.get("expires_in") or 0)


def _check(code: Any, where: str) -> None:
    if code != 0:
        raise InputError(f"WeCom refused the answer (code {str(code)[:20]})", where=where)


def _sealed(body: bytes) -> str:
    """The ciphertext of a body, XML or JSON."""
    fields = parsed(body) if body.lstrip().startswith(b"{") else xml_fields(body)
    sealed = fields.get("Encrypt") or fields.get("encrypt")
    if not isinstance(sealed, str):
        raise Refused("the body is not encrypted", status=400)
    return sealed


def xml_fields(raw: bytes) -> dict[str, str]:
    """The children of a flat XML document. Declarations (entities, document types) are refused unread.

    :raises Refused: for anything else.
    """
    try:
        text = raw.decode("utf-8-sig")
        if _DECLARATION.search(text):
            raise Refused("the body declares something", status=400)
        root = ElementTree.fromstring(text)
    except (UnicodeDecodeError, ElementTree.ParseError, ValueError, RecursionError) as error:
        raise Refused("the body is not XML", status=400) from error
    return {child.tag: child.text or "" for child in root}


def _robot_message(fields: Mapping[str, Any]) -> Message | None:
    """A robot's message in JSON; it is answered through the address it names."""
    sender, inner = fields.get("from"), fields.get("text")
    identifier = str(fields.get("msgid") or "")
    user = str(sender.get("userid") or "") if isinstance(sender, dict) else ""
    hook = fields.get("response_url")
    if fields.get("msgtype") != "text" or not isinstance(inner, dict) or not identifier or not user or not hook:
        return None
    try:
        checked = allowed(str(hook), {_HOST})
    except InputError as error:
        raise Refused("response_url is not WeCom's", status=400) from error
    text = _AT.sub("", str(inner.get("content") or "")).strip()
    chat = str(fields.get("chatid") or "")
    robot = str(fields.get("aibotid") or "")
    return Message("wecom", robot, f"{chat}:{user}", user, text, (identifier,), address={"hook": checked})


def _escape(text: str) -> str:
    """No mention (``<@user>``), font or link comes out of pasted text."""
    return text.replace("<", "&lt;").replace("](", "] (")


_DIALECT: Final = Dialect(_escape, fence_language=False)


def messages(markdown: str, language: str, *, robot: bool = False) -> list[str]:
    """The texts of an answer."""
    limit, most = (_ROBOT_BYTES, 1) if robot else (_MESSAGE_BYTES, _MESSAGES)
    return packed(pieces(markdown, _DIALECT), limit, utf8, most, word("bots.cut", language))
