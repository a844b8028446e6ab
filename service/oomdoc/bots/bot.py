"""From a message to its answer, for every platform alike: once per event, one thread one session, in its language."""

from __future__ import annotations

import hashlib
import hmac
import logging
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from oomdoc.bots.blocks import escaped
from oomdoc.bots.message import File, Message, Platform, spoken
from oomdoc.report.words import word
from oomdoc.store.store import Store, StoreDown
from oomkb.errors import OomdocError

_LOG: Final = logging.getLogger("oomdoc.bots")
_FILE_BYTES: Final = 16 << 20
_FILES: Final = 5
_REMEMBERED: Final = 4096

_REVISED_EVERY_S: Final = 1.5
"""The strictest platform takes some fifty changes of a message a minute."""

Answer = Callable[[str, str], Iterator[str | dict[str, Any]]]
"""(session id, text) -> pieces of the answer as they are ready, then the contract's chat reply."""


class Bot:
    """A platform joined to the chat.

    :param answer: a turn of a session, new where it does not exist.
    :param store: where event ids are remembered for all replicas.
    :param streams: whether an answer takes so long that it is shown as it grows.
    :param clock: seconds, by which a message is not changed too often.
    """

    def __init__(
        self,
        platform: Platform,
        answer: Answer,
        store: Callable[[], Store],
        *,
        streams: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._streams = streams
        self._clock = clock
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
        draft = _Draft(self.platform, message, self._clock)
        try:
            text, problems = await self._gathered(message, language)
            if text.strip():
                if self._streams:
                    await draft.begin(escaped(word("bots.working", language)), language)
                reply = await self._answered(message, text, draft)
                language = spoken(str(reply["answer"]))
                markdown = composed(reply, language, brief=self.platform.brief)
            else:
                markdown = "" if problems else escaped(word("bots.help", language))
            await draft.finish("\n\n".join(filter(None, [*problems, markdown])), language)
        except Exception as error:
            _failed(self.platform, "answer", error)
            await self._apologise(draft, language)
        return True

    async def _answered(self, message: Message, text: str, draft: _Draft) -> dict[str, Any]:
        pieces = self._answer(session_of(self.platform, message), text)
        said = ""
        while True:
            piece = await to_thread.run_sync(next, pieces)
            if isinstance(piece, dict):
                return piece
            said += piece
            await draft.show(_lines(said), spoken(said))

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

    async def _apologise(self, draft: _Draft, language: str) -> None:
        try:
            await draft.finish(escaped(word("bots.failed", language)), language)
        except Exception as error:
            _failed(self.platform, "failure-notice", error)


class _Draft:
    """The message that becomes the answer, where the platform can change one; nothing that fails on the way counts."""

    def __init__(self, platform: Platform, message: Message, clock: Callable[[], float]) -> None:
        self._platform, self._message, self._clock = platform, message, clock
        self._name = ""
        self._shown_at = 0.0

    async def begin(self, markdown: str, language: str) -> None:
        try:
            self._name = await self._platform.begin(self._message, markdown, language)
            self._shown_at = self._clock()
        except OomdocError as error:
            _failed(self._platform, "begin", error)

    async def show(self, markdown: str, language: str) -> None:
        """The answer so far, where the last change was some time ago."""
        if not self._name or not markdown or self._clock() - self._shown_at < _REVISED_EVERY_S:
            return
        try:
            await self._platform.revise(self._message, self._name, markdown, language)
        except OomdocError as error:
            _failed(self._platform, "revise", error)
        self._shown_at = self._clock()

    async def finish(self, markdown: str, language: str) -> None:
        """The whole answer: in place of the draft, or, where that is not taken, as a message of its own.

        :raises InputError: where the platform does not take it.
        """
        name, self._name = self._name, ""
        try:
            await self._platform.send(self._message, markdown, language, name)
        except OomdocError as error:
            if not name:
                raise
            _failed(self._platform, "revise", error)
            await self._platform.send(self._message, markdown, language)


def _failed(platform: Platform, stage: str, error: Exception) -> None:
    # An unexpected error's text may hold what was pasted; a platform's refusal does not.
    reason = error.message if isinstance(error, OomdocError) else type(error).__name__
    fields = {"platform": platform.name, "stage": stage, "reason": reason[:200]}
    _LOG.warning("bot-failed", extra={"fields": fields})


def session_of(platform: Platform, message: Message) -> str:
    """The chat session of a thread: the same on every replica, and not to be guessed from the thread's name."""
    name = "\0".join((message.platform, message.workspace, message.thread))
    digest = hmac.new(platform.session_key(), name.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
    return f"{message.platform}-{digest[:40]}"


def composed(reply: dict[str, Any], language: str, *, brief: bool = False) -> str:
    """A chat reply as Markdown: its answer, and for pasted material the causes, figures, plans and patch."""
    document = reply.get("diagnosis")
    answer = _lines(str(reply["answer"]))
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


def _lines(text: str) -> str:
    return "\n\n".join(escaped(line) for line in text.split("\n") if line.strip())


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
