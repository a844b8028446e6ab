"""Finding model names in prose, commands and logs. Linear: one pass for words, one for sizes."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import Final

from oomkb.catalog import gpu_text
from oomkb.catalog.gpu_data import lowered, occurrences, words
from oomkb.catalog.model_data import ModelEntry
from oomkb.catalog.model_text import Table, interpret, size_in_billions
from oomkb.dataclass import dataclass
from oomkb.kept import lazy

_WORD: Final = lazy(r"[a-z]{2,24}", re.I | re.A)
_CHUNK: Final = frozenset(string.ascii_letters + string.digits + "._/\\~@-")
_LONGEST_CHUNK: Final = 160
_CHUNK_RIGHT: Final = lazy(r"[A-Za-z0-9._/\\@+-]{1,160}", re.A)
_MORE: Final = lazy(
    r"[ \t](v?[0-9]{1,2}(?:\.[0-9]{1,2})?(?:[ -](?=[0-9.]{1,5}b\b))?"
    r"|[0-9]{1,3}(?:\.[0-9]{1,2})?(?:x[0-9]{1,3})?[bm](?:-[a-z0-9-]{2,40})?|[a-z][a-z0-9-]{1,20})(?![a-z0-9])",
    re.I | re.A,
)
_PLAIN_WORDS: Final = words(
    "instruct chat base it hf awq gptq gguf int4 int8 fp8 4bit 8bit distill mini small medium large"
)
_OTHER_THING: Final = lazy(
    r"[-_. ]?(?:model_|fine-?tuning|factory|cpp|recipes|index|stack|board|cookbook|pajama|adapter|guard\b|parse"
    r"|efficient-tuning|forum|hub|server|attn|tokenizer)"
    r"|[0-9]{0,2}(?:for|decoder|attention|mlp|model|rms|rotary|config|tokenizer|sdpa|flash|moe[A-Z]|pretrained)",
    re.I,
)
_CODE_FILE: Final = lazy(r"\.(?:py|pyc|cpp|cc|cu|h|hpp|c|so|rs|go|js|ts|md)\b", re.I)
_SETTINGS_FILE: Final = lazy(r"\.(?:ya?ml|json|jsonl|toml|sh|log|txt|ini|csv|parquet)\Z", re.I)
_SIZED: Final = lazy(r"(?<![A-Za-z0-9.])([0-9]{1,4}(?:\.[0-9]{1,3})?)([bBM])(?![A-Za-z0-9])", re.A)
_ABOUT_MODELS: Final = lazy(r" ?(?:model|模型|参数|的|llm|lora|qlora|param|full|sft|ft\b|dense|moe)", re.I)
_SPOKEN_OF: Final = lazy(
    r"(?:\b(?:an?|my|the|our|of|for|train|run|load|dense|q?lora|sft|dpo|ppo|grpo|ft|tun(?:e|ing)|serv(?:e|ing)|host)"
    r"[ \t]"
    r"|[\u4e00-\u9fff][ \t]?)\Z",
    re.I,
)
_HUB: Final = lazy(r"//(?:www\.)?(?:huggingface\.co|hf-mirror\.com|modelscope\.cn|(?:www\.)?kaggle\.com)/", re.I)
_TRIM: Final = "./-_:\\@+"
_TAG: Final = lazy(r":[0-9]{1,4}(?:\.[0-9]{1,2})?b(?:-[\w.-]{1,40})?(?![\w:])", re.I | re.A)
"""Size and quantization behind a name as Ollama's library writes them: ``qwen2.5:32b-instruct-q4_K_M``."""
_SIZE_BEFORE: Final = lazy(r"(?<![A-Za-z0-9.])[0-9]{1,4}(?:\.[0-9]{1,2})?[bm](?:[ -]| ?[(（])\Z", re.I | re.A)
_OPENED: Final = lazy(r" ?[(（]", re.A)
"""Between a size and the family in brackets behind it: ``70B (Llama 3.1)``."""


@dataclass(frozen=True, slots=True)
class ModelMention:
    """One place where a text names a model."""

    entry: ModelEntry | None
    text: str
    start: int
    end: int
    params_b: float | None
    """Parameters in billions: the entry's, or what the name states."""
    named: bool = True
    """Whether there is a name, or only a size (``"a 13B"``)."""


def _chunk(text: str, start: int, end: int) -> tuple[int, int]:
    """The unbroken name or path around a word."""
    begin = start
    while begin > max(0, start - _LONGEST_CHUNK) and text[begin - 1] in _CHUNK:
        begin -= 1
    right = _CHUNK_RIGHT.match(text, end)
    stop = right.end() if right else end
    while stop > end and text[stop - 1] in _TRIM:
        stop -= 1
    while begin < start and text[begin] in "-_@\\":
        begin += 1
    return begin, stop


def _elsewhere(chunk: str) -> bool:
    """Whether a chunk is an address that is no page of a model."""
    return chunk.startswith("//") and not _HUB.match(chunk)


