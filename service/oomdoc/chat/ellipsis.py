"""Turns that leave out what they are about: "half of that", "6k then"."""

from __future__ import annotations

import re
from typing import Any, Final

from oomdoc.chat.context import Context
from oomdoc.chat.operators import Operator, find_operators
from oomdoc.chat.phrases import ALONE, OFF_VALUES, QUANTITIES, Quantity
from oomdoc.chat.wording import patterns, words
from oomdoc.intake.numbers import NUMBER, read_number
from oomkb.catalog import gpus
from oomkb.memory.job import Job
from oomkb.memory.setting import ONLINE

_BY_FIELD: Final = {q.field: q for q in QUANTITIES}
_ALIASES: Final = {
    "rollout.gpu_memory_utilization": "gpu_memory_utilization",
    "serving.gpu_memory_utilization": "gpu_memory_utilization",
    "gpu": "gpus",
    "method": "lora.r",
}
_CLAUSE: Final = re.compile(r"(?i)[,，;；。、]|\band\b|\bthen\b")
_CLAUSES: Final = re.compile(r"[,，;；。]|\.\s")
PARTS: Final = re.compile(r"(?i)[,，;；。]|\.\s|\band\b|\bbut\b")
_RE: Final = patterns("ellipsis")
_FILLERS: Final = words("fillers")
_OFF: Final = frozenset({"off", "关", "取消", "去掉"})
_MAX_CHARS: Final = 48
_SHORTEST_LENGTH: Final = 32
_COUNTED: Final = frozenset({"gpus", "nodes", "tp", "pp", "cp", "ep", "sp"})
_MAX_ADDED: Final = 64
"""Cards, nodes or ranks that a turn may add to those that there are."""
_BARE_ONLY: Final = re.compile(r"\d{1,7}k?")
_BARE: Final = re.compile(rf"(?i)(?<![\w.])(?P<n>{NUMBER}|[01]?\.\d{{1,3}}|\d{{2}}\s?%)")


def relative(turn: str, context: Context, found: dict[str, Any]) -> list[tuple[int, int]]:
    """Changes relative to present values, put into ``found``; the spans that they used."""
    used: list[tuple[int, int]] = []
    for operator in find_operators(turn):
        quantity = _BY_FIELD[operator.field] if operator.field else _nearest(turn, operator, context, found)
        if quantity is None and not any(q.pattern.search(turn) for q in QUANTITIES):
            quantity = next(iter(_recent(context)), None)
        if quantity is None or (quantity.field in _COUNTED and operator.apply(0.0) > _MAX_ADDED):
            continue
        value = _applied(operator, quantity, context)
        if value is not None:
            found[quantity.field] = value
            used.append((operator.start, operator.end))
    return used


def _nearest(turn: str, operator: Operator, context: Context, found: dict[str, Any]) -> Quantity | None:
    """The field named next to an operator, best in the same clause; only fields that have a value."""
    best: tuple[int, int, Quantity] | None = None
    for quantity in QUANTITIES:
        if quantity.field in found or not isinstance(context.present(quantity.field), int | float):
            continue
        for match in quantity.pattern.finditer(turn):
            low, high = sorted((match.start(), match.end(), operator.start, operator.end))[1:3]
            gap = turn[low:high] if not (match.start() < operator.end and operator.start < match.end()) else ""
            rank = (len(_CLAUSE.findall(gap)), len(gap), quantity)
            if best is None or rank[:2] < best[:2]:
                best = rank
    return best[2] if best and best[0] <= 1 else None


def _applied(operator: Operator, quantity: Quantity, context: Context) -> Any:
    present = context.present(quantity.field)
    if not isinstance(present, int | float) or isinstance(present, bool):
        return None
    if quantity.field == "gpu_memory_utilization":
        share = operator.apply(present)
        share = share if 0 < share <= 1 else operator.apply(present * 100) / 100  # "5 points less"
        return round(min(0.98, max(0.05, share)), 3)
    return max(int(min(quantity.lowest, present)), round(operator.apply(float(present))))


