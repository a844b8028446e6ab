"""Where the figures and instructions in a language model's sentence come from: computed, read, said by the person, or
nowhere. A sentence with something from nowhere is withheld.

A number with a unit, and any other number of two digits or more, must stand in a function's answer or in the person's
words, rounded at most. Links, commands, flags and keys must stand there too, or be keys that a framework has. Numbers
are looked for after Unicode normalisation, in digits and in words; what could hide something counts against a sentence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

__all__ = ["Sources", "sentences"]

_NUMBER: Final = re.compile(
    r"(?<![A-Za-z_\d.])(?P<n>\d[\d,]{0,30}(?:\.\d{1,30})?)(?:e[+-]?\d{1,3})?"
    r"(?:\s?(?P<unit>[KMGTP]i?B(?:ytes?)?|[KMGTP]i?b(?:it|ytes?)?|gi(?:ga|bi)bytes?|me(?:ga|bi)bytes?|bytes?|%|per\s?cent|字节|百分点"
    r"|[GMkK](?![A-Za-z])))?",
    re.I,
)
_SPELLED_NUMBER: Final = re.compile(
    r"(?i)\b(?:(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundreds?|thousands?|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|one|two|three|four|five|six|seven|eight|nine|half|dozens?|a\sfew|several)[\s-](?:\w{1,12}[\s-]){0,2}(?:[KMGT]i?B\b|giga|gibi|mega|mebi|tera|bytes?\b|per\s?cent|%)"
    r"|[〇零一二三四五六七八九十百千万两半]{1,12}\s?(?:[KMGT]i?B|G\b|字节|%|个?百分点)|百分之[〇零一二三四五六七八九十百两半]{1,8}"
)
_ACTS: Final = re.compile(
    r"https?://[^\s)>\]]{1,500}|www\.[^\s)>\]]{1,300}|(?<![\w-])--?[A-Za-z][\w-]{1,60}|`[^`\n]{1,300}`|[\w-]{1,60}@[\w.-]{2,60}\.\w{2,10}"
    r"|\b[A-Za-z]\w{0,60}(?:[_./=\\][\w-]{1,60}){1,12}",
    re.ASCII,  # Chinese is written without spaces: its characters end a key
)
_COMMANDS: Final = re.compile(
    r"(?i)(?<!\w)(?:sudo|curl|wget|bash|sh|chmod|chown|rm|kill(?:all)?|eval|exec|nc|ssh|scp|dd|mkfs|python3?)\s[-./$~\w][^\s,;]{0,80}"
    r"|\b(?:pip3?|conda|npm|apt(?:-get)?|brew|git|docker)\s(?:install|clone|run|pull|add)\s[^\s,;]{1,80}"
    r"|\b(?:pass(?:word|phrase)|api[\s_-]?key|credentials?|secrets?)\b|密码|口令|密钥"
)
"""What is never part of an answer about memory unless a function or the person said just that."""
_PLAIN_PAIR: Final = re.compile(r"[a-z]{2,14}/[a-z]{2,14}")
_FIT_NOT: Final = re.compile(
    r"(?i)\b(?:not|n['’]t|never|cannot|hardly|barely|fails?\sto)\b[^.;。]{0,24}\bfit\b|\bwon['’]t\sfit|\bdoes\snot\sfit|too\s(?:big|large)\sfor|exceeds?\sthe\s(?:card|gpu|memory|capacity)"
    r"|放不下|装不下|不够|超出|跑不(?:了|起来)|会(?:爆|oom)"
)
_FITS: Final = re.compile(r"(?i)\bfits?\b|\bwill\s(?:run|work)\b|放得下|装得下|跑得(?:了|起来|动)|够用")
_SMALL: Final = 10
_SENTENCE: Final = re.compile(r".*?(?:[.!?](?=\s)|[。！？；]|\n|\Z)", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z][\w.-]{0,80}")
_NAME: Final = re.compile(r"[\w.+-]{1,60}(?:[/ ][\w.+-]{1,60}){0,2}")
_UNIT_BYTES: Final = {"k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40, "p": 2.0**50}
_MOST_DEPTH: Final = 12


@dataclass(slots=True)
class Sources:
    """What a sentence may take its figures and instructions from."""

    sizes: set[float] = field(default_factory=set)
    """GiB."""
    percents: set[float] = field(default_factory=set)
    numbers: set[float] = field(default_factory=set)
    verdicts: set[bool] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)

    def add_text(self, text: str) -> None:
        """Words of the person, or of a function's answer."""
        text = _normal(text)
        self.texts.append(text.lower())
        for value, unit, _ in _numbers(text):
            self._add(value, unit)

    def add_document(self, value: Any, name: str = "", depth: int = 0) -> None:
        """A function's answer; a number's unit is its key's."""
        if depth > _MOST_DEPTH:
            return
        if isinstance(value, Mapping):
            for key, one in value.items():
                self.texts.append(str(key).lower())
                own = str(key)
                self.add_document(one, name if name.endswith("_gib") and not own.endswith("_gib") else own, depth + 1)
        elif isinstance(value, list | tuple):
            for one in value:
                self.add_document(one, name, depth + 1)
        elif isinstance(value, bool):
            if name == "fits":
                self.verdicts.add(value)
        elif isinstance(value, int | float):
            self._add_number(float(value), name)
        elif isinstance(value, str):
            self.add_text(value)

    def add_job(self, fields: Any) -> None:
        """What a function was asked about: numbers without units, and names; never sizes."""
        if isinstance(fields, Mapping):
            for key, one in fields.items():
                if not str(key).endswith("_gib"):
                    self.add_job(one)
        elif isinstance(fields, list | tuple):
            for one in fields:
                self.add_job(one)
        elif isinstance(fields, int | float) and not isinstance(fields, bool):
            self.numbers.add(float(fields))
        elif isinstance(fields, str) and _NAME.fullmatch(fields):
            self.texts.append(fields.lower())

    def _add_number(self, value: float, name: str) -> None:
        if name.endswith("_gib"):
            self.sizes.add(value)
        elif "probability" in name or name.endswith("utilization"):
            self.percents.add(100 * value)
            self.numbers.add(value)
        else:
            self.numbers.add(value)

    def _add(self, value: float, unit: str) -> None:
        kind, scaled = _kind(value, unit)
        {"size": self.sizes, "percent": self.percents, "number": self.numbers}[kind].add(scaled)
        if unit in ("g", "k", "m"):
            self.numbers.add(value)

    def problem(self, sentence: str) -> str:
        """Empty where everything in a sentence comes from somewhere, else what does not."""
        plain = _normal(sentence)
        if _hides(sentence) or _hides(plain):
            return "characters that could hide something"
        if _SPELLED_NUMBER.search(plain):
            return "a quantity in words"
        for value, unit, decimals in _numbers(self._without_names(plain)):
            if not self._known(value, unit, decimals):
                return "a figure that nothing gave"
        if any(not self._in_texts(match[0]) for match in _COMMANDS.finditer(plain)):
            return "a command that nothing gave"
        for match in _ACTS.finditer(plain):
            if not self._said(match[0]):
                return "a link, command or setting that nothing gave"
        refuses = bool(_FIT_NOT.search(plain))
        claims = bool(_FITS.search(_FIT_NOT.sub(" ", plain)))
        if self.verdicts and ((refuses and False not in self.verdicts) or (claims and True not in self.verdicts)):
            return "a verdict that nothing gave"
        return ""

    def _known(self, value: float, unit: str, decimals: int) -> bool:
        kind, scaled = _kind(value, unit)
        step = 0.5 * 10.0**-decimals
        if kind == "number":
            if unit == "k":
                return any(abs(v - n) < 0.5 for v in (1000 * value, 1024 * value) for n in self.numbers)
            small = decimals == 0 and value < _SMALL
            return small or any(abs(n - value) <= step + 1e-9 for n in (*self.numbers, *self.sizes))
        held = self.sizes if kind == "size" else self.percents
        step = step * (scaled / value if value else 1.0)
        return any(abs(n - scaled) <= step + 1e-9 for n in held)

    def _without_names(self, text: str) -> str:
        """The text without names with digits in them that a source has: Qwen2.5-7B, A100-80GB."""
        return _WORD.sub(lambda m: " " if any(c.isdigit() for c in m[0]) and self._in_texts(m[0]) else m[0], text)

    def _said(self, token: str) -> bool:
        token = token.strip("`").strip()
        return (
            self._in_texts(token)
            or bool(_PLAIN_PAIR.fullmatch(token))
            or all(self._known_word(part) for part in re.split(r"[\s=:,]{1,4}", token) if part)
        )

    def _known_word(self, word: str) -> bool:
        """A key that some framework has, a job's field or word, a plain number: nothing that does harm."""
        bare = word.strip("`'\"().,;").lstrip("-")
        if not bare or bare.lower() in ("true", "false", "none", "null", "and", "or", "e.g", "i.e"):
            return True
        number = re.fullmatch(r"\d[\d.,]{0,20}[kK]?", bare) is not None
        return number or bare.replace("-", "_") in _vocabulary() or self._in_texts(bare)

    def _in_texts(self, token: str) -> bool:
        low = token.strip(".,;:").lower()
        return bool(low) and any(low in text for text in self.texts)


