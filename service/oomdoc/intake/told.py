"""Failures that are only told: "it OOMs", "爆显存", "the machine ran out of RAM". Used where no message was pasted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from oomdoc.evidence import Failure, Signal
from oomdoc.intake.lines import Line
from oomdoc.intake.sieve import Expression

__all__ = ["told_failures"]

_I: Final = re.IGNORECASE | re.ASCII
_HOST: Final = Expression(
    r"(?:host|cpu|system|node)[ -]?(?:ram|memory)[^.\n]{0,40}(?:oom"
    r"|out of|exhaust|full|runs? out|explod)|\bRAM OOM|\b(?:CPU|system|host|ray) OOM\b|cpu oom"
    r"|(?:runs?|ran|running) out of (?:system |host |cpu )?RAM|oom[- ]?killer"
    r"|爆的是内存|爆内存|(?<!显)内存(?:爆|不足|不够|溢出|超出|会一直增长|泄[漏露]|OOM)|(?<!显)内存[^。，\n]{0,12}(?:爆|不够|用光|耗尽"
    r"|oom)|\bRAM\b[^.\n]{0,30}(?:is )?(?:full|exhausted|explodes)|(?:all|whole|entire)(?: of)?(?: the)? available RAM"
    r"|(?:can't|cannot|could not|unable to) allocate (?:host |cpu )?memory|ArrayMemoryError"
    r"|\b(?:gets?|got|getting|is|was|were|being|been|process) killed\b"
    r"|\bkilled (?:around|during|while|at|when|in|after|for)\b"
    r"|(?<=[\w)] )killed(?=\s{0,3}(?:[,.;，。]|\Z))|[,，] ?killed(?=[,.;，。]|\s{0,3}\Z)"
    r"|(?:exits?|exited)(?: with)?(?: code)? 137\b"
    r"|被(?:系统)?(?:杀|[kK]ill)|(?:把|将)进程(?:就)?杀|进程(?:就)?(?:挂掉|挂了|没了|死掉)"
    r"|workers? (?:has |have |had )?died\b|abruptly died|\b(?:host|cpu|system|node)[ -]out of memory|LLVM ERROR: out of"
    r"|\bRay ?Out ?Of ?Memory|SIGTERM\W{1,3}Killed|\*\*Killed\b|memory usage on this node\b[^\n]{0,60}low memory",
    _I,
)
_SHM: Final = Expression(
    r"/dev/shm[^.\n]{0,60}(?:too small|full|not enough|不足|满)|共享内存[^。\n]{0,12}(?:不足"
    r"|不够|太小)|shm-size",
    _I,
)
_DEVICE: Final = Expression(
    r"\bOOM(?:s|ed|ing)?\b|OutOfMemoryError|out[- ]of[- ]mem(?:ory)?\b"
    r"|爆(?:显存|掉)|显存[^。\n]{0,16}(?:不足|不够|溢出|爆|挤爆|占满|吃满|快满|OOM)|炸显存"
    r"|(?:会|就|直接|一直|还是|也)爆了?(?=[，。,.！\s]|$)|(?<![a-z])oom(?![a-z])|溢出",
    _I,
)
_CARD: Final = Expression(r"显存[^。\n]{0,16}(?:不足|不够|溢出|爆|占满|吃满|OOM)|爆显存|CUDA (?:OOM|out of memory)", _I)
"""The card's memory ran out: then what is called just memory (内存) is the card's too, as many people write."""
_DENIED: Final = re.compile(
    r"(?:\b(?:no|not|without|never|did not|doesn'?t|no longer|cannot|can'?t)\b|不会|没有|没|无)[^.。\n]{0,8}\Z", _I
)


_PART_OF_A_NAME: Final = re.compile(r"[\w/.\-=]\Z")


def told_failures(prose: Sequence[Line], *, plain: bool = True) -> Iterator[tuple[int, Failure]]:
    """The first failure of each kind that the lines tell, with the index of its line.

    :param plain: whether the lines are prose; in commands and logs a word inside a name or a path tells nothing.
    """
    kinds: tuple[tuple[Literal["device", "host", "shared-memory"], str, Expression], ...] = (
        ("shared-memory", "told-shm", _SHM),
        ("host", "told-host-oom", _HOST),
        ("device", "told-oom", _DEVICE),
    )
    taken: set[int] = set()
    card = any(_CARD.may_match(line.low) and _CARD.search(line.text) for line in prose)
    for kind, name, pattern in kinds:
        for index, line in enumerate(prose):
            found = pattern.search(line.text) if pattern.may_match(line.low) else None
            if found is not None and not plain and _inside_a_name(line.text, found):
                continue
            if found is not None and kind == "host" and card and "内存" in found[0]:
                continue
            if found is None or index in taken or _DENIED.search(line.text[: found.start()]):
                continue
            taken.add(index)
            yield index, Failure(kind=kind, signal=Signal(name, line.span(found.start() + 1)))
            break


def _inside_a_name(text: str, found: re.Match[str]) -> bool:
    """``--oom-score``, ``run_oom.sh``, ``x/oom``."""
    if found[0][:1] > "\x7f":
        return False
    dotted = found[0].endswith("Error")
    before = text[: found.start()][-1:]
    return bool(before and _PART_OF_A_NAME.match(before) and not (dotted and before == ".")) or bool(
        re.match(r"[-_/=.]\w|\w", text[found.end() : found.end() + 2]) and found[0][-1:].isascii()
    )
