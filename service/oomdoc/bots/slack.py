"""Slack: Events API (mentions, private messages, shared files), the slash command, threads.

Conventions as documented at docs.slack.dev: request signing v0 over the raw body with a window of five minutes, an
answer within three seconds, ``X-Slack-Retry-Num`` on retries, sections of at most 3,000 characters, 50 blocks, five
posts to a ``response_url``; ``chat.update`` some fifty times a minute.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

import httpx

from oomdoc.bots.blocks import Dialect, pieces
from oomdoc.bots.message import NOTHING, Call, File, Message, Platform, Received, Refused, packed, parsed, spoken
from oomdoc.bots.outgoing import Outgoing, allowed
from oomdoc.report.words import word
from oomdoc.settings import Settings
from oomkb.errors import InputError

_WINDOW_S: Final = 300
_API: Final = "https://slack.com/api"
_HOSTS: Final = frozenset({"slack.com", "files.slack.com", "hooks.slack.com"})
_SECTION: Final = 3000
_BLOCKS: Final = 50
# Slack refuses a message whose blocks hold too much text in all; the bound is not documented, this is well below it.
_MESSAGE: Final = 12_000
_MESSAGES: Final = 5
_SUBTYPES: Final = frozenset({None, "file_share", "thread_broadcast"})
_MENTION: Final = re.compile(r"<@[A-Z0-9]{1,20}(?:\|[^<>]{0,80})?>")
_LINK: Final = re.compile(r"<(?P<url>(?:https?://|mailto:)[^<>|]{1,2000})(?:\|(?P<label>[^<>]{1,2000}))?>")


def _escape(text: str) -> str:
    """Slack acts on ``<...>`` alone: mentions and links cannot come out of pasted text."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_DIALECT: Final = Dialect(
    _escape,
    bold="*{}*",
    heading="*{}*",
    link=lambda text, url: f"<{_escape(url)}|{text}>",
    item="• ",
    fence_language=False,
)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """``X-Slack-Signature`` of a body."""
    digest = hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    return f"v0={digest}"


