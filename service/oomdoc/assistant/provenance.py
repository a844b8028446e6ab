"""Where the figures and instructions in a language model's sentence come from: computed, read, said by the person, or
nowhere. A sentence with something from nowhere is withheld.

A number with a unit, and any other number of two digits or more, must stand in a function's answer or in the person's
words, rounded or converted at most; or it is the sum, difference, product, ratio or percentage of such numbers that
stand in the same sentence or the one before it, where whoever reads can follow. What a card is sold as (24 GB) goes
with what it holds; widths of dtypes and bytes that a parameter takes are common knowledge. Links, commands, flags and
keys must stand there too, or be keys that a framework has. Numbers are looked for after Unicode normalisation, in
digits and in words; what could hide something counts against a sentence.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from importlib.resources import files
from typing import Any, Final

from oomdoc.assistant.figures import BYTES, Figure, kind_of, numbers_in
from oomdoc.chat.wording import patterns
from oomdoc.chat.wording import words as wordlist
from oomkb.catalog.gpus import find, find_all, variants
from oomkb.dataclass import dataclass

_RE: Final = patterns("provenance")

_ACTS: Final = re.compile(
    r"https?://[!-(*-=?-\\^-~]{1,500}|www\.[!-(*-=?-\\^-~]{1,300}|(?<![\w-])--?[A-Za-z][\w-]{1,60}|`[^`\n]{1,300}`|[\w-]{1,60}@[\w.-]{2,60}\.\w{2,10}"
    r"|\b[A-Za-z]\w{0,60}(?:[_./=\\][\w-]{1,60}){1,12}",
    re.ASCII,  # Chinese is written without spaces: its characters end a key
)
_PLAIN_PAIR: Final = re.compile(r"[A-Za-z][A-Za-z\d-]{1,14}(?:/[A-Za-z][A-Za-z\d-]{1,14}){1,3}")
_WIDE: Final = re.compile(r"[，；：！？、（）]")
_SMALL: Final = 10
_WHOLE: Final = 0.5
"""The step of a figure without decimals."""
_LIKELY: Final = 0.5
_SAYS: Final = frozenset({"computed", "sentences", "nothing_fits", "notes", "warnings", "summary"})
"""Keys of a function's answer whose words are oomdoc's: what they say of fitting holds."""
_RAN_OUT: Final = frozenset({"device-oom", "host-oom"})
_SHARES: Final = frozenset({"level"})
"""Keys beside sizes that hold no size."""
_WIDTHS: Final = frozenset({1, 2, 3, 4, 5, 6, 8, 16, 32, 64})
"""Bits of dtypes and quantized weights."""
_PER_PARAMETER: Final = frozenset({0.5, 1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20})
"""Bytes that weights, gradients and optimizer states take for each parameter, alone and together."""
_SOLD_AS: Final = (
    *(4, 6, 8, 10, 11, 12, 16, 20, 22, 24, 32, 40, 45, 46, 48, 64, 72, 80, 94, 96, 128, 141, 144, 180, 192, 256, 288),
)
"""GB that cards are sold with; what they hold is up to a tenth less."""
_SIDES: Final = re.compile(r"(?<![\d.])(\d{2,5})\s?[x×*]\s?(\d{2,5})(?![\d.])")
"""Width and height."""
_SUREST: Final = 99.0
_TWO: Final = 2
_NO_FIGURE: Final = "a figure that nothing gave"
_MAX_OPERANDS: Final = 12
_SENTENCE: Final = re.compile(r".*?(?:[.!?](?=\s)|[。！？；]|\n|\Z)", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z][\w.-]{0,80}")
_NAME: Final = re.compile(r"[\w.+-]{1,60}(?:[/ ][\w.+-]{1,60}){0,2}")
_CODE: Final = re.compile(r"\b[A-Za-z]\w{0,40}(?:[._]\w{1,40}){1,5}", re.ASCII)
_CALL: Final = re.compile(r"[A-Za-z]\w{0,40}(?:\.\w{1,60}){1,5}(?:\(\))?", re.ASCII)
_CALL_PARTS: Final = re.compile(r"\w{1,60}", re.ASCII)
_MAX_DEPTH: Final = 12


@dataclass(slots=True)
class Sources:
    """What a sentence may take its figures and instructions from."""

    sizes: set[float] = field(default_factory=set)
    """GiB."""
    percents: set[float] = field(default_factory=set)
    numbers: set[float] = field(default_factory=set)
    capacities: set[float] = field(default_factory=set)
    """GiB; those among the sizes that a card has."""
    rooms: set[float] = field(default_factory=set)
    """GiB; what is left of a card."""
    named: set[float] = field(default_factory=set)
    """GiB; those that the person names."""
    peaks: set[float] = field(default_factory=set)
    """GiB; those that a run takes, or that the person names."""
    said_numbers: set[float] = field(default_factory=set)
    """Without a unit, in the words of the person: "Required: 131072" is of bytes."""
    verdicts: set[bool] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)

    def add_text(self, text: str) -> None:
        """Words of a function's answer, or of the conversation."""
        text = _normal(text)
        self.texts.append(text.lower())
        for value, unit, _ in numbers_in(text):
            self._add(value, unit)

    def add_said(self, text: str) -> None:
        """Words of the person."""
        self.add_text(text)
        self.numbers |= {float(n) for pair in _SIDES.findall(_normal(text)) for n in pair}
        self.said_numbers |= {value for value, unit, _ in numbers_in(_normal(text)) if not unit}
        self.named |= self._sizes(_normal(text))
        self.peaks |= self.named

    def add_document(self, value: Any, name: str = "", depth: int = 0) -> None:
        """A function's answer; a number's unit is its key's."""
        if depth > _MAX_DEPTH:
            return
        if isinstance(value, Mapping):
            chance = value.get("fits_probability")
            if "fits" not in value and isinstance(chance, int | float):
                self.verdicts.add(chance >= _LIKELY)
            if value.get("largest") or value.get("largest_with_margin"):
                self.verdicts |= {True, False}  # it fits up to there and no further
            for key, one in value.items():
                self.texts.append(str(key).lower())
                own = str(key)
                inside = name.endswith("_gib") and not own.endswith("_gib") and own not in _SHARES
                self.add_document(one, name if inside else own, depth + 1)
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
            if name == "gpu":
                self._add_card(value)
            elif name in _SAYS:
                self._add_verdict(value)
            if name in ("nothing_fits", "problem") or (name == "verdict" and value in _RAN_OUT):
                self.verdicts.add(False)

    def add_job(self, fields: Any) -> None:
        """What a function was asked about: numbers without units, and names; never sizes."""
        if isinstance(fields, Mapping):
            for key, one in fields.items():
                if not str(key).endswith("_gib"):
                    self.add_job(one)
                if key == "gpu":
                    self._add_card(str(one))
        elif isinstance(fields, list | tuple):
            for one in fields:
                self.add_job(one)
        elif isinstance(fields, int | float) and not isinstance(fields, bool):
            self.numbers.add(float(fields))
        elif isinstance(fields, str) and _NAME.fullmatch(fields):
            self.texts.append(fields.lower())

    def _add_verdict(self, text: str) -> None:
        text = _normal(text)
        refuses, claims = _judges(_RE["would_fit"].sub(" ", text))
        self.verdicts |= ({False} if refuses else set()) | ({True} if claims else set())
        for after in _RE["moved_to"].findall(text):
            self.peaks |= self._sizes(after)

    @staticmethod
    def _sizes(text: str) -> set[float]:
        kinds = (kind_of(value, unit) for value, unit, _ in numbers_in(text))
        return {value for kind, value in kinds if kind == "size"}

    def _add_number(self, value: float, name: str) -> None:
        if name.endswith("_gib"):
            self.sizes.add(abs(value))  # what is missing is said without its sign
            if name in ("peak_gib", "needed_gib"):
                self.peaks.add(value)
            if name == "capacity_gib":
                self._add_capacity(value)
            if name == "spare_gib" and value > 0:
                self.rooms.add(value)
        else:
            self.numbers.add(value)
            if "_kib" in name:
                self.sizes.add(value / 2.0**20)
            if value != int(value):
                self.numbers.add(float(math.floor(value)))  # of 11.89 requests eleven are whole
            if value != int(value) or "probability" in name or name.endswith("utilization"):
                self.percents |= {100 * value, 100 * (1 - value)} if 0 < value < 1 else {100 * value}
                self.percents |= {_SUREST} if 100 * value >= _SUREST else set()  # nothing about memory is certain
            if name.endswith("_millions"):
                self.numbers |= {value / 1000, 1e6 * value}  # in billions; in all, for 亿 and 万
            if name == "relative_speed" and value > 0:
                self.numbers.add(1 / value)
                self.percents.add(100 * abs(1 - value))

    def _add_card(self, name: str) -> None:
        if (device := find(name)) is not None:
            self._add_capacity(device.capacity_bytes / 2.0**30)
            self.sizes |= {one.nominal_bytes / 2.0**30 for one in variants(name) if one.nominal_bytes}

    def _add_capacity(self, gib: float) -> None:
        own = {gib, *(float(size) for size in _SOLD_AS if gib <= size <= 1.1 * gib)}
        self.sizes |= own
        self.capacities |= own

    def _add(self, value: float, unit: str) -> None:
        kind, scaled = kind_of(value, unit)
        held = {"size": self.sizes, "percent": self.percents}.get(kind, self.numbers)
        held.add(scaled)
        if unit in ("g", "k", "m"):
            self.numbers.add(value)
        if unit == "k":
            self.numbers |= {1000 * value, 1024 * value}

    def problem(self, sentence: str, before: str = "") -> str:
        """Empty where everything in a sentence comes from somewhere, else what does not.

        :param before: the sentence before it, where that was given.
        """
        plain = _normal(sentence)
        for card in find_all(plain):
            self._add_card(card.text)
        if _hides(sentence) or _hides(plain):
            return "characters that could hide something"
        spelled = (match[0] for match in _RE["spelled_number"].finditer(plain))
        if any(not self._in_texts(one) and _RE["of_a_weight"].fullmatch(one) is None for one in spelled):
            return "a quantity in words"
        if not self._all_figures_known(plain, _normal(before)):
            return _NO_FIGURE
        plain = _RE["launchers"].sub(" ", plain)
        if any(not self._in_texts(match[0]) for match in _RE["commands"].finditer(plain)):
            return "a command that nothing gave"
        if any(not self._said(match[0]) for match in _ACTS.finditer(plain)):
            return "a link, command or setting that nothing gave"
        return "a verdict that nothing gave" if self._misjudges(plain) else ""

    def _misjudges(self, plain: str) -> bool:
        refuses, claims = _judges(plain)
        if not self.verdicts or not (refuses or claims):
            return False
        known = self.verdicts | self._compared(plain)
        return (refuses and False not in known) or (claims and True not in known)

    def _compared(self, plain: str) -> set[bool]:
        """What the peaks in a sentence, beside the card named in it or those of the job, say of fitting."""
        figures = [Figure.of(*n) for n in numbers_in(self._without_names(plain))]
        sizes = [f for f in figures if f.kind == "size"]
        counts = [f.value for f in figures if f.kind == "number" and f.value > _SMALL]
        if not sizes and len(counts) == _TWO:  # "22,182 tokens do not fit into 8,192"
            return {counts[0] <= counts[1]}
        cards = [size.value for size in sizes if any(map(size.is_near, self.capacities))] or list(self.capacities)
        needs = [size.value for size in sizes if size.value not in cards and any(map(size.is_near, self.peaks))]
        rooms = [size for size in sizes if any(map(size.is_near, self.rooms))]
        others = [size.value for size in sizes if size not in rooms and any(map(size.is_near, self.named))]
        found = {other <= room.value for room in rooms for other in others if other not in cards}
        if not cards or not needs:
            return found
        return found | ({True} if max(needs) <= min(cards) else set()) | ({False} if max(needs) > max(cards) else set())

    def _all_figures_known(self, plain: str, before: str) -> bool:
        figures = list(numbers_in(self._without_names(plain)))
        widths = _WIDTHS if any(Figure.of(*figure).kind == "bits" for figure in figures) else frozenset()
        unknown = [figure for figure in figures if figure[0] not in widths and not self._known(*figure)]
        if not unknown:
            return True
        pairs = [(float(wide), float(high)) for wide, high in _SIDES.findall(plain)]  # of "28 × 28 pixels"
        sides = [(n, "", 0) for pair in pairs for n in pair]
        unknown = [f for f in unknown if not any(f[0] in pair and math.prod(pair) in self.numbers for pair in pairs)]
        around = [*figures, *sides, *numbers_in(self._without_names(before))]
        given = [f for f in around if f not in unknown and (f in sides or self._known(*f))]
        known = [Figure.of(*f) for f in given[:_MAX_OPERANDS]]
        # "from 21.04 to 11.60 GiB": the unit is said once.
        sizes = [Figure("size", f.value, f.step) for f in known if f.kind == "number" and f.step < _WHOLE]
        operands = [*known, *(size for size in sizes if any(map(size.is_near, self.sizes)))]
        for figure in (Figure.of(*one) for one in unknown):  # "3.60 + 3.60 = 7.20, 41.00 / 7.20 = 5.7"
            if not figure.follows(operands):
                return False
            operands.append(figure)
        return True

    def _known(self, value: float, unit: str, decimals: int) -> bool:
        figure = Figure.of(value, unit, decimals)
        if figure.kind == "bits":
            return value in _WIDTHS
        if unit in BYTES and (value in _PER_PARAMETER or value in self.said_numbers):
            return True
        if figure.kind == "number":
            if unit == "k":
                return any(abs(v - n) < 0.5 for v in (1000 * value, 1024 * value) for n in self.numbers)
            small = decimals == 0 and value < _SMALL
            return small or any(figure.is_near(n) for n in (*self.numbers, *self.sizes))
        held = self.sizes if figure.kind == "size" else self.percents
        return any(figure.is_near(n) for n in held)

    def _without_names(self, text: str) -> str:
        """The text without names with digits in them that a source has (Qwen2.5-7B, A100-80GB), or of resolutions."""
        text = _RE["resolution"].sub(" ", text)
        return _WORD.sub(lambda m: " " if any(c.isdigit() for c in m[0]) and self._in_texts(m[0]) else m[0], text)

    def _said(self, token: str) -> bool:
        token = token.strip("`").strip()
        return (
            self._in_texts(token)
            or bool(_PLAIN_PAIR.fullmatch(token))
            or all(self._known_part(part) for part in re.split(r"[\s=:,]{1,4}", token) if part)
        )

    def _known_part(self, part: str) -> bool:
        """A known word, or words that are, joined by dots: a key in its section, a function of a module."""
        called = "_" in part and _CALL.fullmatch(part) is not None
        return self._known_word(part) or (called and all(map(self._known_word, _CALL_PARTS.findall(part))))

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


