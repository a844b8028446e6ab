"""What a run prints of itself: how many processes, which batch, which optimizer step, how much memory at a step.

Sources: transformers ``trainer.py`` (the banner before training), accelerate ``state.py`` (``Num processes``),
DeepSpeed ``stage_1_and_2.py`` and ``stage3.py`` (``Creating ... ZeRO stage N optimizer``), torchrun's ``[rankN]``
prefix, ms-swift's, torchtitan's and mlx-lm's step lines, Slurm's ``--mem``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final

from oomdoc.evidence import Fact, Outcome, Signal, Source, Span
from oomdoc.intake.lines import Line, read_lines
from oomdoc.intake.measured import LONG, SIZED, measured
from oomdoc.intake.numbers import to_bytes, to_tokens
from oomdoc.intake.patterns import patterns
from oomdoc.intake.quantities import quantities_in
from oomdoc.intake.quantities.numbered import NumberedText
from oomdoc.intake.sieve import Vocabulary, candidates, found_in

_RE: Final = patterns(__file__)
_STEPS: Final = (("_fused_", "fused"), ("_single_tensor", "single"), ("", "foreach"))
_RESERVED: Final = frozenset({"swift", "titan", "unsloth"})
"""What ms-swift, torchtitan and Unsloth's notebooks print is what the allocator holds."""
_PEAKS: Final = frozenset({*_RESERVED, "verl", "mlx"})
_DECIMAL: Final = frozenset({"mlx"})
"""What mlx-lm's trainer prints is in units of 1e9 bytes (``mx.get_peak_memory() / 1e9``)."""
_GIB: Final = 1 << 30
_GB: Final = 10**9
_MAX_POINTS: Final = 64
_MIB_FROM, _KIB_FROM = 4e3, 4e6
"""What ``free`` prints from these on are MiB (``-m``) and KiB, not GiB: no machine has so many of the larger unit."""
_CERTAIN, _LIKELY, _AT_LEAST = 0.9, 0.8, 0.45
_SURER: Final = 0.95
"""Confidence of a number that is told apart from another of its kind."""


def run_facts(lines: Sequence[Line], words: Vocabulary) -> Iterator[Fact]:
    """Facts of the run itself, surest first."""
    yield from _batches(lines, words)
    yield from _processes(lines, words)
    yield from _ranks(lines, words)
    for line, found in islice(found_in(_RE["zero"], lines, words), 1):
        yield Fact("zero_stage", int(found["n"]), line.span(found.start() + 1), "log", _CERTAIN)
    for line, found in islice(found_in(_RE["step"], lines, words), 1):
        name = next(value for word, value in _STEPS if word in found[0])
        yield Fact("optimizer_impl", name, line.span(found.start() + 1), "log", _CERTAIN)
    yield from _host(lines, words)


def length_of_samples(facts: Mapping[str, Fact], signals: Sequence[Signal]) -> dict[str, Fact]:
    """The longest sample that a trainer printed, in place of a limit that none of them reaches."""
    printed = next((s for s in signals if s.name == "sample-lengths"), None)
    limit = facts.get("seq_len")
    if printed is None or ((packs := facts.get("packing")) is not None and packs.value):
        return {}
    longest = printed.data["longest"]
    if longest < 1 or (limit is not None and (limit.origin == "option" or limit.value <= longest)):
        return {}
    return {"seq_len": Fact("seq_len", longest, printed.span, "log", _CERTAIN)}


def host_in(text: str) -> float | None:
    """GiB of host memory that a short text states."""
    lines = list(read_lines(Source("text", text)))
    return next((fact.value for fact in _host(lines, Vocabulary(line.low for line in lines))), None)


_LIMITS: Final = frozenset({"option", "container", "flow", "limit", "limited", "request", "seff", "cgroup", "limit_zh"})
"""What a process may use, whatever the machine has."""


def _host(lines: Sequence[Line], words: Vocabulary) -> Iterator[Fact]:
    """Host memory: the largest limit where one is set (a container requests less than its limit), else what is said."""
    sized = [
        (found.lastgroup in _LIMITS, _host_gib(found), line.span(found.start() + 1))
        for line in candidates(_RE["host"], lines, words)
        for found in _RE["host"].finditer(line.raw)
    ]
    limits = [size for size in sized if size[0]]
    if sized:
        _, gib, span = max(limits, key=lambda size: size[1]) if limits else sized[0]
        yield Fact("host_gib", gib, span, "prose", _LIKELY)
    else:
        yield from _host_by_share(lines, words)


def _host_by_share(lines: Sequence[Line], words: Vocabulary) -> Iterator[Fact]:
    """All of the machine's memory, from what DeepSpeed prints as used and as its share (``runtime/utils.py``, GiB)."""
    shown = [
        (float(found["percent"]), float(found["used"]), line) for line, found in found_in(_RE["share"], lines, words)
    ]
    percent, used, line = max(shown, key=lambda one: one[0], default=(0.0, 0.0, None))
    if percent > 0 and line is not None:
        yield Fact("host_gib", round(100 * used / percent), line.span(), "log", _LIKELY)


