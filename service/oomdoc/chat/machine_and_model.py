"""The card, the framework and the model that a turn names."""

from __future__ import annotations

import itertools
import re
from typing import Any, Final

from oomdoc.chat.choosing import of_size
from oomdoc.chat.context import Context
from oomdoc.chat.phrases import (
    is_corrected,
    is_off,
    is_replaced,
)
from oomdoc.chat.wording import patterns
from oomdoc.intake.asked import asked_in
from oomdoc.intake.numbers import read_number
from oomdoc.intake.quantities import quantities_in
from oomkb.catalog import models
from oomkb.catalog.gpus import find, find_all
from oomkb.frameworks import ENGINES, canonical
from oomkb.memory.job import Job
from oomkb.units import GIB

_RE: Final = patterns("reading")
_SIZE: Final = re.compile(r"(?i)[\s-]?\d{2,3}\s?G(?:i?B)?\b")
_PLURAL: Final = re.compile(r"(?<=\d)s\Z")
_LEADING_COUNT: Final = re.compile(r"\A(?:\d{1,4}|[一二两三四五六七八九十]{1,3})\s?[xX×*张块片卡个]?\s?(?=[A-Za-z0-9])")


_MAX_BEFORE: Final = 16
"""Characters before a card in which it may be said to be the present one."""
_ALL_BUT_SURE: Final = 0.9
"""Probability of a number of cards from which it counts beside that of a named one."""


def read_hardware(turn: str, job: Job, found: dict[str, Any]) -> None:
    """A GPU by name, and the number in front of it: "two 3090s", "2×4090", "换成 H20"."""
    mentions = [m for m in find_all(turn) if not is_replaced(turn, m.start)]
    mentions = [m for m in mentions if not is_corrected(turn, m.start)] or mentions
    now = [m for m in mentions if _RE["now"].search(turn[max(0, m.start - _MAX_BEFORE) : m.start])]
    counts = [q for q in quantities_in(turn) if q.role == "gpu_count" and q.probability >= _ALL_BUT_SURE]
    if len(counts) > 1 and counts[-1].value != counts[0].value and len(mentions) == 1:
        found.setdefault("gpus", int(counts[-1].value))  # "I borrow one more, two of them"
    for mention in now[-1:] or (mentions[-1:] if _arrowed(turn, mentions) else mentions[:1]):
        name = _PLURAL.sub("", _LEADING_COUNT.sub("", mention.text.strip()) if mention.count else mention.text.strip())
        name = _RE["size_first"].sub(r"\g<name> \g<size>", name)
        if not re.match(rf"(?i){re.escape(name)}[\s-]", job.gpu or ""):  # "four A100s": of the size that the job has
            found["gpu"] = name
        before = _RE["count_before"].search(turn[max(0, mention.start - 16) : mention.start])
        after = _RE["count_after"].match(turn[mention.start + len(mention.text) :])
        if "gpus" in found:
            continue
        if mention.count:
            found["gpus"] = mention.count
        elif before:
            found["gpus"] = int(read_number(before["n"]))
        elif after:
            found["gpus"] = int(after["n"] or after["m"])
    if not mentions and "gpu" not in found and (card := asked_in(turn).card) and card not in (job.gpu or ""):
        found["gpu"] = card
    size = found.get("capacity_gib")
    if size is not None and "gpu" not in found and job.gpu is not None:  # "the 40 GB ones"
        name = f"{_SIZE.sub('', job.gpu).strip()} {size:g}GB"
        sized = find(name)
        if sized is not None and sized.nominal_bytes == size * GIB:
            del found["capacity_gib"]
            found["gpu"] = name


def _arrowed(turn: str, mentions: list[Any]) -> bool:
    pairs = itertools.pairwise(mentions)
    return any(_RE["arrow"].match(turn[a.start + len(a.text) : b.start]) for a, b in pairs)


def read_framework(turn: str, job: Job, found: dict[str, Any]) -> None:
    """The framework by name, as long as none is known: "用 swift 训", "with axolotl"."""
    name = named_framework(turn) if job.framework is None or (job.framework in ENGINES and "method" in found) else None
    if name is not None and (found or _RE["with_it"].search(turn)):
        found |= {"framework": name, **({"planned": True} if job.model is not None else {})}


def named_framework(turn: str) -> str | None:
    """The framework that a turn names."""
    for match in _RE["framework"].finditer(turn):
        name = canonical(match[0])
        if name is not None and not is_off(turn, *match.span()):
            return name
    return None


def read_model(turn: str, context: Context, found: dict[str, Any]) -> None:
    """Another model by name, or another size of the same one: "换成 Qwen2.5-14B", "what if it was 14B"."""
    mentions = [] if "others_gib" in found else models.find_all(turn)  # else the one that is on the card, too
    mentions = [m for m in mentions if not is_corrected(turn, m.start)] or mentions
    mentions = [m for m in mentions if not is_replaced(turn, m.start)] or mentions
    if not mentions and "others_gib" not in found and (size := _RE["bare_size"].search(turn)) is not None:
        named = of_size(float(size["n"]), context)
        found.update({"model": named} if named else _resized(context.job, float(size["n"])))
    for mention in sorted(mentions, key=lambda m: not m.named):
        if mention.params_b and not mention.named and _RE["active"].search(turn):
            continue  # "only 3B active": how much of a mixture works, no size of the model
        if mention.entry is not None and mention.named:
            found["model"] = mention.text.strip()
        elif mention.named and (size := _RE["bare_size"].search(turn)) is not None:
            name = f"{mention.text.strip()}-{size['n']}B"
            found.update({"model": name, "params_b": None} if models.find(name) is not None else {})
        elif mention.params_b and not mention.named:
            named = of_size(mention.params_b, context)
            found.update({"model": named} if named else _resized(context.job, mention.params_b))
        else:
            continue
        return


def _resized(job: Job, params_b: float) -> dict[str, Any]:
    """The same family at another size, where the catalogue has it; else the size alone."""
    if isinstance(job.model, str):
        name = _RE["size_in_name"].sub(f"{params_b:g}B", job.model, count=1)
        if name == job.model:
            return {}
        plain = _RE["release_in_name"].sub("", name)  # "llama 3.3" has no 8B
        for one in (name, plain):
            if models.find(one) is not None:
                return {"model": one, "params_b": None}
    return {"model": None, "params_b": params_b}
