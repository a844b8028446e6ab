"""Reading model names: a family word, a version, a size and the words that set variants apart.

``Meta-Llama-3.1-8B-Instruct-AWQ`` is family ``llama``, version ``3.1``, size ``8b``; ``instruct`` says nothing
about the shape, ``awq`` how the weights are stored. A catalogue entry says the same about itself in ``match``:
``"qwen 2.5 7b ?coder"`` (``?`` marks words that may be there; any other word must).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from functools import lru_cache
from typing import Final

from oomkb.catalog.model_data import Family, ModelEntry
from oomkb.dataclass import dataclass
from oomkb.kept import lazy

_PIECE: Final = lazy(
    r"(?:u?int|fp|bf|nf|mxfp|nvfp)[0-9]{1,2}(?![0-9])|[0-9]{1,2}[-_ ]?bits?(?![a-z])|w[0-9]{1,2}a[0-9]{1,2}"
    r"|i?q[2-8](?:_[0-9a-z]{1,4}){0,2}(?![a-z0-9])"
    r"|a[0-9]{1,3}(?:[._][0-9]{1,2})?b(?![a-z])|e[0-9]b(?![a-z])"
    r"|[0-9]b[0-9](?![0-9a-z])"
    r"|[0-9]{1,3}x[0-9]{1,3}(?:\.[0-9]{1,2})?[bm](?![a-z])"
    r"|[0-9]{1,4}(?:\.[0-9]{1,3})?(?:bn|[bmt])(?=a[0-9]|[^a-z]|\Z)"
    r"|[0-9]{1,4}[ke](?![a-z])|(?<![a-z])[kmrz][0-9]{1,2}(?:\.[0-9])?(?![0-9a-z])|v[0-9]{1,2}(?:\.[0-9]{1,2})?(?![0-9])"
    r"|[0-9]{1,8}(?:\.[0-9]{1,3})?|[a-z]+|[\u4e00-\u9fff]+",
    re.I,
)
_SIZE: Final = lazy(r"([0-9]{1,4}(?:\.[0-9]{1,3})?)(?:x([0-9]{1,3}(?:\.[0-9]{1,2})?))?(bn|[bmt])\Z")
_NUMBER: Final = lazy(r"[0-9]{1,8}(?:\.[0-9]{1,3})?\Z")
_UNDERSCORE_DECIMAL: Final = lazy(r"(?<=[0-9])_(?=[0-9])")
_HYPHEN_DECIMAL: Final = lazy(r"(?<=[0-9])(?:[-_](?=[0-9](?![0-9bm]))|p(?=[0-9](?![0-9])))", re.I)
_SIZE_FIRST: Final = lazy(r"([0-9]{1,4}(?:\.[0-9]{1,3})?[bm])[ -](?=[a-z])(.{2,80})", re.I | re.A)
_FAMILIES_READ: Final = 4
"""Family words of one name that are tried."""
_SCALE: Final = {"b": 1.0, "bn": 1.0, "m": 1e-3, "t": 1e3}
_QUANT: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (lazy(pattern, re.I), hint)
    for pattern, hint in (
        (r"gptq[-_]?(?:int)?8|gptq[-_]8bit|(?<![a-z])int8[-_]gptq", "gptq-int8"),
        (r"gptq", "gptq-int4"),
        (r"(?<![a-z])awq(?![a-z])", "awq-int4"),
        (r"bnb[-_ ]?4|4[-_ ]?bit(?![a-z])|(?<![a-z])nf4|qlora", "nf4"),
        (r"bnb[-_ ]?8|8[-_ ]?bit(?![a-z])|llm\.int8", "int8"),
        (r"(?<![a-z])mxfp4", "mxfp4"),
        (r"(?<![a-z])nvfp4|[-_]fp4(?![a-z0-9])", "nvfp4"),
        (r"(?<![a-z])fp8(?![0-9])|w8a8[-_]?fp8", "fp8"),
        (r"(?<![a-z])(?:w4a16|int4)(?![0-9])", "gptq-int4"),
        (r"(?<![a-z])(?:w8a16|int8)(?![0-9])", "gptq-int8"),
        (r"(?<![a-z])w8a8(?![0-9])", "int8"),
    )
)
_SHAPE_WORDS: Final = frozenset(
    ("vl", "v", "vision", "audio", "omni", "moe", "next", "multimodal", "mamba", "rw", "n", "scout", "maverick")
)
"""Words that mean another shape where a family has entries that need them."""
_ALWAYS: Final = frozenset(
    ("omni", "vl", "vision", "audio", "speech", "voice", "asr", "tts", "ocr", "mamba", "diffusion")
)
"""Words that mean another shape in any family."""
_TIERS: Final = lazy(r"v[2-9](?:\.[0-9])?|pro|flash|mini|nano|tiny|lite|max|ultra|small|medium|large|xl|plus|turbo")
"""What stands where a size would: another model than the one of the family that states a size."""


@dataclass(frozen=True, slots=True)
class Name:
    """What a name says."""

    family: str
    version: str | None
    size_b: float | None
    """Parameters in billions, as the name states them; ``8x7b`` is 56."""
    words: frozenset[str]
    stray_numbers: int
    """Numbers between version and size that no rule explains: the reading is doubtful."""
    letter: str = ""
    """A letter of its own behind the family word, which names another line of models (``Falcon-E``)."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One ``match`` line of an entry."""

    entry: ModelEntry
    version: str | None
    size_b: float | None
    needs: frozenset[str]
    may: frozenset[str]


