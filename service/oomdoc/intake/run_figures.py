"""What a run prints of itself: how many processes, which batch, which optimizer step, how much memory at a step.

Sources: transformers ``trainer.py`` (the banner before training), accelerate ``state.py`` (``Num processes``),
DeepSpeed ``stage_1_and_2.py`` and ``stage3.py`` (``Creating ... ZeRO stage N optimizer``), torchrun's ``[rankN]``
prefix, ms-swift's and torchtitan's step lines, Slurm's ``--mem``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Final

from oomdoc.evidence import Fact, Signal
from oomdoc.intake.lines import Line
from oomdoc.intake.sieve import Expression, Vocabulary, candidates

__all__ = ["contrasts", "printed_memory", "run_facts"]

_I: Final = re.IGNORECASE | re.ASCII
_BANNER: Final = Expression(
    r"(?P<micro>Instantaneous batch size per device) {0,2}[=:] {0,2}(?P<a>\d{1,5})"
    r"|(?P<accum>Gradient Accumulation steps) {0,2}[=:] {0,2}(?P<b>\d{1,6})"
    r"|(?P<total>Total train batch size)[^=\n]{0,60}= {0,2}(?P<c>\d{1,7})",
    _I,
)
_PROCESSES: Final = Expression(
    r"(?:\bworld[ _]size|\bnum(?:ber of)?[ _]processes|\bnproc[-_]per[-_]node)[\"']?(?: is| of)? {0,2}[=:]?"
    r" {0,2}(?P<n>\d{1,5})\b",
    _I,
)
_RANK: Final = Expression(r"(?:\[rank|\blocal[_ ]rank[\"']?[:= ]{1,3}|\[Rank )(?P<n>\d{1,4})(?![\d.])", _I)
_ZERO: Final = Expression(r"Creating \S{1,24} ZeRO stage (?P<n>[123]) optimizer", _I)
_STEP: Final = Expression(r"_multi_tensor_(?:adam|sgd|lion)|torch\._foreach_|_(?:fused|single_tensor)_adam", _I)
_STEPS: Final = (("_fused_", "fused"), ("_single_tensor", "single"), ("", "foreach"))
_HOST: Final = Expression(
    r"(?:^|\s)--mem[= ](?P<slurm>\d{1,6}) ?G\b"
    r"|(?P<said>\d{1,5}(?:\.\d)?) ?(?:GB|GiB|G)\b (?:of )?(?:system |host |cpu |main |machine )?"
    r"(?:RAM\b|host memory|system memory)"
    r"|(?:system|host|cpu) (?:RAM|memory)[: =]{1,3}(?P<named>\d{1,5}) ?(?:GB|GiB|G)\b"
    r"|(?P<zh>\d{1,5}) ?(?:GB|GiB|G) ?(?:的)?(?:系统|主机|物理)?内存"
    r"|(?:服务器|主机|系统|机器|物理)内存[ ：:为是有只]{0,4}(?P<stated_zh>\d{1,5}) ?(?:GB|GiB|G)"
    r"|^ {0,40}memory: {1,20}(?P<container>\d{1,5})Gi\b",
    _I,
)
_PRINTED: Final = Expression(
    r"(?P<at>\d{1,4}(?:\.\d{1,3})?) ?(?:GiB|GB)\b (?:is |was |were )?allocated (?:at|after|on|by) (?:step|iter)"
    r"|\bstep:? ?\d{1,8}[^\n]{0,80}?(?P<after>\d{1,4}(?:\.\d{1,3})?) ?(?:GiB|GB) allocated"
    r"|memory\(GiB\)[\"']?: ?(?P<swift>\d{1,4}(?:\.\d{1,3})?)"
    r"|\bmemory: {1,2}(?P<titan>\d{1,4}(?:\.\d{1,3})?)GiB\("
    r"|max_memory_allocated_gb:(?P<verl>\d{1,4}(?:\.\d{1,3})?)",
    _I,
)
_RESERVED: Final = frozenset({"swift", "titan"})
"""What ms-swift and torchtitan print is what the allocator holds."""
_GIB: Final = 1 << 30
_MOST_POINTS: Final = 64
_SIZE: Final = (
    r"(?P<{0}b>(?:micro[- ]?|per[- ]device )?batch(?:[ _-]?size)?|\bbs|per_device_train_batch_size)"
    r"|(?P<{0}l>seq(?:uence)?(?:[ _-]?len(?:gth)?)?|max_(?:seq_)?length|cutoff_len|(?:context )?length|长度|序列)"
)
_NUMBER: Final = r" ?(?:size |of |at |= ?|: ?|is |to |为|是)?(?P<{0}>\d{{1,6}}(?:,\d{{3}})?k?)(?!\w|\.\d)"
_WORKS: Final = (
    r"works?|worked|runs? (?:fine|ok|well)|ran (?:fine|ok)|fits?|is (?:fine|ok)|trains (?:fine|ok)|no (?:problem|oom)"
)
_WORKS_ZH: Final = r"可以|能跑|没问题|正常|不会?爆"
_FAILS: Final = r"fails?|failed|ooms?|crash(?:es|ed)?|dies|runs? out|does ?n[o']t (?:fit|work)|爆|不行|就崩|失败"
_CONTRAST: Final = Expression(
    rf"(?:{_WORKS})[^.;\n\d]{{0,20}}?(?:{_SIZE.format('x')}){_NUMBER.format('n')}"
    rf"|(?:{_SIZE.format('y')}){_NUMBER.format('m')}[^.;\n\d]{{0,10}}?(?:{_WORKS}|{_WORKS_ZH})",
    _I,
)
_FAILED_AT: Final = Expression(
    rf"(?:{_FAILS})[^.;\n\d]{{0,20}}?(?:{_SIZE.format('x')}|\b(?:at|with)\b){_NUMBER.format('n')}"
    rf"|(?:{_SIZE.format('y')})?{_NUMBER.format('m')}[^.;\n\d]{{0,6}}?(?:{_FAILS})",
    _I,
)
_CERTAIN, _LIKELY, _AT_LEAST = 0.9, 0.8, 0.45


def run_facts(lines: Sequence[Line], words: Vocabulary) -> Iterator[Fact]:
    """Facts of the run itself, surest first."""
    yield from _batches(lines, words)
    for line in candidates(_PROCESSES, lines, words):
        if (found := _PROCESSES.search(line.raw)) is not None and 0 < int(found["n"]) <= 65536:
            yield Fact("world", int(found["n"]), line.span(found.start() + 1), "log", _LIKELY)
            break
    yield from _ranks(lines, words)
    for line in candidates(_ZERO, lines, words):
        if (found := _ZERO.search(line.raw)) is not None:
            yield Fact("zero_stage", int(found["n"]), line.span(found.start() + 1), "log", _CERTAIN)
            break
    for line in candidates(_STEP, lines, words):
        if (found := _STEP.search(line.raw)) is not None:
            name = next(value for word, value in _STEPS if word in found[0])
            yield Fact("optimizer_impl", name, line.span(found.start() + 1), "log", _CERTAIN)
            break
    for line in candidates(_HOST, lines, words):
        if (found := _HOST.search(line.raw)) is not None:
            size = next(v for v in found.groupdict().values() if v)
            yield Fact("host_gib", float(size), line.span(found.start() + 1), "prose", _LIKELY)
            break


def _batches(lines: Sequence[Line], words: Vocabulary) -> Iterator[Fact]:
    """The banner's batches; the total over the other two is the number of processes."""
    sizes: dict[str, int] = {}
    for line in candidates(_BANNER, lines, words):
        found = _BANNER.search(line.raw)
        if found is None:
            continue
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
    for line in candidates(_RANK, lines, words):
        found = _RANK.search(line.raw)
        if found is not None and int(found["n"]) > highest:
            highest, place = int(found["n"]), line.span(found.start() + 1)
    if place is not None and highest < 4096:
        yield Fact("world", 1 << highest.bit_length(), place, "log", _AT_LEAST)