def _normal(text: str) -> str:
    """In NFKC; a wide comma parts numbers, it is none of a number's."""
    return unicodedata.normalize("NFKC", _WIDE.sub(lambda m: f"{m[0]} ", text))


def _judges(plain: str) -> tuple[bool, bool]:
    """Whether a text says that something does not fit, and whether that something does."""
    plain = _RE["no_claim"].sub(" ", plain)
    return bool(_RE["fit_not"].search(plain)), bool(_RE["fits"].search(_RE["fit_not"].sub(" ", plain)))


def says_size(text: str, gib: float) -> bool:
    """Whether a text holds a size, rounded at most."""
    figures = (Figure.of(*figure) for figure in numbers_in(_normal(text)))
    # "31.50 of 39.39 GiB": the unit is said once.
    return any((f.kind == "size" or (f.kind == "number" and f.step < _WHOLE)) and f.is_near(gib) for f in figures)


def is_about_memory(sentence: str, problem: str) -> bool:
    """Whether what a withheld sentence said is computed in its place: all but mere counts."""
    if problem != _NO_FIGURE or says_verdict(sentence):
        return True
    return any(kind_of(value, unit)[0] in ("size", "percent") for value, unit, _ in numbers_in(_normal(sentence)))


def says_verdict(text: str) -> bool:
    """Whether a text says that something fits or does not."""
    return any(_judges(_normal(text)))


