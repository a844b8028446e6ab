"""Whether a rewording says the same: the same quantities in the same order, the same verdict, nothing to act on added.

Numbers are looked for in every guise (other scripts' digits, fractions, Chinese numerals, English number words), after
Unicode normalisation; what looks like a number and is not understood counts against the rewording.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import Any, Final

__all__ = ["faithful", "literal", "quantities"]

_UNITS: Final = (
    r"(?:[KMGTP]i?B|[KMGTP]i?b(?:it|ytes?)?|%|[kKmMbB](?![A-Za-z])|gigabytes?|megabytes?|gibibytes?|mebibytes?|terabytes?"
    r"|bytes?|percent|per\s?cent|吉字节|兆字节|字节)"
)
_QUANTITY: Final = re.compile(
    rf"(?P<sign>(?<![\w.])[-−+]|[×x]\s?(?=\d))?(?P<number>\d[\d,]{{0,30}}(?:\.\d{{1,30}})?(?:[eE][-+]?\d{{1,4}})?)"
    rf"(?:\s?(?P<unit>{_UNITS}))?"
)
_MEASURE: Final = re.compile(
    r"(?i)[KMGTP]i?B\b|(?:kibi|mebi|gibi|tebi)bytes?|(?:kilo|mega|giga|tera)bytes?|%|\bper\s?cent|百分|字节"
)
_NUMBER_WORDS: Final = re.compile(
    r"(?i)\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundreds?|thousands?|millions?|billions?|dozens?|half|halves|halv\w{1,3}"
    r"|doubl\w{1,3}|twice|tripl\w{1,3}|thrice|quarters?|thirds?|couple|pair|single|first|second|third)\b"
)
_CHINESE_NUMBERS: Final = re.compile(r"[〇零一二三四五六七八九十百千万亿兆两半俩双倍]{1,20}")
_NOT: Final = re.compile(
    r"(?i)\bnot\b|\bno\b|n['’]t\b|\bcannot\b|\bnever\b|\bnothing\b|\bnone\b|\bwithout\b|\btoo\smuch\b|\bexceed\w{0,3}\b|\bshort\b"
    r"|\bunable\b|\bfails?\b|不|没|未|无|超出|别|非"
)
_TO_ACT_ON: Final = re.compile(
    r"https?://\S{1,500}|www\.\S{1,300}|(?<!\w)--?[A-Za-z][\w-]{1,60}|\b[A-Za-z]\w{0,60}(?:[_./=\\@][\w-]{1,60}){1,12}|`[^`\n]{1,300}`"
    r"|[$|;&<>]{1,3}|\b(?:sudo|rm|curl|wget|pip|bash|exec|eval|export|kill|password|token|ignore|click|download|install|run)\b"
)
_HAN: Final = re.compile(r"[一-鿿]")
_PART: Final = re.compile(
    rf"(?P<not>{_NOT.pattern.removeprefix('(?i)')})|(?P<han>[一-鿿]{{1,2000}})|\d[\d.,]{{0,40}}|[^\W\d_][\w'’-]{{0,80}}",
    re.I,
)
_WORD: Final = re.compile(r"[a-z']+")
# Words that may come, go and move without changing what is said.
_NEUTRAL: Final = frozenset(
    _WORD.findall(
        "a about according after all also altogether amount amounts an and approximately are around as ask "
        "asks at be because been being both but by can card cards come comes could did do does during each "
        "estimate estimated estimates estimation expect expected figure for from get gets given gpu gpus had "
        "has have hence here hold holds in into is it it's its just may memory might much namely need needed "
        "needs now of on or overall own peak peaks per place predicted probability put reach reached reaches "
        "require required requires rough roughly run runs say says see should since so some such take taken "
        "takes than that that's the their them then there therefore these they this those thus to total "
        "totals turn turns under up use used uses was were what when where which while will with would you "
        "your "
    )
)
_NEUTRAL_HAN: Final = frozenset(
    "的了是在约大概为到每张卡显存峰值达将会需要使用占其中此该这那就也都而且并与和及则即所以因由于对从把被让给个能可"
    "上下里内时后前间计估预总共"
)


def quantities(text: str) -> list[tuple[str, str, str]]:
    """Every ``(sign, number, unit)`` in order."""
    found = []
    for match in _QUANTITY.finditer(text):
        unit = (match["unit"] or "").lower().replace(" ", "")
        found.append(((match["sign"] or "").strip().replace("−", "-"), match["number"].rstrip(","), unit))
    return found


def faithful(said: str, plain: str) -> str:
    """Empty where ``said`` may stand for ``plain``, else the reason why not."""
    if not said.strip() or len(said) > 2 * len(plain) + 200:
        return "empty or too long"
    new, old = _normal(said), _normal(plain)
    # Before normalisation too: it would write Roman numerals and superscripts as letters and digits.
    if _strange(said) - _strange(plain) or _strange(new) - _strange(old):
        return "characters that could hide something"
    if quantities(new) != quantities(old):
        return "other quantities"
    if _words(new) - _words(old) or Counter(_MEASURE.findall(new)) - Counter(_MEASURE.findall(old)):
        return "other numbers in words"
    if bool(_HAN.search(new)) != bool(_HAN.search(old)):
        return "another language"
    if sum(1 for _ in _NOT.finditer(new)) != sum(1 for _ in _NOT.finditer(old)):
        return "another verdict"
    if _acts(new) - _acts(old):
        return "something to act on was added"
    if _structure(new) != _structure(old):
        return "other things said, or in another order"
    return ""


def _structure(text: str) -> list[str]:
    """All that carries meaning, in order: what fits or not, causes, changes, figures. Words around it may change."""
    found = []
    for match in _PART.finditer(text):
        part = match[0].lower()
        if match["han"]:
            found += [c for c in part if c not in _NEUTRAL_HAN]
        elif match["not"]:
            found.append("not")
        elif part[0].isdigit() or part not in _NEUTRAL:
            found.append(_stem(part))
    return found


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def literal(value: Any, text: str) -> bool:
    """Whether a value stands in a text as it is: a number as a whole number, a word as a whole word."""
    if isinstance(value, list | tuple):
        return bool(value) and len(value) <= 16 and all(literal(v, text) for v in value)
    if isinstance(value, dict) or value is None:
        return False
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    if not shown.strip() or len(shown) > 200:
        return False
    whole = rf"(?<![\w.]){re.escape(shown)}(?!\w|\.\d)"
    return (
        re.search(whole, text, 0 if isinstance(value, int | float) and not isinstance(value, bool) else re.I)
        is not None
    )


def _normal(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _strange(text: str) -> Counter[str]:
    """Digits of other scripts, and characters that are not seen."""
    odd = (c for c in text if not c.isascii())
    return Counter(c for c in odd if unicodedata.category(c) in ("Nd", "Nl", "No", "Cf", "Co", "Cn", "Cs", "Cc"))


def _words(text: str) -> Counter[str]:
    chinese = [w for w in _CHINESE_NUMBERS.findall(text) if w != "一" or re.search(r"一\s?[A-Za-z%张倍卡]", text)]
    return Counter([w.lower() for w in _NUMBER_WORDS.findall(text)] + chinese)


def _acts(text: str) -> Counter[str]:
    return Counter(w.lower() for w in _TO_ACT_ON.findall(text))
