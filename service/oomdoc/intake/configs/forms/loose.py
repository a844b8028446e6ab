"""Known keys scattered in prose, logs and dumps: ``cutoff_len=4096``, ``max_length 是 16384``, ``seq_len ... 4``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.table import norm, words
from oomdoc.intake.configs.values import as_scalar
from oomdoc.intake.polarity import not_given
from oomkb.kept import compiled

_PAIR: Final = compiled(
    r"(?<![\w.\-/\\])(-{0,2})([A-Za-z_][\w\-]{1,60}(?:\.[\w\-]{1,60}){0,5})"
    r"(?:[\"'`]?[ \t]{0,3}(?:[=:：]|设为|设成|设置为|改为|改成|调到|调成|降到|是|为|等于)[ \t]{0,3}"
    r"|[ ]\.{3,80}[ ]|[ ](?=[0-9]|true|True|false|False|[\"'`])|(?<=\w)(?=\s|$))"
    r"([\"'`]?)([^\s,，。;；、()（）\[\]{}\"'`]{0,160})"
)
_COMMON: Final = words(
    """
        model dtype stage optimizer optim r type name precision device packing fsdp stage3 compile
        batch_size size load path config deepspeed template dataset method beta module attention bias flash
        adapter sleep image engine
        """
)


_MAX_VALUES: Final = 2_000
"""Settings of one text: nobody scatters more."""
_WORD: Final = compiled(r"(?<![A-Za-z0-9_\-])-{0,2}[A-Za-z_][A-Za-z0-9_\-]*|\.[A-Za-z_][A-Za-z0-9_\-]*")
"""Last parts of keys, with the dot before them."""


def _knowable(dashes: str, name: str, known: frozenset[str]) -> bool:
    key = norm(name)
    if key not in known and key.rsplit(".", 1)[-1] not in known:
        return False
    return bool(dashes) or (key not in _COMMON and ("_" in key or "." in key or len(key) > 6))


def _possible(word: str, known: frozenset[str]) -> bool:
    """Whether a word can be (the last part of) a key that is knowable."""
    bare = word.lstrip(".-")
    return norm(bare) in known and (bare != word or _knowable("", bare, known))


def _candidates(text: str, start: int, end: int, known: frozenset[str]) -> Iterator[tuple[int, int]]:
    """The lines in which one of the keys stands: most lines of a log hold none, and most keys are in no line."""
    here = [word for word in set(_WORD.findall(text, start, end)) if _possible(word, known)]
    at = start if here else end
    while at < end:
        stop = text.find("\n", at, end)
        stop = end if stop < 0 else stop
        line = text[at:stop]
        if any(word in line for word in here):
            yield at, stop
        at = stop + 1


def parse_loose(text: str, start: int, end: int, known: frozenset[str]) -> list[Entry]:
    """The scattered settings whose keys are in ``known``; common words need a flag's dashes."""
    out: list[Entry] = []
    for match in (m for low, high in _candidates(text, start, end, known) for m in _PAIR.finditer(text, low, high)):
        dashes, name, quote, raw = match[1], match[2], match[3], match[4].rstrip(".:!?")
        if not _knowable(dashes, name, known):
            continue
        joined = match.end(2) == match.start(3)
        if ((not raw or joined) and not dashes) or not_given(text, match.start()):
            continue
        span = (match.start(4), match.start(4) + len(raw))
        if not raw or joined:
            entry = Entry(
                key=name, value=True, key_span=match.span(2), value_span=(match.end(2), match.end(2)), style="bare"
            )
        else:
            entry = Entry(
                key=name, value=as_scalar(raw), key_span=match.span(2), value_span=span, style="pair", quote=quote
            )
        out.append(entry)
        if len(out) >= _MAX_VALUES:
            break
    return out
