"""Fitting an answer into messages of limited size, without cutting a code block's fence, a character or an entity."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

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