def _hides(text: str) -> bool:
    """Digits of other scripts, and characters that are not seen."""
    kinds = ("Nd", "Nl", "No", "Cf", "Co", "Cn", "Cs", "Cc")
    return any(not c.isascii() and unicodedata.category(c) in kinds and c not in "０１２３４５６７８９" for c in text)


@cache
def _vocabulary() -> frozenset[str]:
    """Keys of frameworks, fields and words of a job, and names that oomdoc's own pages use."""
    from oomdoc.intake.configs.declared import all_names
    from oomdoc.intake.configs.launch import ENVIRONMENT
    from oomdoc.stated import DOTTED_FIELDS
    from oomkb.memory.job import Job
    from oomkb.memory.mode import VOCABULARY
    from oomkb.topics import topics

    pages = files("oomdoc.diagnosis.pages")
    written = "\n".join(pages.joinpath(f"{language}.toml").read_text(encoding="utf-8") for language in ("en", "zh"))
    written += "\n".join(answer for topic in topics().values() for answer in topic.answer.values())
    words = {w for table in VOCABULARY.values() for name, more in table.items() for w in (name, *more.split())}
    names = {
        *all_names(),
        *ENVIRONMENT,
        *wordlist("provenance-words"),
        *Job.__dataclass_fields__,
        *DOTTED_FIELDS,
        *words,
        *_CODE.findall(written),
    }
    names = {n.replace("-", "_") for n in names}
    return frozenset(names | {n.lower() for n in names})
