"""What the answer to a question says of a server: its share of the card, its KV cache, how many requests that holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.diagnosis.accounts import last_signal
from oomdoc.diagnosis.comparing import Plain
from oomdoc.diagnosis.forms import CARD_USABLE, FITS, fits_of, needed_of, price_form
from oomdoc.diagnosis.named_keys import written_as
from oomdoc.diagnosis.planning.quantities import largest_of, most_requests
from oomdoc.diagnosis.planning.spelling import key_of
from oomdoc.diagnosis.run_words import model_of, names_of
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Message, say
from oomdoc.intake.asked import Asked
from oomkb.errors import OomdocError
from oomkb.frameworks import ENGINES, has
from oomkb.frameworks import line as line_of
from oomkb.memory.cache import element_bytes
from oomkb.memory.setting import resolve_setting
from oomkb.pricing import Priced, device_of, shape_of
from oomkb.units import KIB


def held_by_engine(view: View, *, whole: bool = True) -> Iterator[Message]:
    """What an engine that started holds, by its own log: its cache in bytes, or in tokens.

    :param whole: nothing where the log does not show the weights too.
    """
    found = {
        name: last_signal(view, f"vllm-{name}") for name in ("weights", "profile", "kv-cache-memory", "concurrency")
    }
    printed = {key: value for signal in found.values() if signal is not None for key, value in signal.data.items()}
    length, requests, served = printed.get("length"), printed.get("concurrency"), view.estimate and view.estimate.served
    cache = printed.get("kv_cache_bytes")
    if cache is None and length and requests and served and served.length:
        cache = length * requests * served.token_bytes
    weights = printed.get("weights_bytes")
    if cache is None or (whole and weights is None):
        return
    if weights is None:
        yield say("answer.engine-cache", cache_bytes=cache)
    else:
        yield say("answer.engine-holds", weight_bytes=weights, cache_bytes=cache)
    if length and requests:
        yield say("answer.engine-room", tokens=f"{round(length * requests):,}", requests=requests, length=f"{length:,}")


def servers(view: View, asked: Asked) -> Iterator[Message]:
    """What share of the card each of several engines may take."""
    if not asked.servers or view.job.get("serving.gpu_memory_utilization") is None or (view.job.world or 1) > 1:
        return
    said = view.evidence.value("gpu_memory_utilization")
    counts = {"count": asked.servers, "share": int(CARD_USABLE * 100 / asked.servers) / 100}
    if isinstance(said, float) and said * asked.servers > 1:
        yield say("answer.servers-over", said=said, **counts)
    else:
        yield say("answer.servers", **counts)


def reserved(about: Plain) -> Iterator[Message]:
    """Why an engine that runs holds its share of the card."""
    served, capacity = about.estimate.served, about.estimate.capacity_bytes
    share = about.job.get("serving.gpu_memory_utilization")
    if about.wanted != "reserved" or served is None or not capacity or not share:
        return
    taken = about.estimate.process_bytes
    sizes = {"share_bytes": taken, "capacity_bytes": capacity, "cache_bytes": served.cache_bytes}
    percent, key = round(100 * taken / capacity), key_of(about.job.framework, "serving.gpu_memory_utilization")
    yield say("answer.reserved", percent=percent, key=key, needed_bytes=needed_of(about.estimate), **sizes)


def printed_tokens(view: View) -> float | None:
    """Tokens that an engine's cache holds by its own log; ``None`` where it prints none."""
    printed = next((s.data for s in view.evidence.find("vllm-concurrency")), {})
    return float(printed.get("length", 0)) * float(printed.get("concurrency", 0)) or None


def put_off_requests(view: View, asked: Asked) -> Iterator[Message]:
    """Why an engine that runs puts requests back, and how many of those that are to come its printed cache holds."""
    yield say("answer.put-off")
    tokens, each = printed_tokens(view), asked.request_length or asked.length
    if tokens is not None and each and asked.concurrency:
        sizes = {"here": f"{each:,}", "tokens": f"{int(tokens) // 100 * 100:,}"}
        short = asked.concurrency * each > tokens
        needed = f"{asked.concurrency * each:,}"
        key = "answer.put-off-short" if short else "answer.put-off-room"
        yield say(key, requests=int(tokens / each), count=asked.concurrency, needed=needed, **sizes)


def room(about: Plain) -> Iterator[Message]:
    """How many requests the cache of a server holds at once."""
    served = about.estimate.served
    if served is None or not (about.printed_tokens or (served.largest_length is not None and served.requests >= 1)):
        return
    usual = about.asked.request_length or (None if "seq_len" in about.job.assumed else about.stated.seq_len)
    each = min(usual or served.length, served.length)
    here = f"{each:,}"
    if about.wanted == "requests" and not has(about.job.framework, "serving.utilization"):
        requests = most_requests(about.stated, careful=about.careful, wanted=FITS)
        tokens: float = requests * each
    else:
        tokens = about.printed_tokens or served.requests * served.length
        requests = int(tokens / each)
    slots = about.job.get("serving.max_num_seqs") if line_of(about.job.framework, "slots") else None
    if slots and slots > 1 and served.at_once == 1:
        yield say("answer.room-slots", count=slots, each=f"{served.length // slots:,}", here=f"{served.length:,}")
    elif (about.asked.concurrency or served.at_once) > requests:
        yield say("answer.room-short", requests=requests, here=here)
    elif (served.at_once == 1 or about.printed_tokens) and (requests > 1 or about.wanted == "requests"):
        key = "answer.room" if requests > 1 else "answer.room-one"
        yield say(key, requests=requests, here=here, tokens=f"{int(tokens) // 1000 * 1000:,}")