def sentences(text: str, *, whole: bool) -> tuple[list[str], str]:
    """Whole sentences of what has come so far, and the rest.

    :param whole: whether nothing more comes: then the rest is a sentence too.
    """
    found, at = [], 0
    for match in _SENTENCE.finditer(text):
        if not match[0] or (match.end() == len(text) and not whole and match[0][-1] not in "\n。！？；"):
            break
        found.append(match[0])
        at = match.end()
    return found, text[at:]


def _numbers(text: str) -> Iterator[tuple[float, str, int]]:
    """Each number with its unit in lower case and its decimals."""
    for match in _NUMBER.finditer(text):
        digits = match["n"].rstrip(",").replace(",", "")
        unit = (match["unit"] or "").lower().replace(" ", "")
        yield float(digits), unit, len(digits.partition(".")[2])


def _kind(value: float, unit: str) -> tuple[str, float]:
    """``size`` in GiB, ``percent`` or ``number``."""
    if not unit or unit == "k":
        return "number", value
    if unit in ("%", "percent", "百分点"):
        return "percent", value
    scale = _UNIT_BYTES.get(unit[0], 1.0) if unit not in ("bytes", "byte", "字节") else 1.0
    if unit.endswith("bit"):
        scale /= 8
    return "size", value * scale / 2.0**30


def _normal(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _hides(text: str) -> bool:
    """Digits of other scripts, and characters that are not seen."""
    kinds = ("Nd", "Nl", "No", "Cf", "Co", "Cn", "Cs", "Cc")
    return any(not c.isascii() and unicodedata.category(c) in kinds and c not in "０１２３４５６７８９" for c in text)


@cache
def _vocabulary() -> frozenset[str]:
    """Keys of frameworks, fields and words of a job."""
    from oomdoc.intake.configs.registry import all_names
    from oomdoc.stated import DOTTED_FIELDS
    from oomkb.memory.job import Job
    from oomkb.memory.vocabulary import VOCABULARY

    words = {w for table in VOCABULARY.values() for name, more in table.items() for w in (name, *more.split())}
    names = {n.replace("-", "_") for n in (*all_names(), *Job.__dataclass_fields__, *DOTTED_FIELDS, *words)}
    return frozenset(names | {n.lower() for n in names})