def _host_gib(found: re.Match[str]) -> float:
    """GiB of a stated size; ``free`` prints a bare number in the unit that it was asked for."""
    number, unit = _parted(next(v for v in found.groupdict().values() if v))
    bare = "K" if float(number) >= _KIB_FROM else "M" if float(number) >= _MIB_FROM else "G"
    return to_bytes(number, unit or bare) / _GIB


def _processes(lines: Sequence[Line], words: Vocabulary) -> Iterator[Fact]:
    """All processes, where they are counted. What a launcher starts on one machine is read with its command."""
    for line, found in found_in(_RE["processes"], lines, words):
        if 0 < int(found["n"]) <= 65536:
            yield Fact("world", int(found["n"]), line.span(found.start() + 1), "log", _LIKELY)
            return


def _batches(lines: Sequence[Line], words: Vocabulary) -> Iterator[Fact]:
    """The banner's batches; the total over the other two is the number of processes."""
    sizes: dict[str, int] = {}
    for line, found in found_in(_RE["banner"], lines, words):
        name = "micro" if found["micro"] else "accum" if found["accum"] else "total"
        size = int(found["a"] or found["b"] or found["c"])
        if size <= 0 or name in sizes:
            continue
        sizes[name] = size
        if name != "total":
            yield Fact({"micro": "micro_batch", "accum": "grad_accum"}[name], size, line.span(), "log", _CERTAIN)
        if len(sizes) == 3:
            ranks, rest = divmod(sizes["total"], sizes["micro"] * sizes["accum"])
            if rest == 0 and ranks > 0:
                yield Fact("world", ranks, line.span(), "log", _CERTAIN)


def _ranks(lines: Sequence[Line], words: Vocabulary) -> Iterator[Fact]:
    """As many processes as the highest rank that speaks needs, in the usual sizes of a machine."""
    highest, place = 0, None
    for line, found in found_in(_RE["rank"], lines, words):
        if int(found["n"]) > highest:
            highest, place = int(found["n"]), line.span(found.start() + 1)
    if place is not None and highest < 4096:
        yield Fact("world", 1 << highest.bit_length(), place, "log", _AT_LEAST)


def figures_of(
    lines: Sequence[Line],
    said: Sequence[Line],
    spoken: Sequence[Line],
    words: Vocabulary,
    outcome: Outcome | None,
    *,
    failed: bool,
) -> tuple[list[Signal], list[Fact]]:
    """What a run printed or a person saw it hold, and at which size it went well; the size at which it fails.

    :param said: lines of prose; ``spoken``: these and lines like ``batch=1: 21.4 GiB``.
    """
    held_at = ([] if failed else list(pools(lines))) or list(measured(spoken, words))
    compared = [one for one in contrasts(said, words) if one[1] is not None or not held_at]
    signals = [*printed_memory(lines, words), *managers(lines, words), *(signal for signal, _ in compared), *held_at]
    signals += in_use(said, words) if not failed and not held_at else ()
    return signals, [
        *(fact for _, fact in compared if fact is not None),
        *_failing_cards(held_at, outcome),
    ]


def _failing_cards(held_at: Sequence[Signal], outcome: Outcome | None) -> Iterator[Fact]:
    """How many cards a run fails on that went well on others."""
    failed = outcome is not None and outcome.tells_of_shortage
    well = {s.data["value"] for s in held_at if s.name == "held-at" and s.data.get("field") == "cards"}
    others = [s for s in held_at if s.name == "size-beside" and s.data.get("field") == "cards"]
    if failed and well and len({s.data["value"] for s in others}) == 1:
        yield Fact("gpu_count", others[0].data["value"], others[0].span, "prose", _SURER)


def pools(spoken: Sequence[Line]) -> Iterator[Signal]:
    """``pools``: what tensors, PyTorch's allocator and nvidia-smi show of one process, where at least two are told.

    ``cards_bytes`` are the sizes beside them: of the card that there is, of another that is asked about.
    """
    sizes: dict[str, int] = {}
    others: list[int] = []
    place: Span | None = None
    for line in spoken[:_MAX_POINTS]:
        text, taken = line.raw[:LONG], set[int]()
        for name, pattern in _RE.group("pool").items():
            for found in pattern.finditer(text):
                group = "a" if found["a"] else "b"
                size = to_bytes(*_parted(found[group]))
                sizes[name] = max(size, sizes.get(name, 0))
                taken.add(found.start(group))
                place = place or line.span(found.start() + 1)
        others += [to_bytes(*_parted(one[0])) for one in _RE["card_size"].finditer(text) if one.start() not in taken]
    ordered = [sizes[name] for name in ("allocated", "reserved", "shown") if name in sizes]
    if place is not None and len(ordered) > 1 and ordered == sorted(ordered):
        data = {**{f"{name}_bytes": size for name, size in sizes.items()}, "cards_bytes": tuple(others)}
        yield Signal("pools", place, MappingProxyType(data))