def fill(turn: str, context: Context) -> dict[str, Any]:
    """What stands alone: a switch or a word for what was changed last, a number for that or for what was asked."""
    if len(turn) > _MAX_CHARS:
        clauses = PARTS.split(turn)
        return fill(clauses[0], context) if len(clauses) > 1 and len(clauses[0]) <= _MAX_CHARS else {}
    latest = next(iter(context.recent), None)
    counts = bool(_BARE_ONLY.fullmatch(_rest(turn))) and bool(_recent(context)[:1])
    if latest is not None and latest.field in OFF_VALUES and (found := switched(turn, context)):
        return found
    if latest is not None and not counts and (word := _rest(turn)):
        for value, spelt in ALONE.get(latest.field, {}).items():
            if spelt.fullmatch(word):
                return {latest.field: value}
    matches = list(_BARE.finditer(turn))
    if not matches or _rest(_BARE.sub(" ", turn)):
        clauses = [clause for clause in PARTS.split(turn) if clause.strip() != turn.strip()]
        return next((found for clause in clauses if (found := fill(clause, context))), {})
    try:
        number = read_number(matches[-1]["n"].replace("%", "").strip())
    except ValueError:
        return {}
    if gpus.variants(matches[-1]["n"].strip()):
        return {"gpu": matches[-1]["n"].strip()}
    quantity = _meant(number, context, thousands=matches[-1]["n"].strip().lower().endswith("k"))
    return {quantity.field: quantity.convert(number)} if quantity else {}


def switched(turn: str, context: Context) -> dict[str, Any]:
    """What was switched last, where a clause of the turn is nothing but a switch: "keep it on, and length 4096"."""
    latest = next((recent for recent in context.recent if recent.field in OFF_VALUES), None)
    clauses = (_RE["switch"].fullmatch(clause.strip()) for clause in _CLAUSES.split(turn))
    switch = next((found for found in clauses if found is not None), None)
    if latest is None or switch is None:
        return {}
    off = OFF_VALUES[latest.field]
    on = True if isinstance(off, bool) else latest.old
    return {latest.field: off if (switch["en"] or switch["zh"]).lower() in _OFF else on}


def _rest(turn: str) -> str:
    """What is left of a turn without words that say nothing."""
    words = re.sub(r"[^\w.]|\.(?!\d)", " ", _RE["zh_fillers"].sub(" ", turn.replace("'", ""))).lower().split()
    return " ".join(w for w in words if w not in _FILLERS)


def _meant(number: float, context: Context, *, thousands: bool) -> Quantity | None:
    """The field that a bare number is for: one that was refused, asked for or dealt with lately, else one that the job
    states, whose present value it is not far from; one written as "4k" is a length of some kind.
    """
    serves = context.job.objective == "inference"
    if 0 < number < 1:
        return _BY_FIELD["gpu_memory_utilization"] if serves or context.has_rollout else None
    refused = _recent(context)[:1] if context.refused else []
    answers = [_BY_FIELD[name] for name in context.wanted if name in _BY_FIELD]
    usual = [_BY_FIELD[name] for name in (_SERVED if serves else (length_of(context.job), *_TRAINED))]
    sure = {*(q.field for q in (*refused, *answers))}
    for quantity in (*refused, *answers, *_recent(context), *usual):
        whole = number == int(number) or quantity.field == "gpu_memory_utilization"
        within = quantity.lowest <= number <= quantity.highest
        if not whole or not within or (thousands and quantity.lowest < _SHORTEST_LENGTH):
            continue
        if quantity.field in sure or _is_near(number, quantity, context):
            return quantity
    return None


def length_of(job: Job) -> str:
    """What a length without a name is: of what is generated, where a run makes its own samples."""
    return "completion_len" if job.objective in ONLINE and job.completion_len else "seq_len"


def _is_near(number: float, quantity: Quantity, context: Context) -> bool:
    """Whether a number may be the next value of a field, by its present one."""
    present = context.present(quantity.field)
    if not isinstance(present, int | float) or isinstance(present, bool) or present <= 0:
        return quantity.lowest >= _SHORTEST_LENGTH and number >= quantity.lowest
    far = _FAR_LENGTH if quantity.lowest >= _SHORTEST_LENGTH else _FAR_GIB if quantity.field == "host_gib" else _FAR
    return max(number / present, present / number) <= far


_FAR, _FAR_LENGTH, _FAR_GIB = 32, 256, 8
"""How many times a number may be the present value of a field that it is taken for; lengths move further."""
_TRAINED: Final = ("micro_batch", "gpus")
_SERVED: Final = ("serving.max_model_len", "serving.concurrency", "gpus")
"""What a number that stands alone is about where nothing was dealt with yet."""


def _recent(context: Context) -> list[Quantity]:
    serves = context.job.objective == "inference"
    recent = [r.field for r in context.recent if serves or not r.field.startswith("serving.")]
    plain = [name for name in recent if name in _BY_FIELD]
    names = [*plain, *(_ALIASES.get(name, name) for name in recent)]  # a number that was set comes before a card
    return [_BY_FIELD[n] for n in dict.fromkeys(names) if n in _BY_FIELD]