@dataclass(slots=True, eq=False)
class Table:
    """Patterns by family word, and what the words of the catalogue mean."""

    patterns: dict[str, list[Pattern]] = field(default_factory=dict)
    telling: dict[str, frozenset[str]] = field(default_factory=dict)
    """Family word → words that set its entries apart."""
    spellings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    weak: frozenset[str] = frozenset()
    derived: frozenset[str] = frozenset()
    """Words of models that are known under another's name alone: fine-tunes (``zephyr``), which exist of several."""
    chinese: tuple[str, ...] = ()
    """The spellings that are no ASCII words."""


def size_in_billions(token: str) -> float | None:
    """``7b`` → 7, ``125m`` → 0.125, ``8x7b`` → 56; ``None`` for anything else."""
    match = _SIZE.match(token)
    if match is None:
        return None
    return float(match[1]) * float(match[2] or 1) * _SCALE[match[3]]


@lru_cache(maxsize=4096)
def quant_hint(name: str) -> str | None:
    """How a checkpoint of this name stores its weights, in the words of a job's ``quant``."""
    return next((hint for pattern, hint in _QUANT if pattern.search(name)), None)


def _plain(version: str) -> str:
    return version.removesuffix(".0").lstrip("v")


def _pattern(entry: ModelEntry, line: str) -> tuple[str, Pattern]:
    family, *rest = line.split()
    version: str | None = None
    size: float | None = None
    needs: set[str] = set()
    may: set[str] = set()
    for token in rest:
        if token[0] == "?":
            may.add(token[1:])
        elif size is None and size_in_billions(token) is not None:
            size = size_in_billions(token)
        elif version is None and size is None and _NUMBER.match(token) and len(token) < 4:
            version = _plain(token)
        else:
            needs.add(token)
    return family, Pattern(entry, version, size, frozenset(needs), frozenset(may))


def build_table(families: Iterable[Family]) -> Table:
    """The look-up table of a catalogue."""
    table = Table()
    weak: set[str] = set()
    for family in families:
        weak |= family.weak
        table.spellings.update({key: tuple(value.split()) for key, value in family.spellings.items()})
        for entry in family.models:
            for line in entry.aliases:
                word, pattern = _pattern(entry, line)
                table.patterns.setdefault(word, []).append(pattern)
    table.weak = frozenset(weak)
    table.chinese = tuple(sorted(key for key in table.spellings if not key.isascii()))
    for word, patterns in table.patterns.items():
        table.telling[word] = frozenset().union(*(p.needs for p in patterns))
    names = {word: [p.entry.name.lower().replace("-", "") for p in ps] for word, ps in table.patterns.items()}
    table.derived = frozenset(word for word, of_word in names.items() if not any(word in name for name in of_word))
    return table


