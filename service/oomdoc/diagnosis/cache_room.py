"""How long a request may be, and how many fit at once, by what an engine printed of its cache when it did not start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.accounts import last_signal
from oomdoc.diagnosis.fixes._remedy import is_script
from oomdoc.diagnosis.forms import CARD_USABLE, price_form
from oomdoc.diagnosis.planning.quantities import most_steps
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Message, say
from oomdoc.intake.asked import asked_of
from oomdoc.intake.quantities.facts import shares_in
from oomkb.dataclass import dataclass
from oomkb.units import GIB

_SHARE: Final = 0.9
"""Share of the card that vLLM takes where nothing is said (``vllm/config/cache.py``, 0.6 to 0.11)."""
_LARGER_SHARE: Final = 0.95
_SPARE: Final = 0.01
"""Share of the card that is left beside what others leave free."""
_WIDE: Final = 2
"""Bytes of a value that is not stored in 8 bits."""


@dataclass(frozen=True, slots=True)
class CacheRoom:
    """What a start-up says of the cache on each card."""

    bytes_at_share: float
    """Of the cache at the share that was set; below zero where weights and activations took more."""
    share: float
    token_bytes: float
    """Of one token, in the format that was set."""
    capacity_bytes: float | None
    wanted_tokens: int | None
    is_narrow: bool

    def tokens(self, share: float | None = None, *, narrow: bool = False) -> int:
        """Tokens that the cache holds at a share of the card, in 8 bits if ``narrow``."""
        size = self.bytes_at(share)
        return max(0, int(size / self.token_bytes * (2 if narrow and not self.is_narrow else 1)))

    def bytes_at(self, share: float | None) -> float:
        """What a card has for the cache at a share of it; zero where the card is not known."""
        if share is None:
            return self.bytes_at_share
        return self.bytes_at_share + (share - self.share) * self.capacity_bytes if self.capacity_bytes else 0.0


def cache_room(view: View) -> CacheRoom | None:
    """What vLLM printed of its cache when it refused to start."""
    short = last_signal(view, "vllm-kv-cache-too-small")
    share = float(view.stated("serving.gpu_memory_utilization") or _SHARE)
    narrow = str(view.stated("serving.kv_dtype") or "").startswith("fp8")
    capacity = view.bytes_of("capacity")
    if short is not None and short.data.get("needed_bytes") and short.data.get("available_bytes"):
        each = short.data["needed_bytes"] / short.data["length"]
        return CacheRoom(short.data["available_bytes"], share, each, capacity, short.data["length"], narrow)
    refusals = view.evidence.find("vllm-no-cache-blocks")
    left = next((s.data["kv_cache_bytes"] for s in refusals if "kv_cache_bytes" in s.data), None)
    if left is None or view.shape is None or not view.is_stated("model"):
        return None
    dims, split = view.shape.dims, min(view.job.tp or 1, view.shape.dims.kv_heads)
    each = dims.layers * dims.kv_elements_per_token / split * (1 if narrow else _WIDE)
    return CacheRoom(left, share, each, capacity, view.stated("serving.max_model_len"), narrow)


def rooms(view: View) -> Iterator[Message]:
    """The tokens of the cache as it is, with the share that is asked about or a larger one, and in 8 bits."""
    yield from _beside_others(view)
    yield from _sequences(view)
    room = cache_room(view)
    if room is None:
        return
    asked = asked_of(view.evidence)
    named = [share for share in shares_in(view.evidence) if room.share < share < 1]
    share = named[0] if named else _LARGER_SHARE if room.share < _LARGER_SHARE else None
    forms: list[tuple[str, float | None, bool]] = [("now", None, False)]
    forms += [("share", share, False)] if share is not None else []
    if not room.is_narrow:
        forms += [("narrow", None, True)]
        forms += [("both", share, True)] if share is not None else []
    rows = [
        say(f"answer.cache-room-{name}", tokens=tokens, share=at or 0.0, size_bytes=room.bytes_at(at))
        for name, at, narrow in forms
        if (tokens := room.tokens(at, narrow=narrow))
    ]
    if rows:
        yield say("answer.cache-room", rows=rows)
    each, held = asked.request_length or asked.length, room.tokens() or room.tokens(share)
    if each and held and each != room.wanted_tokens and each <= held:
        yield say("answer.cache-room-requests", count=held // each, each=each, tokens=held)


def _beside_others(view: View) -> Iterator[Message]:
    """What the cache gets at the share of the card that others leave free, by the estimate."""
    found = last_signal(view, "vllm-startup-free-too-low")
    if found is None or not view.is_stated("model"):
        return
    share = int(100 * found.data["free_bytes"] / found.data["capacity_bytes"]) / 100 - _SPARE
    fields = {"serving.gpu_memory_utilization": share, "capacity_gib": found.data["capacity_bytes"] / GIB}
    priced = price_form(view.job, fields, careful=False)
    served = priced.estimate.served if priced is not None else None
    if served is not None and served.cache_bytes > 0 and served.needed_bytes:
        sizes = {"cache_bytes": served.cache_bytes, "tokens": served.tokens // 100 * 100}
        yield say("answer.cache-room-beside", share=share, **sizes)
    elif served is not None:
        yield say("answer.cache-room-beside-none", share=share)


def _sequences(view: View) -> Iterator[Message]:
    """How many sequences a script may generate at once on a card that several were too many for."""
    batch, capacity = view.stated("micro_batch"), view.bytes_of("capacity")
    if (
        view.phase != "generate"
        or not is_script(view.job)
        or not batch
        or batch < 2
        or not capacity
        or not view.stated("seq_len")
    ):
        return

    def size(count: int) -> float:
        priced = price_form(view.job, {"micro_batch": count}, careful=False)
        return priced.estimate.process_bytes if priced is not None else capacity

    most = most_steps(lambda count: size(count) < CARD_USABLE * capacity, int(batch) - 1)
    if most:
        yield say("answer.script-most", count=most, tokens=int(view.stated("seq_len")), needed_bytes=size(most))