class Slack(Platform):
    """A Slack app."""

    name = "slack"

    def __init__(self, signing_secret: str, bot_token: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._secret = signing_secret
        self._token = bot_token
        self._out = Outgoing(_HOSTS, transport)

    @classmethod
    def from_settings(cls, settings: Settings, transport: httpx.AsyncBaseTransport | None = None) -> Slack | None:
        """The app, where it is set up."""
        secret, token = settings.slack_signing_secret.get_secret_value(), settings.slack_bot_token.get_secret_value()
        return cls(secret, token, transport) if secret and token else None

    def session_key(self) -> bytes:
        """See :class:`oomdoc.bots.message.Platform`."""
        return self._secret.encode()

    def receive(self, call: Call, now_s: float) -> Received:
        """See :class:`oomdoc.bots.message.Platform`."""
        timestamp = call.headers.get("x-slack-request-timestamp", "")
        self.check_same(signature(self._secret, timestamp, call.body), call.headers.get("x-slack-signature"))
        self.check_fresh(timestamp, now_s, _WINDOW_S)
        if call.method != "POST":
            raise Refused("Slack posts", status=400)
        if call.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return self._command(call.body)
        document = parsed(call.body)
        if document.get("type") == "url_verification":
            return Received(body=str(document.get("challenge", ""))[:1000].encode())
        event = document.get("event")
        if document.get("type") != "event_callback" or not isinstance(event, dict):
            return NOTHING
        return Received(message=_message(document, event))

    def _command(self, body: bytes) -> Received:
        try:
            form = {k: v[0] for k, v in parse_qs(body.decode("utf-8"), max_num_fields=50).items()}
        except (ValueError, UnicodeDecodeError) as error:
            raise Refused("the body is no form", status=400) from error
        if form.get("ssl_check") == "1" or not form.get("command"):
            return NOTHING
        hook = form.get("response_url", "")
        try:
            allowed(hook, {"hooks.slack.com"})
        except InputError as error:
            raise Refused("response_url is not Slack's", status=400) from error
        channel, user = form.get("channel_id", ""), form.get("user_id", "")
        text = form.get("text", "")
        identifier = form.get("trigger_id") or hashlib.sha256(body).hexdigest()
        message = Message(
            "slack",
            form.get("team_id", ""),
            f"command:{channel}:{user}",
            user,
            text,
            (identifier,),
            address={"hook": hook},
        )
        note = {"response_type": "ephemeral", "text": word("bots.working", spoken(text))}
        return Received(body=json.dumps(note).encode(), media_type="application/json", message=message)

    async def fetch(self, message: Message, file: File, limit_bytes: int) -> bytes:
        """See :class:`oomdoc.bots.message.Platform`; the token goes to ``files.slack.com`` alone."""
        if file.size_bytes > limit_bytes:
            raise InputError(f"larger than {limit_bytes:,} bytes", where="file")
        url = allowed(file.at, {"files.slack.com"})
        return await self._out.download(url, self._bearer(), limit_bytes)

    async def begin(self, message: Message, markdown: str, language: str) -> str:
        """See :class:`oomdoc.bots.message.Platform`; a command was acknowledged when it was received."""
        if "hook" in message.address:
            return ""
        posted = await self._called("chat.postMessage", {**message.address, **documents(markdown, language)[0]})
        return str(posted.get("ts") or "")

    async def revise(self, message: Message, draft: str, markdown: str, language: str) -> None:
        """See :class:`oomdoc.bots.message.Platform`."""
        await self._update(message, draft, documents(markdown, language)[0])

    async def send(self, message: Message, markdown: str, language: str, draft: str = "") -> None:
        """See :class:`oomdoc.bots.message.Platform`."""
        first, *rest = documents(markdown, language)
        if draft:
            await self._update(message, draft, first)
        for document in rest if draft else [first, *rest]:
            if "hook" in message.address:
                hook = allowed(message.address["hook"], {"hooks.slack.com"})
                await self._out.post(hook, {"response_type": "ephemeral", "replace_original": False, **document})
                continue
            await self._called("chat.postMessage", {**message.address, **document})

    async def _update(self, message: Message, draft: str, document: Mapping[str, Any]) -> None:
        shown = {name: document[name] for name in ("text", "blocks")}
        await self._called("chat.update", {"channel": message.address["channel"], "ts": draft, **shown})

    async def _called(self, method: str, document: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._out.post(f"{_API}/{method}", document, self._bearer())
        if answer.get("ok") is not True:
            raise InputError(f"Slack refused the answer: {str(answer.get('error'))[:60]}", where=method)
        return answer

    def _bearer(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self._token}"}


def _message(document: Mapping[str, Any], event: Mapping[str, Any]) -> Message | None:
    """A mention anywhere, or a private message; nothing that a bot wrote, edited or deleted."""
    kind, direct = event.get("type"), event.get("channel_type") == "im"
    if kind != "app_mention" and not (kind == "message" and direct):
        return None
    if event.get("bot_id") or event.get("subtype") not in _SUBTYPES or not event.get("user"):
        return None
    channel, ts, thread = (str(event.get(k) or "") for k in ("channel", "ts", "thread_ts"))
    team = str(document.get("team_id") or "")
    if not channel or not ts:
        return None
    # A private chat is one conversation; elsewhere the answer opens a thread under the question.
    thread = thread if direct else thread or ts
    return Message(
        "slack",
        team,
        f"{channel}:{thread}",
        str(event["user"]),
        plain_text(str(event.get("text") or "")),
        tuple(filter(None, (str(document.get("event_id") or ""), f"{team}:{channel}:{ts}"))),
        _files(event.get("files")),
        {"channel": channel} | ({"thread_ts": thread} if thread else {}),
    )


def _files(listed: Any) -> tuple[File, ...]:
    found = []
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict):
            size = entry.get("size")
            url = str(entry.get("url_private_download") or entry.get("url_private") or "")
            found.append(File(str(entry.get("name") or "file"), url, size if isinstance(size, int) else 0))
    return tuple(found)


def plain_text(text: str) -> str:
    """What the person typed: mentions of the bot dropped, links as their text, entities undone."""
    text = _MENTION.sub(" ", text)
    text = _LINK.sub(lambda found: found["label"] or found["url"], text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()


def documents(markdown: str, language: str) -> list[dict[str, Any]]:
    """The messages of an answer: section blocks, and a fallback text for notifications."""
    cut = word("bots.cut", language)
    sections = packed(pieces(markdown, _DIALECT), _SECTION, len, _MESSAGES * _BLOCKS, cut)
    groups: list[list[str]] = []
    for section in sections:
        if not groups or len(groups[-1]) >= _BLOCKS - 1 or sum(map(len, groups[-1])) + len(section) > _MESSAGE:
            groups.append([])
        groups[-1].append(section)
    if len(groups) > _MESSAGES:
        groups = groups[:_MESSAGES]
        groups[-1].append(cut)
    return [_document(group) for group in groups]


def _document(sections: list[str]) -> dict[str, Any]:
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": s, "verbatim": True}} for s in sections]
    return {"text": sections[0][:300], "blocks": blocks, "unfurl_links": False, "unfurl_media": False}
