"""Tables of memory that programs print on request: what they say, where nothing failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.evidence import Evidence, Message, say


def read_tables(evidence: Evidence) -> Iterator[Message]:
    """What the printed tables say: PyTorch's allocator, DeepSpeed's estimate, ``ollama ps``."""
    yield from _allocator(evidence)
    yield from _estimate(evidence)
    yield from _placement(evidence)


def shown_use(evidence: Evidence) -> Iterator[Message]:
    """What a run that goes on or has ended is shown to hold: cards in ``nvidia-smi``, printed peaks, its last step."""
    yield from _finished(evidence)
    yield from _cards(evidence)


def _finished(evidence: Evidence) -> Iterator[Message]:
    done = [s.data for s in evidence.find("progress") if s.data.get("share") == 100 and s.data.get("of")]
    if done:
        yield say("table.finished", step=done[-1]["step"], of=done[-1]["of"])
    for kind in ("reserved", "allocated"):
        sizes = [s.data.get(f"{kind}_bytes", 0) for s in evidence.find("memory-printed") if s.data.get("peak")]
        if any(sizes):
            yield say(f"table.peak-{kind}", size_bytes=max(sizes))


def _cards(evidence: Evidence) -> Iterator[Message]:
    shown = [s.data for s in evidence.find("nvidia-smi-memory") if s.data["total_bytes"]]
    named = [s.data["index"] for s in evidence.find("nvidia-smi-gpu")]
    cards = dict(zip(named if len(named) == len(shown) else range(len(shown)), shown, strict=True))
    if not cards:
        return
    fullest = max(cards.values(), key=lambda data: data["used_bytes"] / data["total_bytes"])
    free = fullest["total_bytes"] - fullest["used_bytes"]
    yield say(
        "table.cards", cards=[say("table.card", index=index, **data) for index, data in cards.items()][:_MAX_CARDS]
    )
    full = free < _NEARLY_FULL * fullest["total_bytes"]
    yield say("table.cards-full" if full else "table.cards-room", free_bytes=free)


_MAX_CARDS: Final = 8
_NEARLY_FULL: Final = 0.08
"""Share of a card below which what is free is little."""


def _allocator(evidence: Evidence) -> Iterator[Message]:
    held = {name: size for s in evidence.find("memory-summary") for name, size in s.data.items()}
    counted = next(evidence.find("memory-summary-retries"), None)
    if counted is None or "allocated_bytes" not in held or "reserved_bytes" not in held:
        return
    now, peak, reserved = held["allocated_bytes"], held["allocated_peak_bytes"], held["reserved_bytes"]
    sizes = {"now_bytes": now, "peak_bytes": peak, "reserved_bytes": reserved}
    yield say("table.memory-summary", ooms=counted.data["ooms"], **sizes)
    yield say("table.memory-summary-cached", unused_bytes=reserved - now, spare_bytes=max(0, reserved - peak))


def _estimate(evidence: Evidence) -> Iterator[Message]:
    rows: dict[str, Message] = {}
    for signal in evidence.find("deepspeed-estimate-row"):
        kinds = [signal.data.get(kind) == "cpu" for kind in ("param", "optimizer")]
        name = "both" if all(kinds) else "optimizer" if any(kinds) else "none"
        sizes = {n: signal.data[n] for n in ("device_bytes", "host_bytes")}
        rows.setdefault(name, say(f"table.deepspeed-{name}", **sizes))
    if rows:
        yield say("table.deepspeed-estimate")
        yield say("table.deepspeed-estimate-rows", rows=[rows[n] for n in ("none", "optimizer", "both") if n in rows])


def _placement(evidence: Evidence) -> Iterator[Message]:
    for signal in evidence.find("ollama-placement"):
        model, size, share = (signal.data[name] for name in ("model", "size_bytes", "share"))
        cpu = signal.data.get("cpu")
        if cpu is None:
            yield say(
                "table.ollama-cpu" if signal.data["where"] == "CPU" else "table.ollama-gpu",
                model=model,
                size_bytes=size,
            )
            continue
        sizes = {"size_bytes": size, "gpu_bytes": size * share / 100}
        yield say("table.ollama-split", cpu=cpu, gpu=share, model=model, **sizes)
        yield say("table.ollama-split-next")