def queued(about: Plain) -> Iterator[Message]:
    """That an engine whose requests share one cache starts and lets some wait, where not all at their longest fit."""
    job, count = about.job, about.job.get("serving.concurrency") or 1
    if count < 2 or about.answer == "fits" or about.sides or not has(job.framework, "serving.utilization"):
        return
    alone = price_form(about.stated, {"serving.concurrency": None}, careful=about.careful)
    served = alone.estimate.served if alone is not None else None
    if alone is None or served is None or not fits_of(alone.estimate) or served.requests < 1:
        return
    tokens = int(served.requests * served.length)
    if tokens // count >= _LEAST_SHARE:
        sizes = {"tokens": f"{tokens // 1000 * 1000:,}", "each": f"{tokens // count // 100 * 100:,}"}
        yield say(
            "answer.queued", count=count, here=f"{served.length:,}", needed_bytes=needed_of(alone.estimate), **sizes
        )


_LEAST_SHARE: Final = 256
"""Tokens of the cache that each of several requests must find for the engine to be of use to all of them."""


def longest_with_small_cache(about: Plain, longest: int) -> Iterator[Message]:
    """How long a request may be with a KV cache in 8 bits, where the longest is asked for.

    :param longest: tokens of the longest request with the cache as it is.
    """
    job, device = about.job, device_of(about.job)
    plain = job.get("serving.kv_dtype") in (None, "auto", "bf16", "fp16")
    if about.wanted != "length" or about.estimate.served is None or about.sides or not plain:
        return
    blocks = line_of(job.framework, "kv-q8_0") is not None
    if not blocks and (device is None or not device.can("fp8") or not has(job.framework, "serving.kv_dtype")):
        return
    if not (written := written_as(job.framework or "", "serving.kv_dtype", None)):
        return
    try:
        cached = about.stated.with_fields({"serving.kv_dtype": "q8_0" if blocks else "fp8"})
        found = largest_of(cached, careful=about.careful, wanted=FITS)
    except OomdocError:
        return
    length = found.get("serving.max_model_len")
    if length and length > longest:
        yield say("answer.cached-length", length=f"{length:,}", written=written)


def cache_alone(about: Plain) -> Iterator[Message]:
    """How large the KV cache of the requests is, where that alone is asked, of the run or of each that is compared."""
    if about.wanted == "cache" and about.sides:
        sized = [(side, side.priced.estimate.served) for side in about.sides if side.priced is not None]
        parts = [(side, served.needed_bytes) for side, served in sized if served is not None and served.length]
        if len(parts) == len(about.sides):
            shown = [say("answer.part", name=names_of(side.asked), size_bytes=size) for side, size in parts]
            yield say("answer.cache-sides", sides=shown)
            if "serving.kv_dtype" not in about.compared:
                several = "model" in about.compared
                for side, _ in parts if several else parts[:1]:
                    yield from _token_sum(names_of(side.asked) if several else model_of(about.job), side.priced)
        return
    served = about.estimate.served
    if about.wanted == "cache" and served is not None and served.length:
        tokens = served.at_once * served.length
        sizes = {
            "thousand_bytes": 1000 * served.needed_bytes / tokens,
            "cache_bytes": served.needed_bytes / served.at_once,
        }
        key = "answer.cache"
        if served.at_once > 1:
            key, sizes = "answer.cache-several", sizes | {"all_bytes": served.needed_bytes, "count": served.at_once}
        yield say(key, length=f"{served.length:,}", **sizes)
        yield from _token_sum(model_of(about.job), Priced(about.job, shape_of(about.job), None, about.estimate))


def _token_sum(name: Any, priced: Priced | None) -> Iterator[Message]:
    """What one token keeps in all layers, as a product, of a model whose layers all keep every token."""
    if priced is None or priced.shape.caching.windowed or not priced.shape.caching.whole:
        return
    d, layers = priced.shape.dims, priced.shape.caching.whole
    each = element_bytes(resolve_setting(priced.job, priced.shape), priced.job.get("serving.kv_dtype"))
    kib = f"{d.kv_elements_per_token * each * layers / KIB:.4g}"
    values = {"name": name, "layers": layers, "bytes": f"{each:.3g}", "kib": kib}
    if d.kv_lora_rank:
        yield say("answer.token-latent", rank=d.kv_lora_rank, rope=d.qk_rope_dim, heads=d.heads, **values)
    else:
        key = "answer.token-grouped" if d.kv_heads < d.heads else "answer.token-heads"
        yield say(key, kv_heads=d.kv_heads, head=d.head_dim, heads=d.heads, **values)


def launch_options(about: Plain) -> Iterator[Message]:
    """The options that an engine of the run is started with, where they are asked for and it fits."""
    framework = about.job.framework or ""
    if not about.asked.asks_launch or about.answer != "fits" or about.sides or framework not in ENGINES:
        return
    said = ((name, about.job.get(name)) for name in _OF_A_LAUNCH if name not in about.job.assumed)
    written = [written_as(framework, name, value) for name, value in said if value not in (None, 1, "none", "auto")]
    if options := [one for one in written if one]:
        yield say("answer.launch", options=" ".join(options))


_OF_A_LAUNCH: Final = (
    "quant",
    "tp",
    "pp",
    "serving.max_model_len",
    "serving.kv_dtype",
    "serving.gpu_memory_utilization",
)
