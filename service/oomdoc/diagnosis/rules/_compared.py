"""What people compare: a batch, a length or a picture with which it works, and one with which it fails.

What fails at twice the batch and works at half of it is made of the batch: no weight, gradient or state asks how many
samples there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from oomdoc.diagnosis.view import View
from oomdoc.intake.sieve import alternatives

__all__ = ["IN_VAIN", "LIMITED", "decided_by", "longest_told"]

_UNITS: Final = {"k": 1024, "w": 10_000, "万": 10_000}
_REMEMBERED: Final = 3
_MOST_TOKENS: Final = 2_000_000

_CLAUSES: Final = re.compile(
    r"[,;!?，。；：！？()（）\n]|\.(?!\d)|\b(?:but|however|while|whereas|although|otherwise|then|and (?:when|if|with"
    r"|even))\b"
    r"|但是?|然而|否则|不然"
)
_QUANTITIES: Final = {
    "batch": re.compile(
        r"(?:(?<![a-z])batch(?:[ _-]?sizes?)?(?:_per_\w{2,6})?|\b(?:bs|bsz|batchsizes?)|批次"
        r"|批大小)[^\n\d]{0,20}?(?<![\d.])(\d{1,4})(?![\d.%]|x|gb?\b)"
        r"(?:(?: ?[/、,]| ?or| ?和| ?及) ?(\d{1,4})\b)?|\b(\d{1,4})[- ]batch"
    ),
    "length": re.compile(
        r"(\d{1,3} ?[万w])(?= ?(?:字|tokens?\b|长度|上下文))|(?:max[-_]?(?:source[-_]|target[-_])?(?:seq\w{0,8}|length"
        r"|len|model_len"
        r"|position\w{0,12}|prompt\w{0,8}|tokens?)"
        r"|\bseq\w{0,8}(?:[_ ]len(?:gth)?)?|context"
        r"|cutoff\w{0,4}|block_?size|lengths?|长度|上下文)[^\n\d]{0,20}?(?<![\d.])(\d{1,3}k|\d{3,6})(?![\d.%])"
        r"|(?<![\d.])(\d{1,3}k|\d{3,6})[- ]?(?:(?:prompt |input )?tokens?|context|residues|seq\w{0,8}|字|length|长度"
        r"|上下文)"
    ),
    "picture": re.compile(
        r"\[(\d{3,4}), ?\d{3,4}(?:, ?\d)?\]|(?<!\d)(\d{3,4}) ?[x×*] ?\d{3,4}(?!\d)|(?<!\d)(\d{3,4})px?\b"
        r"|\b(\d{1,4})[- ]?frames|\bframes?[^\n\d]{0,12}(\d{1,4})\b"
        r"|\bfps[^\n\d]{0,16}(\d{1,3})\b|(\d{1,4}) ?帧|(?:resolution|image.?size|img.?size"
        r"|分辨率)[^\n\d]{0,12}(\d{2,4})\b"
    ),
}
_BARE: Final = re.compile(
    r"(?:\bset(?:ting)? (?:it )?(?:to )?|\bwith |\buse |\busing |\bat |\bto |\bfor |(?:改成|设为|设成|为) ?)"
    r"`?(\d{1,3}k|\d{1,6})\b|`(\d{1,6})`"
    r"|^ (\d{1,6})(?= (?:works|fits|runs|trains|is (?:fine|ok))|(?:可以|能跑|没问题))"
)
"""A number of what was named before."""
_ABOVE: Final = re.compile(r"(?:>|larger than|bigger than|greater than|more than|above|over|beyond|大于|超过|高于) ?$")
_BELOW: Final = re.compile(r"(?:<|smaller than|less than|below|under|小于|低于|不超过) ?$")
_RAISED: Final = re.compile(
    r"(?:(batch)|(seq|length|len|context|cutoff|长度|上下文)|(resolution|size|frames|分辨率"
    r"|帧数?))[^\n\d]{0,16}(?<![\d.])(\d{1,5}k?) ?"
    r"(?:to|->|→|调到|改到|改成|提到|提高到|加到|增加到|升到|调成|增大到) ?(\d{1,6}k?)[^\n]{0,24}(?:oom|out of mem"
    r"|crash|fail|爆|溢出|不够|不足)"
)
_FAILS: Final = re.compile(
    r"\boom|out.of.(?:\w{1,8} )?memory|memory error|\bcrash|\bfail|\berror|can(?:'?t|not)|won'?t|exceed|爆|溢出|不足"
    r"|不够|不行|报错|失败"
    r"|does(?: not|n'?t) (?:work|fit|run)|insufficient|unable|挂"
)
_DOES_NOT: Final = re.compile(
    r"(?:won'?t|will not|do(?:es)?n'?t|does not|did ?n[o']?t|never|不会|没有?)(?: (?:oom|crash|fail|happen|occur))? ?$"
)
"""It failed before, and here it did not."""
_WORKS: Final = re.compile(
    r"\bworks?\b|\bworked|\bworking|\bfine\b(?!.?tun)|\bfits?\b|success|\bno (?:oom|problem|issue|error)|\bok\b"
    r"|\bokay\b"
    r"|\bruns?\b|\bran\b|\bnormal"
    r"|\bable\b|can (?:train|run|only|still|use|fit|be)|could|正常|可以|能跑|能训|没问题|成功|performs|\bstable"
    r"|\bwithout (?:oom|problem|issue|error)"
    r"|won'?t\b(?= ?$)|(?:does not|doesn'?t|no longer|never) (?:oom|crash|fail)|不(?:会)?(?:爆|oom|报错)"
)
_ANY_FAILS, _ANY_WORKS, _ANY_RAISED = (alternatives(one.pattern) for one in (_FAILS, _WORKS, _RAISED))
LIMITED: Final = (
    r"\b(?:any|every) batch.?sizes? ?(?:>|above|over|larger|bigger|greater)|batch.?sizes?[^\n]{0,12}(?:bigger|larger"
    r"|greater|more|higher) than \d"
    r"|(?:max(?:imum)?|largest|biggest) (?:possible )?batch.?size[^\n]{0,16}\d|only (?:works?|runs?|trains?|fits?|if"
    r"|when|with|able|possible)\b[^\n]{0,30}batch.?size ?(?:of|to|=|is|at|:)? ?(?:[2-9]|\d{2,3})\b"
    r"|(?:reduc|lower|decreas|shrink)\w{0,4} [^\n]{0,24}batch.?size[^\n]{0,20}(?:made it|makes it|let it) (?:work|fit"
    r"|run|train)"
    r"|batch.?size[^\n]{0,6}(?:只能|最多|最大)(?:为|是|设|用|开|写|跑|到|取|给)?[^\n]{0,3}(?:[2-9]|\d{2})|(?:只能|最多"
    r"|最大)[^\n]{0,10}batch[^\n]{0,10}\d"
    r"|(?:reduc|lower|decreas|drop|shrink)\w{0,4} (?:the |my |its )?(?:\w{1,16} )?batch.?size (?:from"
    r"|to)\b[^\n]{0,40}(?:works|fine|fits|runs|solve|ok\b|help)"
    r"|(?:if|when|after|once) [^\n]{0,16}(?:reduc|lower|decreas|shrink)\w{0,4} (?:the "
    r"|my )?(?:\w{1,16}.)?batch.?size[^\n]{0,30}(?:works|fine|fits|runs|ok\b|normal)"
    r"|batch.?size[^\n]{0,8}(?:调小|改小|减小|降低|降到|调到|改成|改为|设为|设成|减到)[^\n]{0,14}(?:就|后)?(?:可以|能"
    r"|正常|没问题|不爆|不会)"
)
"""How people say that no more than some batch fits, or that a smaller one helped."""


IN_VAIN: Final = (
    r"batch[^\n]{0,40}(?:did ?n[o']?t|does ?n[o']?t|do(?:es)? not|did not|no) (?:help|work|change|matter|effect|solve)"
    r"|batch[^\n]{0,40}(?:useless|no use|in vain|just (?:delays|prolongs|postpones)|slower)|batch[^\n]{0,40}\bstill\b"
    r"|(?:even|still)\b[^\n]{0,40}batch[^\n]{0,24}\b(?:1|one|2|two|smallest|minimum)\b|batch[^\n]{0,24}(?:没有?用"
    r"|不管用|无效|一样|仍|还是|也会|依然|依旧|也不行)"
    r"|(?:就算|即使|哪怕|已经|都)[^\n]{0,10}batch[^\n]{0,10}[12]\b|batch[^\n]{0,16}(?:最小)"
    r"|(?:lower|reduc|decreas)\w{0,3} [^\n]{0,24}batch[^\n]{0,16}(?:in)?to 1\b"
)
"""How people say that a smaller batch changed nothing."""


def longest_told(view: View) -> int:
    """The greatest length in tokens that is told or set, 0 where none is."""
    lengths = _QUANTITIES["length"].finditer(view.prose)
    told = [number for found in lengths for number in _values(found) if number <= _MOST_TOKENS]
    return max([*told, int(view.stated("seq_len") or 0)])


def decided_by(view: View) -> frozenset[str]:
    """``batch``, ``length``, ``picture``: of which of them a smaller one is told to work where a larger one fails."""
    text = view.prose
    compared = _ANY_WORKS.search(text) is not None or _ANY_RAISED.search(text) is not None
    return _decided(text) if compared and _ANY_FAILS.search(text) is not None else frozenset()


@lru_cache(maxsize=8)
def _decided(text: str) -> frozenset[str]:
    works: dict[str, list[int]] = {}
    fails: dict[str, list[int]] = {}
    clauses = _CLAUSES.split(text)
    named: tuple[str, int] | None = None
    for place, clause in enumerate(clauses):
        numbers = list(_numbers(clause))
        if numbers:
            named = (numbers[-1][0], place)
        elif named is not None and place - named[1] <= _REMEMBERED:
            numbers = [(named[0], number) for found in _BARE.finditer(clause) for number in _values(found)]
        if not numbers:
            continue
        verdict = _verdict(clause)
        for near in (place + 1, place - 1):
            if verdict is None and 0 <= near < len(clauses) and not any(_numbers(clauses[near])):
                verdict = _verdict(clauses[near])
        if verdict is not None:
            for kind, number in numbers:
                (works if verdict else fails).setdefault(kind, []).append(number)
    raised = {
        kind
        for found in _RAISED.finditer(text)
        for kind, name in zip(("batch", "length", "picture"), found.groups()[:3], strict=True)
        if name and _value(found[4]) < _value(found[5])
    }
    return frozenset(raised.union(kind for kind in works if kind in fails and max(works[kind]) < min(fails[kind])))


def _verdict(clause: str) -> bool | None:
    if _DOES_NOT.search(clause) is not None:
        return True
    fails, works = _FAILS.search(clause), _WORKS.search(clause)
    if fails is None or works is None:
        return None if fails is works else works is not None
    return None


def _numbers(clause: str) -> Iterator[tuple[str, int]]:
    for kind, pattern in _QUANTITIES.items():
        for found in pattern.finditer(clause):
            for number in _values(found):
                yield kind, number


def _values(found: re.Match[str]) -> Iterator[int]:
    for group in range(1, (found.re.groups or 0) + 1):
        number = found[group]
        if number:
            before = found.string[max(0, found.start(group) - 16) : found.start(group)]
            yield _value(number) + (_ABOVE.search(before) is not None) - (_BELOW.search(before) is not None)


def _value(number: str) -> int:
    """``16k`` is 16,384, ``2w`` and ``2 万`` are 20,000."""
    return int(number.rstrip("kw万 ")) * _UNITS.get(number[-1], 1)