def _pieces(text: str, table: Table) -> list[str]:
    found: list[str] = []
    for match in _PIECE.finditer(text):
        piece = match[0].lower()
        head = piece[:-1]
        if piece in table.patterns and _grown(text, match.start()):
            found.append("~" + piece)  # t5gemma is no gemma
        elif len(piece) == 3 and piece[1] == "b" and piece[2].isdigit():  # bloom-1b7
            found.append(f"{piece[0]}.{piece[2]}b")
        elif piece.isalpha() and piece not in table.patterns and piece[-1] == "v" and head in table.patterns:
            found += [head, "v"]
        else:
            found += table.spellings.get(piece) or _chinese(piece, table)
    joined: list[str] = []
    for piece in found:
        if joined and joined[-1] == "v" and _NUMBER.match(piece):
            joined[-1] = "v" + piece
        else:
            joined.append(piece)
    return joined


def _grown(text: str, at: int) -> bool:
    """Whether what ends here is a digit that a letter stands before: the end of a longer word."""
    return at > 1 and text[at - 1].isdigit() and text[at - 2].isascii() and text[at - 2].isalpha()


def _chinese(piece: str, table: Table) -> tuple[str, ...]:
    """A Chinese name at the end of running text: no blank stands before it."""
    if piece.isascii():
        return (piece,)
    known = [name for name in table.chinese if piece.endswith(name)]
    return table.spellings[max(known, key=len)] if known else (piece,)


def _name(pieces: list[str], at: int) -> Name:
    version: str | None = None
    size: float | None = None
    stray = 0
    words = set(pieces[:at])
    for piece in pieces[at + 1 :]:
        if size is None and (stated := size_in_billions(piece)) is not None:
            size = stated
        elif size is None and _NUMBER.match(piece) and len(piece) < 4:
            if version is None:
                version = _plain(piece)
            else:
                stray += 1
        words.add(piece)
    behind = pieces[at + 1] if at + 1 < len(pieces) else ""
    return Name(pieces[at], version, size, frozenset(words), stray, _letter(behind))


def _letter(behind: str) -> str:
    return behind if len(behind) == 1 and behind.isascii() and behind.isalpha() and behind != "v" else ""


def _readings(text: str, table: Table) -> Iterator[Name]:
    """The readings of one name, likeliest first: each family word in it, ``_`` and ``-`` as separators or points."""
    forms = dict.fromkeys((text, _UNDERSCORE_DECIMAL.sub(".", text), _HYPHEN_DECIMAL.sub(".", text)))
    for form in forms:
        pieces = _pieces(form, table)
        families = [i for i, piece in enumerate(pieces) if piece in table.patterns]
        for place in families[:_FAMILIES_READ]:
            yield _name(pieces, place)


@lru_cache(maxsize=4096)
def interpret(text: str, table: Table) -> tuple[ModelEntry | None, float | None, str | None]:
    """What a name says: the entry, and the size (billions) and version it states."""
    size: float | None = None
    version: str | None = None
    if first := _SIZE_FIRST.fullmatch(text):
        text = f"{first[2]}-{first[1]}"
    for reading in (*_readings(text, table), *_bases(text, table)):
        size = reading.size_b if size is None else size
        version = reading.version if version is None else version
        entry = select(reading, table)
        if entry is not None and not _of_another(reading, entry, table):
            return entry, reading.size_b, reading.version
    return None, size, version


def _of_another(name: Name, entry: ModelEntry, table: Table) -> bool:
    """Whether a fine-tune's name names a family of its own, which the entry is not of (``zephyr-7b-gemma``)."""
    if name.family not in table.derived:
        return False
    own = table.derived | table.telling[name.family]
    others = (word for word in name.words if word in table.patterns and word not in own)
    kind = entry.config.get("model_type")
    return any(all(p.entry.config.get("model_type") != kind for p in table.patterns[word]) for word in others)


