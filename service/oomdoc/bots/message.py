"""What goes between a messenger and the service: a call as it came, the message in it, and what is answered at once."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final, Protocol

from oomdoc.intake.topics import is_chinese
from oomkb.dataclass import dataclass
from oomkb.errors import InputError, OomdocError

Measure = Callable[[str], int]
_FENCE: Final = "```"


def utf8(text: str) -> int:
    """Bytes."""
    return len(text.encode("utf-8", "replace"))


def packed(pieces: Iterable[tuple[str, str, bool]], limit: int, measure: Measure, most: int, cut: str) -> list[str]:
    """Messages of at most ``limit`` (by ``measure``), at most ``most`` of them; the last says ``cut`` where more was.

    :param pieces: what :func:`oomdoc.bots.blocks.pieces` makes.
    """
    messages: list[str] = []
    for part, glue in fitted(pieces, limit - measure("\n" + cut) - 1, measure):
        joined = f"{messages[-1]}{glue}{part}" if messages else part
        if messages and measure(joined) <= limit - measure("\n" + cut) - 1:
            messages[-1] = joined
        else:
            messages.append(part)
    if len(messages) <= most:
        return messages
    return [*messages[: most - 1], f"{messages[most - 1]}\n{cut}"]


def fitted(pieces: Iterable[tuple[str, str, bool]], limit: int, measure: Measure) -> Iterable[tuple[str, str]]:
    """The pieces, those over the limit in several parts, each with what joins it to the one before."""
    for written, plain, code in pieces:
        glue = "\n" if not code and written.startswith(("- ", "• ")) else "\n\n"
        if measure(written) <= limit:
            yield written, glue
        elif code:
            opening = written.split("\n", 1)[0]
            frame = measure(f"{opening}\n\n{_FENCE}")
            inside = written[len(opening) + 1 : -len(_FENCE) - 1]
            for part in _cut(inside, limit - frame, measure):
                yield f"{opening}\n{part}\n{_FENCE}", "\n"
        else:
            # Looks could be cut in half: what is this long goes without them.
            for part in _cut(plain, limit, measure):
                yield part, "\n"


def _cut(text: str, limit: int, measure: Measure) -> Iterable[str]:
    while text:
        if measure(text) <= limit:
            yield text
            return
        end = _longest(text, limit, measure)
        head = text[:end]
        breaks = head.rfind("\n")
        if breaks <= 0:
            breaks = head.rfind(" ", end // 2)
        if breaks > 0:
            yield text[:breaks]
            text = text[breaks + 1 :]
            continue
        entity = head.rfind("&", max(0, end - 8))
        end = entity if entity > 0 and ";" not in head[entity:] else end
        yield text[:end]
        text = text[end:]


def _longest(text: str, limit: int, measure: Measure) -> int:
    """How many characters fit; at least one, so that there is an end."""
    low, high = 1, min(len(text), max(limit, 1))
    while low < high:
        middle = (low + high + 1) // 2
        if measure(text[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


class Refused(OomdocError):
    """A call that is not from the platform (401), or that is no call of its kind (400)."""

    def __init__(self, message: str, *, status: int = 401) -> None:
        super().__init__(message, where="callback")
        self.status = status


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP call of a platform; ``headers`` have lower-case names, ``body`` is what was signed, byte for byte."""

    method: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class File:
    """A file that was shared; ``at`` is what the platform needs to hand it out."""

    name: str
    at: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """What a person wrote to the bot."""

    platform: str
    workspace: str
    thread: str
    """What is one conversation: a thread, or a private chat."""
    user: str
    text: str
    event_ids: tuple[str, ...]
    """Each may be answered once; a retry carries the same ones."""
    files: tuple[File, ...] = ()
    address: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Where the answer goes, in the platform's terms."""


@dataclass(frozen=True, slots=True)
class Received:
    """The immediate answer to a call, and the message to answer later, if there was one."""

    status: int = 200
    body: bytes = b""
    media_type: str = "text/plain"
    message: Message | None = None


NOTHING: Final = Received()


class Platform(Protocol):
    """A messenger; unless it says otherwise, one without files, whose messages cannot be changed."""

    name: str
    brief: bool = False
    """Whether its messages are so small that an answer should keep to the first plan."""

    @staticmethod
    def check_same(right: str, given: Any, name: str = "signature") -> None:
        """Compare in constant time what a call gives with what it should.

        :raises Refused: where they differ.
        """
        if not hmac.compare_digest(right.encode(), str(given or "").encode("utf-8", "replace")):
            raise Refused(f"the {name} is wrong")

    @staticmethod
    def check_fresh(stamp: Any, now_s: float, window_s: float, *, per_s: int = 1) -> None:
        """Check the time of a call, in units of which a second has ``per_s``.

        :raises Refused: where it is none, or lies further from now than the window.
        """
        text = str(stamp or "")
        if not text.isascii() or not text.isdigit() or abs(now_s - int(text[:16]) / per_s) > window_s:
            raise Refused("the call is too old")

    def receive(self, call: Call, now_s: float) -> Received:
        """Check a call and read it; touches nothing but its arguments.

        :raises Refused: for a call that does not come from the platform, or is stale, or makes no sense.
        """

    def session_key(self) -> bytes:
        """A secret that makes session ids unguessable."""

    async def fetch(self, message: Message, file: File, limit_bytes: int) -> bytes:
        """A shared file's content.

        :raises InputError: where it cannot be had, or is larger than the limit.
        """
        raise InputError("paste its text instead", where="file")

    async def begin(self, message: Message, markdown: str, language: str) -> str:
        """Say at once that a message is being answered, where the answer may be more than one message.

        :returns: the name of what was posted, for :meth:`revise` and :meth:`send`; empty where it cannot be changed.
        :raises InputError: where the platform does not take it.
        """
        await self.send(message, markdown, language)
        return ""

    async def revise(self, message: Message, draft: str, markdown: str, language: str) -> None:
        """Show how far the answer is in place of what :meth:`begin` posted.

        :raises InputError: where the platform does not take it.
        """

    async def send(self, message: Message, markdown: str, language: str, draft: str = "") -> None:
        """Answer a message.

        :param draft: what :meth:`begin` posted: it becomes the answer's first message.
        :raises InputError: where the platform does not take it.
        """


def parsed(raw: bytes | str) -> dict[str, Any]:
    """A JSON object.

    :raises Refused: for anything else.
    """
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Refused("the body is not JSON", status=400) from error
    if not isinstance(value, dict):
        raise Refused("the body is not a JSON object", status=400)
    return value


def spoken(text: str) -> str:
    """The language to answer in; as in the chat, one Chinese character is enough."""
    return "zh" if is_chinese(text) else "en"
