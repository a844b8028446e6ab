"""Settings that are named with a value, in any spelling: ``per_device_train_batch_size=1``, ``batch size 设成 1``,
``Sequence length: 4k``, ``tp 4``, an argv list in a log, a command that was cut.

One reader for sentences, commands and logs: the names are rows of ``settings.toml``. The tables of
:mod:`oomdoc.intake.configs` know whole documents, are more specific, and win.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from oomdoc.evidence import Fact, Origin, Span
from oomdoc.intake.lines import Line
from oomdoc.intake.numbers import to_tokens, typed
from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import doubt, not_given
from oomdoc.intake.prose.models import PLAIN_NAME, tidy_model
from oomkb.dataclass import dataclass
from oomkb.kept import compiled
from oomkb.tables import read_toml
from oomkb.units import billions

_RE: Final = patterns(__file__)
_LONGEST: Final = 7
"""Words of the longest name."""
_MAX_TOKENS: Final = 700
"""Words of a line that are looked at."""
_MAX_PATH: Final = 80
"""Characters before a name in which the sections are looked for that it stands in (``ref.fsdp_config.``)."""
_KINDS_OF_ON: Final = {"unsloth": "offload", "selective": "selective"}
"""How checkpointing is on, as the job says it."""
_TRUE: Final = frozenset({"true", "yes", "on", "1", "full", "selective", "unsloth"})
_FALSE: Final = frozenset({"false", "no", "off", "0", "none", "null", "disable", "disabled", "no_offload"})
_RANGES: Final = {
    "seq_len": (16, 20_000_000),
    "max_model_len": (16, 20_000_000),
    "micro_batch": (1, 8192),
    "tp": (1, 64),
    "pp": (1, 64),
}


@dataclass(frozen=True, slots=True)
class _Setting:
    fact: str
    kind: str
    doubt: float
    not_after: frozenset[str]
    not_under: frozenset[str]
    spoken: bool
    written: bool
    assigned: bool


@dataclass(frozen=True, slots=True)
class _Mention:
    """A name with its value, where it stands."""

    setting: _Setting
    value: Any
    span: Span
    flag: bool
    sure: float


@dataclass(frozen=True, slots=True)
class _Table:
    names: dict[str, tuple[_Setting, ...]]
    heads: frozenset[str]
    chinese: re.Pattern[str]
    values: dict[str, dict[str, Any]]


@cache
def _table() -> _Table:
    data = read_toml(Path(__file__).with_name("settings.toml"))
    names: dict[str, tuple[_Setting, ...]] = {}
    for fact, kind, less, options, *spelt in data["setting"]:
        excluded = frozenset(options.get("not_after", "").split())
        under = frozenset(options.get("not_under", "").split())
        flags = (options.get(name, False) for name in ("spoken", "written", "assigned"))
        setting = _Setting(fact, kind, less, excluded, under, *flags)
        for name in " ".join(spelt).split():
            plain = name.replace("_", "")
            names[plain] = (*names.get(plain, ()), setting)
    heads = {
        head[0]
        for name in " ".join(" ".join(row[4:]) for row in data["setting"]).split()
        if (head := _RE["token"].match(name))
    }
    chinese = sorted((name for name in names if not name.isascii()), key=len, reverse=True)
    pattern = "|".join(re.sub(r"(?<=[a-z])(?=[一-鿿])", " ?", name) for name in chinese)
    values = {
        kind: {
            "" if spelling == "-" else spelling: typed(value)
            for value, spelt in rows.items()
            for spelling in spelt.split()
        }
        for kind, rows in data["values"].items()
    }
    values["rank"] = {str(rank): "lora" for rank in range(1, 2049)}
    return _Table(names, frozenset(heads), compiled(pattern, re.IGNORECASE), values)


def read_settings(lines: Sequence[Line], *, sure: float, prose: bool = False) -> Iterator[Fact]:
    """Facts of named settings; a line that is commented out says nothing.

    :param sure: how sure a name written as a key is; spoken ones are less.
    """
    found = [
        m for line in lines if not line.text.lstrip().startswith(("#", "//")) for m in _mentions(line, sure, prose)
    ]
    offloaded = tuple(dict.fromkeys(part for m in found if m.setting.fact == "offload" for part in m.value))
    for mention in found:
        yield from _facts(replace(mention, value=offloaded) if mention.setting.fact == "offload" else mention)
    yield from _lengths(found, sure)
    if prose:
        yield from (fact for line in lines for fact in _ahead(line))


def _mentions(line: Line, sure: float, prose: bool) -> Iterator[_Mention]:
    table, text = _table(), line.text
    if not table.heads.isdisjoint(_RE["token"].findall(line.low)):
        yield from _spelt(line, table, sure, prose)
    if prose and not text.isascii():
        for found in table.chinese.finditer(text):
            for setting in table.names[found[0].lower().replace(" ", "")]:
                mention = _valued(line, setting, found.start(), found.end(), "", sure, prose)
                if mention is not None:
                    yield mention


def _spelt(line: Line, table: _Table, sure: float, prose: bool) -> Iterator[_Mention]:
    text = line.text
    tokens = [m.span() for _, m in zip(range(_MAX_TOKENS), _RE["token"].finditer(text), strict=False)]
    low = line.low if line.text is line.raw else text.lower()
    at = 0
    while at < len(tokens):
        start, end = tokens[at]
        if low[start:end] not in table.heads or (start and (text[start - 1].isdigit() or text[start - 1] in "/\\")):
            at += 1
            continue
        name, reached = "", start
        best: tuple[int, int, tuple[_Setting, ...]] | None = None
        for place in range(at, min(at + _LONGEST, len(tokens))):
            first, last = tokens[place]
            if text[reached:first] not in ("", "_", "-", ".", " "):
                break  # not joined to the name
            name, reached = name + low[first:last], last
            known = table.names.get(name)
            if known is not None and _whole(text, last) and not (known[0].written and " " in text[start:last]):
                best = place, last, known
        if best is None:
            at += 1
            continue
        before = low[tokens[at - 1][0] : tokens[at - 1][1]] if at and start - tokens[at - 1][1] <= 1 else ""
        for setting in best[2]:
            other = bool(setting.not_under) and not setting.not_under.isdisjoint(_sections(low, start))
            if (before not in setting.not_after or not before) and not other:
                mention = _valued(line, setting, start, best[1], text[start : best[1]], sure, prose)
                if mention is not None:
                    yield mention
        at = best[0] + 1


def _sections(low: str, start: int) -> list[str]:
    """The sections of a dotted key in which a name stands: ``ref`` and ``fsdp_config`` of ``ref.fsdp_config.``."""
    path = low[max(0, start - _MAX_PATH) : start].split()
    return path[-1].split(".") if path and not low[start - 1].isspace() else []


def _whole(text: str, end: int) -> bool:
    """Whether a name ends here: no further word is tied to it."""
    tail = text[end : end + 2]
    return not (tail[:1] == "_" or (tail[:1] == "-" and tail[1:].isalpha()) or (tail[:1] == "(" and tail[1:] != ""))


def _valued(
    line: Line, setting: _Setting, start: int, end: int, name: str, sure: float, prose: bool
) -> _Mention | None:
    """The mention, where a value follows."""
    text = line.text
    flag = start > 0 and text[start - 1] in "-+" and (start < 2 or text[start - 2] in "-+ \t\"'([")
    several = any(c in name for c in "_-. ") or not name.isascii()
    numeric = setting.kind in ("int", "share")
    mark = _RE["mark"].match(text, end)
    if mark is not None:
        at, weight = mark.end(), 0.0
    elif setting.assigned:
        return None
    elif flag and (gap := compiled(r"\s{0,12}").match(text, end)) is not None:
        at, weight = gap.end(), 0.0
    elif (link := _RE["link"].match(text, end)) is not None and (several or setting.spoken or "_" in name):
        at, weight = link.end(), 0.0 if "_" in name else 0.05
        if not numeric and "_" not in name and setting.kind != "bool":
            return None
    elif "_" in name and text[end : end + 1] in " \t" and setting.kind not in ("bool", "model"):
        at, weight = end + 1, 0.0
    else:
        return None
    value, stop = _value(setting, text, at, flag)
    if value is None or not_given(text, start):
        return None
    key = flag or "_" in name or (mark is not None and not prose)
    sure -= setting.doubt + weight + (0.0 if key or mark is not None else 0.05)
    if prose and (minus := doubt(text, start, stop)):
        sure = max(0.5, sure - minus) if minus < 0.5 else sure - minus
    return _Mention(setting, value, line.span(start + 1), flag, sure)


def _facts(mention: _Mention) -> Iterator[Fact]:
    name, sure = mention.setting.fact, mention.sure
    if name.startswith("_") and name != "_nodes":
        return
    origin: Origin = "command" if mention.flag else "config"
    if name == "model" and PLAIN_NAME.fullmatch(str(mention.value).rsplit("/", 1)[-1]):
        sure = 0.4
    yield Fact(name, mention.value, mention.span, origin, max(0.3, sure))
    if name == "model" and (size := billions(str(mention.value))) is not None:
        yield Fact("params_b", size, mention.span, origin, max(0.3, sure))


_IN_THOUSANDS: Final = frozenset({"seq_len", "max_model_len", "_prompt_len", "_completion_len", "_global_batch"})
"""Counts that people write with a "k": lengths, and a batch over all cards. Behind any other, "which batch at 4k", the
number is a length.
"""


def _value(setting: _Setting, text: str, at: int, flag: bool) -> tuple[Any, int]:
    """The value as its kind reads it, and where it ends; ``None`` where it cannot be one."""
    kind = setting.kind
    if kind == "int":
        whole = _RE["int"].match(text, at)
        value = to_tokens(whole[1] + (whole[2] or "")) if whole is not None else None
        low, high = _RANGES.get(setting.fact, (1, 65536))
        if value is None or whole is None or not low <= value <= high:
            return None, at
        if whole[2] and setting.fact not in _IN_THOUSANDS:
            return None, at
        if setting.fact == "gpu_count" and _RE["series"].fullmatch(whole[1]):
            return None, at
        return value, whole.end()
    if kind == "share":
        share = _RE["share"].match(text, at)
        return (float(share[1]), share.end()) if share is not None else (None, at)
    if kind == "stage":
        stage = _RE["stage"].search(text, at, at + 80) or compiled(r"[\"']?([0-3])(?![\d.])").match(text, at)
        return (int(stage[1]), stage.end()) if stage is not None and "\n" not in stage[0] else (None, at)
    found = _RE["value"].match(text, at)
    raw = found["value"].strip("\\*").rstrip(",.") if found is not None else ""
    stop = found.end() if found is not None else at
    if raw.startswith("-") and not raw[1:2].isdigit():
        raw = ""
    return _word_value(kind, raw, text[stop : stop + 1], flag, text, at), stop


def _word_value(kind: str, raw: str, behind: str, flag: bool, text: str, at: int) -> Any:
    low = raw.lower().removeprefix("torch.")
    if kind == "devices":
        listed = compiled(r"[\"']?(\d{1,3}(?:,\d{1,3}){0,63})").match(text, at)
        return len(listed[1].split(",")) if listed is not None else None
    if behind == "(" or "(" in raw:
        return None
    if kind == "bool":
        on = _KINDS_OF_ON.get(low, True)
        return False if low in _FALSE else on if low in _TRUE or (raw == "" and flag) else None
    if kind == "model":
        known = low in _TRUE | _FALSE or _RE["variable"].fullmatch(low) or _RE["plain_word"].fullmatch(low)
        odd = len(low) < 2 or low.isdigit() or "$" in raw or low.endswith((".py", ".sh", "="))
        return None if known or odd else tidy_model(raw)
    if raw == "" and not flag:
        return None
    return _table().values[kind].get(low.replace("-", "_"))


def _lengths(found: Sequence[_Mention], sure: float) -> Iterator[Fact]:
    """The longest sequence of RL jobs, whose prompt and completion are set apart; where alone, the completion."""
    numbers: dict[str, _Mention] = {}
    for mention in found:
        if isinstance(mention.value, int):
            numbers.setdefault(mention.setting.fact, mention)
    rl = any(m.setting.kind == "objective" and m.value in ("grpo", "ppo") for m in found)
    prompt = numbers.get("_prompt_len") or (numbers.get("seq_len") if rl else None)
    completion = numbers.get("_completion_len")
    if prompt and completion:
        yield Fact("seq_len", prompt.value + completion.value, prompt.span, "command", min(1.0, sure + 0.05))
    elif completion:
        yield Fact("completion_len", completion.value, completion.span, "command", sure)


def _ahead(line: Line) -> Iterator[Fact]:
    if not _RE["ahead"].may_match(line.low):
        return
    for found in _RE["ahead"].finditer(line.text):
        minus = doubt(line.text, found.start(), found.end())
        minus = minus if minus > 0.5 else min(minus, 0.06)
        span = line.span(found.start() + 1)
        if found["length"] and (value := to_tokens(found["length"])) is not None and value >= 16:
            plain = found[0].rstrip("s").endswith("token")
            yield Fact("seq_len", value, span, "prose", (0.56 if plain else 0.7) - minus)
        elif found["steps"]:
            yield Fact("grad_accum", int(found["steps"]), span, "prose", 0.7 - minus)
        elif found["each"]:
            yield Fact("micro_batch", int(found["each"]), span, "prose", 0.75 - minus)