def _bases(text: str, table: Table) -> Iterator[Name]:
    """Of a fine-tune's name the families it was made of, with the size wherever it stands: ``tulu-3-8b-llama3.1``.

    The number of a version counts where it follows the family word at once; any other is the fine-tune's own.
    """
    for form in dict.fromkeys((text, _UNDERSCORE_DECIMAL.sub(".", text))):
        pieces = _pieces(form, table)
        sizes = [size for piece in pieces if (size := size_in_billions(piece)) is not None]
        for at in [i for i, p in enumerate(pieces) if p in table.patterns and p not in table.derived][:_FAMILIES_READ]:
            behind = pieces[at + 1] if at + 1 < len(pieces) else ""
            version = _plain(behind) if _NUMBER.match(behind) and len(behind) < 4 else None
            words = frozenset(pieces[:at] + pieces[at + 1 :]) & (table.telling[pieces[at]] | _ALWAYS | _SHAPE_WORDS)
            if len(sizes) == 1 and (at > 0 or len(pieces) > at + 2):
                yield Name(pieces[at], version, sizes[0], words, 0, _letter(behind))


def _version_fits(stated: str | None, of_entry: str | None) -> bool:
    if stated is None or stated == of_entry:
        return True
    return of_entry is not None and "." in of_entry and of_entry.replace(".", "") == stated


def _size_gap(stated: float | None, pattern: Pattern) -> float | None:
    """How far a stated size is from an entry's, as a share; ``None``: another size."""
    if stated is None:
        return 0.0
    gaps = []
    if pattern.size_b is not None:
        gaps.append((abs(stated - pattern.size_b) / pattern.size_b, 0.03))
    if pattern.entry.params is not None:
        billions = pattern.entry.params / 1e9
        # A family that names no size is called by a rounded one: "phi-4 14b", "gpt-j 6b".
        gaps.append((abs(stated - billions) / billions, 0.015 if pattern.size_b else 0.15))
    return min((gap for gap, allowed in gaps if gap <= allowed), default=None)


def select(name: Name, table: Table) -> ModelEntry | None:
    """The entry that a reading names, or ``None`` where nothing or too much fits."""
    if name.stray_numbers:
        return None
    telling = name.words & table.telling[name.family]
    always = name.words & _ALWAYS | ({name.letter} if name.letter else frozenset())
    return _select(name, telling | always, table) or _select(name, telling & _SHAPE_WORDS | always, table)


def _select(name: Name, telling: frozenset[str], table: Table) -> ModelEntry | None:
    fits: list[tuple[float, Pattern]] = []
    for pattern in table.patterns[name.family]:
        if not _version_fits(name.version, pattern.version) or not pattern.needs <= name.words:
            continue
        gap = _size_gap(name.size_b, pattern)
        if gap is not None and not telling - pattern.needs - pattern.may:
            fits.append((gap, pattern))
    if name.version is None and any(p.version is None for _, p in fits):
        fits = [(gap, p) for gap, p in fits if p.version is None]
    if not fits:
        return None

    def fitness(gap: float, pattern: Pattern) -> tuple[int, bool, float]:
        return len(pattern.needs), pattern.size_b is not None or name.size_b is None, -gap

    best = max(fitness(gap, p) for gap, p in fits)
    return _one([p for gap, p in fits if fitness(gap, p) == best], name)


def _tiered(name: Name, pattern: Pattern) -> bool:
    """Whether the name says its size in a word of its own, which ``pattern`` does not know."""
    return any(_TIERS.fullmatch(word) for word in name.words - pattern.needs - pattern.may)


def _one(fits: list[Pattern], name: Name) -> ModelEntry | None:
    exact = len({p.entry.name for p in fits}) == 1
    if name.size_b is None:
        unsized = [p for p in fits if p.size_b is None]
        if (not unsized and not exact) or _tiered(name, (unsized or fits)[0]):
            return None
        fits = unsized or fits
        exact = len({p.entry.name for p in fits}) == 1
    # Of several generations the latest; the files list them in the order of their release.
    return fits[0].entry if exact else replace(fits[-1].entry, exact=False)