def printed_memory(lines: Sequence[Line], words: Vocabulary) -> list[Signal]:
    """``memory-printed``: what a run says it held at a step, in bytes; the largest of each kind."""
    largest: dict[str, Signal] = {}
    for line in list(candidates(_PRINTED, lines, words))[:_MOST_POINTS]:
        found = _PRINTED.search(line.raw)
        if found is None:
            continue
        kind, text = next((name, value) for name, value in found.groupdict().items() if value)
        figure = "reserved_bytes" if kind in _RESERVED else "allocated_bytes"
        size = round(float(text) * _GIB)
        if figure not in largest or size > largest[figure].data[figure]:
            peak = kind in ("swift", "titan", "verl")
            data = MappingProxyType({figure: size, "peak": peak})
            largest[figure] = Signal("memory-printed", line.span(found.start() + 1), data)
    return list(largest.values())


def contrasts(lines: Sequence[Line], words: Vocabulary) -> list[Signal]:
    """``worked-at``: a size at which the same run went well, said beside the one at which it fails."""
    found: list[Signal] = []
    for line in candidates(_CONTRAST, lines, words):
        works = _CONTRAST.search(line.raw)
        fails = _FAILED_AT.search(line.raw[works.end() :]) if works is not None else None
        if works is None:
            continue
        field = "micro_batch" if works["xb"] or works["yb"] else "seq_len"
        data: dict[str, object] = {"field": field, "value": _count(works["n"] or works["m"])}
        if fails is not None:
            data["failed"] = _count(fails["n"] or fails["m"])
        found.append(Signal("worked-at", line.span(works.start() + 1), MappingProxyType(data)))
    return found[:_MOST_CONTRASTS]


_MOST_CONTRASTS: Final = 4


def _count(text: str) -> int:
    plain = text.replace(",", "").lower()
    return int(plain[:-1]) * 1024 if plain.endswith("k") else int(plain)
