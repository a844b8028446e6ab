"""What the sizes in a sentence are of: a card's memory, the host's, what was used, asked for or free.

"64 GB of system RAM" is the host's, ``24G 显存`` the card's, "23.1GB/24GB used" both a share and a whole. The words
right before and behind a size tell; a size that nothing tells of is of nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.prose.stance import doubt
from oomdoc.intake.sieve import Expression

__all__ = ["DIGITS", "sizes_of"]

_I: Final = re.IGNORECASE | re.ASCII
_SIZE: Final = Expression(
    r"(?<![\w.])(?:(?P<count>\d{1,3}) ?[*x×] ?)?(?<![\d.])(?P<n>\d{1,6}(?:\.\d{1,3})?) ?(?:= ?\d{2,5} ?)?(?P<unit>[GM])"
    r"(?:i?Bs?|igs?|igabytes?|i)?(?: ?[*x×] ?(?P<times>\d{1,3})(?![\d.]| ?g))?(?![A-WY-Za-wyz0-9])",
    _I,
)
_MIB: Final = 1024.0
DIGITS: Final = frozenset("0123456789")
_HOST_BEHIND: Final = Expression(
    r"\+?\s{0,2}(?:of )?(?:(?:system|host|cpu|main|machine|physical|available|free|的|主机|系统|的?cpu)[ -]?){0,2}"
    r"(?:(?<!v)ram\b|内存|ddr\d?|swap|disk|硬盘|磁盘|ssd|nvme|shm|shared memory|host\b|cpu\b|file|checkpoint|ckpt"
    r"|data\b"
    r"|on disk|大小的)",
    _I,
)
_HOST_BEFORE: Final = Expression(
    r"(?:(?<![a-zA-Z])(?<!gpu )(?<!cuda )ram|(?<!显卡)内存|swap|disk|硬盘|磁盘|cpu(?: memory)?|host(?: memory)?"
    r"|shm\S{0,10}"
    r"|/dev/shm"
    r"|system memory|checkpoint|file size|container has|memory limit)[^\d,，;；。]{0,12}\Z",
    _I,
)
_CARD_BEHIND: Final = Expression(
    r"\+?[- \t]{0,2}(?:的 ?|of )?(?:(?:gpu|graphics|video) (?:v?ram|memory)|vram|显存|显卡|gpus?\b|cards?\b|v?npus?\b"
    r"|video|graphics"
    r"|(?:of )?unified|each|per (?:gpu|card|device)|单卡|[张块]?卡|slice|\((?:gpu|vram)\)|memory each"
    r"|(?:of )?memory (?:each|per))",
    _I,
)
_CARD_BEFORE: Final = Expression(
    r"(?:显存|vram|(?:gpu|cuda|video|graphics|card'?s?|max|unified) (?:v?ram|memory)|gpus?|npus?|cards?|显卡|单卡|单张"
    r"|[每单][张个]?卡?|单机单卡|每张)"
    r"(?:[ ,:：(（=]|have|has|having|had|with|of|each|is|are|was|only|just|about|around|having|大小|总共|一共|容量"
    r"|只有|有|是|为|的"
    r"|约|显存|memory)"
    r"{0,10}\Z",
    _I,
)
_USED_BEFORE: Final = Expression(
    r"(?:占用?|占用了|用了|使用(?!的显存)|需要|剩余|还剩|还有|可用|free|takes?|needs?|uses?|using|used|usage"
    r"|consumption|about|around"
    r"|at least|约|只需要?"
    r"|left|leaving|requires?|大概|consum\w{1,4}|达到|allocate[ds]?|分配|申请|peak\w{0,3}|up to|到|至|reserved?"
    r"|more than"
    r"|less than"
    r"|goes|went|climb\w{0,3}|rises?|rose|jump\w{0,3}|to)[^\d。.]{0,9}\Z",
    _I,
)
_USED_BEHIND: Final = Expression(
    r"\s?(?:(?:of |gpu |is |are |was |memory |vram |显存|的){0,3}(?:used|free|left|in use|usage|占用|剩余|available"
    r"|remaining|allocated|reserved)"
    r"|的?占用|左右的?显存占用)",
    _I,
)
_OF_WHOLE: Final = Expression(
    r"(?<![\w.])(?P<part>\d{1,6}(?:\.\d{1,3})?) ?(?P<small>[gm]?)(?:i?b)?(?P<what> (?:free|used|left))? ?"
    r"(?:/|／|of|out of|free of|used of)(?: the)? ?(?P<whole>\d{1,6}(?:\.\d{1,3})?) ?(?P<unit>[gm])(?:i?b)?(?![a-z])"
    r"(?P<used>(?: is| are| was)? ?(?:used|in use))?(?P<host> ?(?:of )?(?:system |host |cpu )?(?:ram\b|host|system"
    r"|内存|disk))?",
    _I,
)
"""A share and its whole: ``23.1GB/24GB used``, ``300MB free out of 24GB``."""
_ABOUT_MEMORY: Final = Expression(r"显存|gpu|vram|nvidia-smi|cuda|free|used|left|memory|占用", _I)
_OWNED: Final = Expression(r"\b(?:I|we) (?:only )?(?:have|got|own) (?:an? |only )?\Z", _I)
_TOUCHES: Final = Expression(
    r"['’]?s?[\s\-(（,，/_:：]{0,3}(?:(?:gpus?|显卡|单卡|卡|with|each|every one|per card|每[张卡]|的|显存|vram|(?:only "
    r"|just )?has|of|a|about|约|有|是|为|are|is|with) ?){0,3}[(（]?\Z",
    _I,
)
_TIED: Final = Expression(
    r"[\s\-]{0,2}(?:的|显存|(?:of )?(?:vram|memory) on (?:my |the |an? |our )|on (?:my |the |an? |our )|single "
    r"|nvidia |tesla |geforce |英伟达){0,3}\Z",
    _I,
)
_FREE: Final = r" ?(?:is |was |of )?(?:\w+ )?(?:gpu |vram )?(?:memory )?free\b"
_TOLD: Final[tuple[tuple[str, Expression, Expression], ...]] = tuple(
    (name, Expression(before, _I), Expression(behind, _I))
    for name, before, behind in (
        ("tried_gib", r"(?:to allocate|尝试分配|申请)(?: about| around| another)?(?: an?)? ?\Z", ""),
        ("reserved_unallocated_gib", r"reserved but unallocated:? ?\Z", ""),
        (
            "reserved_unallocated_gib",
            "",
            r" ?(?:\w+ )?reserved (?:by PyTorch )?but (?:is )?(?:un|not )(?:allocated|used)",
        ),
        ("allocated_gib", r"pytorch allocated:? ?\Z", ""),
        ("allocated_gib", "", r" ?is allocated by PyTorch"),
        ("free_gib", r"\b(?:only|just|with) (?:\w+ )?\Z", _FREE),
        ("free_gib", r"(?:gpu|vram|card|rank|total,)(?:[^.。]|\.(?=\d)){0,40}\Z", _FREE),
        ("free_gib", r"(?:only|just) \Z", r" ?(?:is |was |of )?(?:gpu |vram )?(?:memory )?left"),
        ("free_gib", r"(?:还剩|剩余|仅剩) ?\Z", r" ?(?:$|[，。]|显存)"),
        ("process_gib", r"(?:gpu|vram|显存|free,)(?:[^.。]|\.(?=\d)){0,60}\Z", r" ?(?:is )?in use\b"),
        (
            "process_gib",
            r"(?:gpu|vram|memory|显存)(?: memory)?(?: usage| use| consumption|占用)? (?:goes|went|climb(?:s|ed)"
            r"|rises|rose"
            r"|jump(?:s|ed)|shoots|spike[sd]|up|上升|涨|飙升){1,2} ?(?:up )?(?:to|到|至) ?(?:about |around |over )?\Z",
            "",
        ),
        ("capacity_gib", r"\bgpu has (?:an? )?(?:total )?\Z", r" ?(?:total|,)"),
    )
)
"""Amounts that sentences tell as logs do: the words before and behind."""


def sizes_of(line: Line, cards: Sequence[tuple[int, int]]) -> Iterator[Fact]:
    """Facts in GiB of the sizes in a line; ``cards`` are the places of the names of cards."""
    text = line.text
    if DIGITS.isdisjoint(text) or ("g" not in line.low and "mi" not in line.low):
        return
    shared: set[int] = set()
    for found in _OF_WHOLE.finditer(text):
        shared.update((found.start("part"), found.start("whole")))
        yield from _share(line, found)
    for found in _SIZE.finditer(text):
        if found.start("n") in shared:
            continue
        gib = float(found["n"]) / (_MIB if found["unit"] in "mM" else 1.0)
        start, end = found.start("n"), found.end("unit")
        while end < found.end() and text[end : end + 1].isalpha():
            end += 1
        before, behind = text[max(0, start - 44) : start], text[max(end, found.end()) :][:40]
        span = line.span(start + 1)
        told = next((name for name, a, b in _TOLD if a.search(before) and b.match(behind)), None)
        if told is not None and not _HOST_BEFORE.search(before):
            yield Fact(told, gib, span, "prose", 0.6 if told != "reserved_unallocated_gib" else 0.8)
            continue
        inside = any(s <= start and end <= e for s, e in cards)
        if found["count"] and found["unit"] in "gG" and not inside and not _HOST_BEHIND.match(behind):
            sure = 0.7
        else:
            sure = 0.85 if inside else _capacity(text, start, end, before, behind, cards)
        if not sure or not 2 <= gib <= 300 or (found["unit"] in "mM" and gib < 4):
            continue
        minus = 1.5 * doubt(text, start, end)
        sure = max(0.5 if minus < 0.8 else 0.2, sure - minus)
        yield Fact("capacity_gib", gib, span, "prose", sure)
        several = found["count"] or found["times"]
        if several and not inside and 1 <= int(several) <= 20000:
            yield Fact("gpu_count", int(several), span, "prose", 0.75)


def _share(line: Line, found: re.Match[str]) -> Iterator[Fact]:
    gib = float(found["whole"]) / (_MIB if found["unit"] in "mM" else 1.0)
    part = float(found["part"]) / (_MIB if (found["small"] or found["unit"]) in "mM" else 1.0)
    around = line.text[max(0, found.start() - 40) : found.end() + 24]
    if found["host"] or _HOST_BEFORE.search(line.text[max(0, found.start() - 24) : found.start()]):
        return
    if not 2 <= gib <= 300 or part > gib or not _ABOUT_MEMORY.search(around):
        return
    yield Fact("capacity_gib", gib, line.span(found.start() + 1), "prose", 0.66)
    if found["used"]:
        yield Fact("process_gib", part, line.span(found.start() + 1), "prose", 0.7)


def _capacity(text: str, start: int, end: int, before: str, behind: str, cards: Sequence[tuple[int, int]]) -> float:
    """How sure a size is a card's memory; 0.0: it is something else."""
    if _USED_BEHIND.match(behind):
        return 0.0
    if (_HOST_BEHIND.match(behind) and not _CARD_BEHIND.match(behind)) or _HOST_BEFORE.search(before):
        near = (
            any(0 <= start - e <= 2 for _, e in cards)
            and before[-1:] in "(（,，"
            and not re.match(r"[^)）]{0,6}[a-z]* ?(?:system|host|cpu)", behind, _I)
        )
        return 0.7 if near and before[-1:] in "(（" else 0.0
    touching = any(
        (0 <= start - e <= 30 and _TOUCHES.match(text[e:start])) or (0 <= s - end <= 24 and _TIED.match(text[end:s]))
        for s, e in cards
    )
    if touching:
        return 0.85
    if _USED_BEFORE.search(before):
        return 0.0
    if _CARD_BEHIND.match(behind):
        return 0.78
    if _CARD_BEFORE.search(before):
        return 0.75
    return 0.7 if _OWNED.search(before) else 0.0
