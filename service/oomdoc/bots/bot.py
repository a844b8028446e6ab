"""From a message to its answer, for every platform alike: once per event, one thread one session, in its language."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from oomdoc.bots.blocks import escaped
from oomdoc.bots.message import File, Message, Platform, spoken
from oomdoc.report.words import word
from oomdoc.store.store import Store, StoreDown
from oomkb.errors import OomdocError

__all__ = ["Bot", "composed", "session_of"]

_LOG: Final = logging.getLogger("oomdoc.bots")
_FILE_BYTES: Final = 16 << 20
_FILES: Final = 5
_REMEMBERED: Final = 4096

Answer = Callable[[str, str], dict[str, Any]]
"""(session id, text) -> the contract's chat reply."""


class Bot:
    """A platform joined to the chat.

    :param answer: a turn of a session, new where it does not exist.
    :param store: where event ids are remembered for all replicas.
    """

    def __init__(self, platform: Platform, answer: Answer, store: Callable[[], Store]) -> None:
        self.platform = platform
        self._answer = answer
        self._store = store
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    async def handle(self, message: Message) -> bool:
        """Answer a message; whether it was new. Never raises: there is nobody left to tell but the log."""
        if not await to_thread.run_sync(self._first_time, message):
            return False
        language = spoken(message.text)
        try:
            text, problems = await self._gathered(message, language)
            if text.strip():
                reply = await to_thread.run_sync(self._answer, session_of(self.platform, message), text)
                language = spoken(str(reply["answer"]))
                markdown = composed(reply, language, brief=self.platform.brief)
            else:
                markdown = "" if problems else escaped(word("bots.help", language))
            await self.platform.send(message, "\n\n".join(filter(None, [*problems, markdown])), language)
        except Exception as error:
            self._failed("answer", error)
            await self._apologise(message, language)
        return True

    def _first_time(self, message: Message) -> bool:
        """Every event id is taken at once, here and in the store: a retry may reach another replica."""
        with self._lock:
            if any(i in self._seen for i in message.event_ids):
                return False
            for identifier in message.event_ids:
                self._seen[identifier] = None
            while len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        try:
            store = self._store()
            return all(store.first_time(self.platform.name, _short(i)) for i in message.event_ids)
        except StoreDown:
            # Within this process a retry is still noticed.
            return True

    async def _gathered(self, message: Message, language: str) -> tuple[str, list[str]]:
        """The text with the shared files' content, and what to say of files that could not be read."""
        parts, problems = [message.text.strip()], []
        for file in message.files[:_FILES]:
            try:
                content = await self.platform.fetch(message, file, _FILE_BYTES)
                parts.append(await to_thread.run_sync(_read, file, content))
            except OomdocError as error:
                reason = error.message
                problems.append(escaped(word("bots.unreadable", language, name=file.name[:100], reason=reason)))
        return "\n".join(p for p in parts if p), problems

    async def _apologise(self, message: Message, language: str) -> None:
        try:
            await self.platform.send(message, escaped(word("bots.failed", language)), language)
        except Exception as error:
            self._failed("apology", error)

    def _failed(self, stage: str, error: Exception) -> None:
        # An unexpected error's text may hold what was pasted; a platform's refusal does not.
        reason = error.message if isinstance(error, OomdocError) else type(error).__name__
        entry = {"event": "bot-failed", "platform": self.platform.name, "stage": stage, "reason": reason[:200]}
        _LOG.warning(json.dumps(entry))


def session_of(platform: Platform, message: Message) -> str:
    """The chat session of a thread: the same on every replica, and not to be guessed from the thread's name."""
    name = "\0".join((message.platform, message.workspace, message.thread))
    digest = hmac.new(platform.session_key(), name.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
    return f"{message.platform}-{digest[:40]}"


def composed(reply: dict[str, Any], language: str, *, brief: bool = False) -> str:
    """A chat reply as Markdown: its answer, and for pasted material the causes, figures, plans and patch."""
    document = reply.get("diagnosis")
    answer = "\n\n".join(escaped(line) for line in str(reply["answer"]).split("\n") if line.strip())
    warnings: Sequence[str] = reply.get("warnings") or ()
    notes = "\n".join(f"- {escaped(w)}" for w in warnings)
    if not document or not document["causes"] or document["verdict"] == "no-failure":
        return "\n\n".join(filter(None, [answer, notes]))
    from oomdoc.report.markdown import diagnosis_markdown

    shown = document | {"summary": ""}
    if brief:
        shown |= {
            "estimate": None,
            "plans": document["plans"][:1],
            "matches": document["matches"][:2],
            "threads": (document.get("threads") or [])[:1],
        }
    return "\n\n".join(filter(None, [answer, diagnosis_markdown(shown, language), notes]))


def _short(identifier: str) -> str:
    """Within the store's column."""
    return identifier if len(identifier) <= 160 else hashlib.sha256(identifier.encode()).hexdigest()


def _read(file: File, content: bytes) -> str:
    """A shared file's text, unpacked and condensed as on the command line.

    :raises InputError: where it is no text.
    """
    from oomdoc.intake.stream import load_source

    with tempfile.TemporaryDirectory(prefix="oomdoc-") as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        return load_source(path).text