def _extend(text: str, family: str, end: int, table: Table) -> int:
    """Take in what follows after a blank and belongs to the name: ``3.1 70B Instruct``."""
    known = table.telling[family]
    reached = end
    for _ in range(5):
        more = _MORE.match(text, reached)
        if more is None:
            break
        word = more[1].lower()
        number = word[0].isdigit() or (word[0] == "v" and word[1:2].isdigit())
        if not number and word not in _PLAIN_WORDS and not set(word.split("-")) & known:
            break
        if (
            number
            and size_in_billions(word.split("-")[0]) is None
            and not re.match(r"(?:v?[0-9]{1,2}(?:\.[0-9]{1,2})?)\Z", word.strip(" -"))
        ):
            break
        reached = more.end()
    # A number at the end that no size follows is more likely a count than a version ("llama 2 gpus").
    tail = text[end:reached]
    return end + len(re.sub(r"(?:[ \t][0-9]{1,2}[ -]?){1,3}\Z", "", tail)) if tail else end


def _mention(
    text: str, start: int, end: int, table: Table, find: Callable[[str], ModelEntry | None]
) -> ModelMention | None:
    begin, stop = _chunk(text, start, end)
    chunk = text[begin:stop]
    if _CODE_FILE.search(chunk) or _OTHER_THING.match(text, end) or _elsewhere(chunk):
        return None
    family = text[start:end].lower()
    family = family if family in table.patterns else table.spellings[family][0]
    slash = chunk.rfind("/", start - begin)
    if tag := _TAG.match(text, stop):
        stop = tag.end()
        chunk = text[begin:stop]
    elif slash < 0:
        stop = _extend(text, family, stop, table)
        chunk = text[begin:stop]
    if (size := _SIZE_BEFORE.search(text, max(0, begin - 8), begin)) and interpret(chunk, table)[1] is None:
        begin = size.start()
        chunk = _OPENED.sub(" ", text[begin:stop])
    entry = find(chunk)
    if entry is None and _SETTINGS_FILE.search(chunk):
        return None
    _, stated, version = interpret(chunk.rpartition("/")[2], table)
    if family in table.weak and not _means_a_model(entry, stated, version, chunk):
        return None
    params = entry.params / 1e9 if entry is not None and entry.params else stated
    return ModelMention(entry, chunk, begin, stop, params)


def _means_a_model(entry: ModelEntry | None, stated: float | None, version: str | None, chunk: str) -> bool:
    """Whether a family word that is also an ordinary word (``falcon``, ``opt``) names a model here."""
    if stated is not None or (version is not None and entry is not None):
        return True
    return entry is not None and any(mark in chunk for mark in "-_/ ")


def _sized(text: str, match: re.Match[str]) -> ModelMention | None:
    """A mention by size alone: ``foo-13B``, ``a 13B model``, ``14B 就爆了``."""
    begin, stop = _chunk(text, match.start(), match.end())
    chunk = text[begin:stop]
    named = begin < match.start() and any(c.isalpha() for c in text[begin : match.start()])
    if _CODE_FILE.search(chunk) or _SETTINGS_FILE.search(chunk) or _elsewhere(chunk):
        return None
    if not named and (match[2] == "M" or gpu_text.is_core(match[0].lower())):  # an Ascend 910B is no model
        return None
    spoken = _ABOUT_MODELS.match(text, match.end()) or _SPOKEN_OF.search(text, max(0, begin - 14), begin)
    if not named and match[2] == "b" and not spoken:
        return None
    begin, stop = (begin, stop) if named else match.span()
    size = size_in_billions(f"{match[1]}{match[2].lower()}")
    return ModelMention(None, text[begin:stop], begin, stop, size, named)


def scan(text: str, table: Table, find: Callable[[str], ModelEntry | None]) -> list[ModelMention]:
    """Mentions in order of place, none overlapping another; bare sizes (``13B``) among them, ``named=False``."""
    found: list[ModelMention] = []
    reached = 0
    low = lowered(text)
    places = occurrences(low, _WORD, lambda w: w in table.patterns or w in table.spellings)
    for start, end, word in sorted([*places, *_chinese(low, table.chinese)], key=lambda at: (at[0], -at[1])):
        if start < reached:
            continue
        mention = _mention(text, start, end, table, find)
        if mention is not None and (word.isascii() or mention.params_b is not None):
            found.append(mention)
            reached = mention.end
    taken = list(found)
    for match in _SIZED.finditer(text):
        while taken and taken[0].end <= match.start():
            taken.pop(0)
        if taken and taken[0].start < match.end():
            continue
        sized = _sized(text, match)
        if sized is not None:
            found.append(sized)
    found.sort(key=lambda m: (m.start, -m.end))
    return _apart(found)


def _chinese(low: str, names: tuple[str, ...]) -> list[tuple[int, int, str]]:
    """Chinese names of families, anywhere: no blank sets them apart."""
    if low.isascii():
        return []
    return [(m.start(), m.end(), name) for name in names for m in re.finditer(re.escape(name), low)]


def _apart(mentions: list[ModelMention]) -> list[ModelMention]:
    kept: list[ModelMention] = []
    for mention in mentions:
        if not kept or mention.start >= kept[-1].end:
            kept.append(mention)
    return kept
