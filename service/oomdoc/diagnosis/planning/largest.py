"""The largest micro-batch and length that fit with everything else as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from oomdoc.diagnosis.fixes._job import is_serving
from oomdoc.diagnosis.forms import host_is_short, needed_of
from oomdoc.diagnosis.planning.prices import Prices
from oomkb.memory.job import Job

_MAX_SAMPLES = 512
_GRAIN = 128
_MAX_LENGTH = 1 << 20
_MIN_PROBABILITY = 0.5


def largest(prices: Prices, wanted: float) -> dict[str, int]:
    """By job field; 0 where not even the smallest fits, absent where the field is not one of the job's."""
    if prices.capacity_bytes is None:
        return {}
    if is_serving(prices.job):
        length = prices.job.get("serving.max_model_len")
        if length is None:
            return {}
        longest = prices.shape.dims.max_positions or _MAX_LENGTH
        return {"serving.max_model_len": _most(prices, "serving.max_model_len", longest, wanted, 1024)}
    out = {}
    if prices.job.micro_batch is not None:
        out["micro_batch"] = _most(prices, "micro_batch", _MAX_SAMPLES, wanted, 1)
    if prices.job.seq_len is not None and not prices.job.completion_len:
        longest = max(prices.job.seq_len, prices.shape.dims.max_positions or 32768)
        out["seq_len"] = _most(prices, "seq_len", min(longest, _MAX_LENGTH), wanted, _GRAIN)
    return out


def _most(prices: Prices, field: str, highest: int, wanted: float, grain: int) -> int:
    def fits(steps: int) -> bool:
        price = prices.of({field: steps * grain})
        return price is not None and price.probability >= wanted

    return most_steps(fits, max(1, highest // grain)) * grain


def most_steps(fits: Callable[[int], bool], highest: int) -> int:
    """The largest number up to ``highest`` for which ``fits`` holds, taken to hold below it; doubling, then halving."""
    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= highest and fits(high):
        low, high = high, high * 2
    high = min(high, highest + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def largest_of(job: Job, *, careful: bool, wanted: float) -> dict[str, int]:
    """As :func:`largest`, for a job as it is stated."""
    return largest(Prices(job, careful=careful), wanted)


def most_requests(job: Job, *, careful: bool, wanted: float) -> int:
    """How many requests at once fit beside the weights, where the engine holds a cache for each and no pool."""
    return _most(Prices(job, careful=careful), "serving.concurrency", _MAX_SAMPLES, wanted, 1)


def need_with(job: Job, fields: Mapping[str, Any], *, careful: bool) -> tuple[float | None, bool | None]:
    """What the job needs with these fields set, in bytes, and whether that fits; nothing for an impossible run."""
    price = Prices(job, careful=careful).of(fields)
    if price is None:
        return None, None
    fits = price.probability >= _MIN_PROBABILITY and not host_is_short(price.job, price.estimate)
    return needed_of(price.estimate), fits