def _parted(written: str) -> tuple[str, str]:
    """Number and unit of ``52 GB``."""
    return written.rstrip("TtGgMmKkIiBbSs "), written.lstrip("0123456789. ")


def printed_memory(lines: Sequence[Line], words: Vocabulary) -> list[Signal]:
    """``memory-printed``: what a run says it held at a step, in bytes; the largest of each kind."""
    largest: dict[str, Signal] = {}
    for line, found in islice(found_in(_RE["printed"], lines, words), _MAX_POINTS):
        kind, text = next((name, value) for name, value in found.groupdict().items() if value)
        figure = "reserved_bytes" if kind in _RESERVED else "allocated_bytes"
        size = round(float(text) * (_GB if kind in _DECIMAL else _GIB))
        if figure not in largest or size > largest[figure].data[figure]:
            data = MappingProxyType({figure: size, "peak": kind in _PEAKS})
            largest[figure] = Signal("memory-printed", line.span(found.start() + 1), data)
    return list(largest.values())


def managers(lines: Sequence[Line], words: Vocabulary) -> Iterator[Signal]:
    """``<name>-named``: who gives the job its host memory, Slurm, Kubernetes or a container, where it is in sight."""
    named: set[str] = set()
    for line in candidates(_RE["manager"], lines, words):
        for found in _RE["manager"].finditer(line.raw[:LONG]):
            name = str(found.lastgroup)
            if name not in named:
                named.add(name)
                yield Signal(f"{name}-named", line.span(found.start() + 1))


def contrasts(lines: Sequence[Line], words: Vocabulary) -> Iterator[tuple[Signal, Fact | None]]:
    """``worked-at``: a size at which the same run went well; with it, as a fact, the size at which it fails."""
    for line in list(candidates(SIZED, lines, words))[:_MAX_CONTRASTS]:
        found = _contrast(line.raw)
        if found is None:
            continue
        field, at, works, fails, shown = found
        data: dict[str, object] = {"field": field, "value": works}
        if shown is not None:
            data["shown_bytes"] = round(shown * _GIB)
        place = line.span(at + 1)
        fact = Fact(field, fails, place, "prose", _CERTAIN) if fails is not None else None
        yield Signal("worked-at", place, MappingProxyType(data)), fact


def _contrast(text: str) -> tuple[str, int, int, int | None, float | None] | None:
    """Field, place, the size that works, the one that fails, and the GiB that were shown at the first."""
    field, at = "", 0
    sizes: dict[bool, int] = {}
    shown: float | None = None
    start = 0
    for end in (*(m.span() for m in _RE["clause"].finditer(text)), (len(text), len(text))):
        clause, begin, start = text[start : end[0]], start, end[1]
        if text[end[0] : end[1]].strip() in ("?", "？") or _RE["asks"].search(clause):
            continue  # whether it would is asked
        sized = SIZED.search(clause)
        bare = _RE["bare"].search(clause.strip()) if field and sized is None else None
        stated = sized or bare
        number = to_tokens(stated["n"]) if stated is not None else None
        good = None if not (fails := _RE["fails"].search(clause)) and not _RE["works"].search(clause) else fails is None
        if good is None or number is None or good in sizes:
            continue
        if sized is not None:
            named = "micro_batch" if sized["xb"] else "seq_len"
            if field and named != field:
                continue
            field = named
        if good and (seen := _RE["shown"].search(clause)) is not None:
            shown = float(seen["n"])
        at = begin if good else at
        sizes[good] = number
    if True not in sizes:
        return None
    fails_at = sizes.get(False)
    return field, at, sizes[True], fails_at if fails_at != sizes[True] else None, shown


def in_use(lines: Sequence[Line], words: Vocabulary) -> Iterator[Signal]:
    """``in-use``: what a person sees a running job hold on a card; nothing where several figures are told."""
    if next(candidates(_RE["memory"], lines, words), None) is None:
        return
    text = "\n".join(line.raw[:LONG] for line in lines)
    seen = NumberedText(lines, text, quantities_in(text))
    used = [q for q in seen.numbers if q.role == "used_memory" and q.probability >= _MIN_SURE_OF_USE]
    if len({q.value for q in used}) == 1 and used[0].value >= _MIN_IN_USE_GIB:
        yield seen.signal("in-use", used[0], shown_bytes=round(used[0].value * _GIB))


_MIN_SURE_OF_USE: Final = 0.6
"""Probability of its role from which a number is what a run holds."""
_MIN_IN_USE_GIB: Final = 0.5
"""What a model on a card holds at least."""


_MAX_CONTRASTS: Final = 4
