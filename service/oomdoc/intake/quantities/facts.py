"""Facts of prose and the roles of its numbers: what a role rules out goes, what only a role tells is added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from oomdoc.evidence import Evidence, Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.polarity import doubt, negated, not_given
from oomdoc.intake.quantities.fields import SET_BY, SURE, around, is_of_process, refutes, sure_of, whole
from oomdoc.intake.quantities.reader import Quantity, quantities_in
from oomkb.catalog import gpus
from oomkb.kept import compiled
from oomkb.units import GIB

_CONFIDENCE: Final = 0.6
"""Of a fact that only the role of its number tells."""
_FACTS: Final[Mapping[str, str]] = {
    "length": "seq_len",
    "micro_batch": "micro_batch",
    "grad_accum": "grad_accum",
    "gpu_count": "gpu_count",
    "nodes": "node_count",
    "tp": "tp",
    "pp": "pp",
    "zero_stage": "zero_stage",
    "card_memory": "capacity_gib",
    "host_memory": "host_gib",
    "params": "params_b",
    "lora_r": "lora.r",
    "utilization": "gpu_memory_utilization",
}
"""Role to the fact that it states."""
_SAME: Final = 0.006
"""Share by which two readings of one number may differ (GB and GiB are one)."""


def by_role(facts: Sequence[Fact], prose: Sequence[Line]) -> list[Fact]:
    """The facts, those of prose in agreement with what its numbers are of."""
    text, places, at = "\n".join(line.text for line in prose), list[tuple[int, Line]](), 0
    for line in prose:
        places.append((at, line))
        at += len(line.text) + 1
    kept = [fact for fact in facts if not _is_refuted(fact, text, places)]
    if (machines := _on_machines(text, places)) is not None:
        each, fact = machines
        kept = [f for f in kept if not (f.name == "gpu_count" and f.origin == "prose" and f.value == each)] + [fact]
    if (limit := _limit(text, places)) is not None:
        kept = [f for f in kept if f.name != "capacity_gib" or f.origin != "prose"] + [limit]
    known = {fact.name for fact in kept}
    if "rollout.tensor_parallel" in known:
        known.add("tp")
    kept += [fact for fact in _told(text, places) if fact.name not in known]
    alone = not any(fact.name == "gpu" for fact in kept)
    said = {fact.name: fact.value for fact in kept}
    card, count = gpus.find(str(said.get("gpu") or "")), said.get("gpu_count")
    if (
        card is not None
        and isinstance(count, int)
        and is_of_all_cards(said.get("capacity_gib", 0.0), count, card.capacity_bytes)
    ):
        kept = [f for f in kept if f.name != "capacity_gib" or f.origin != "prose"]
    return [f for f in kept if not (alone and f.name == "capacity_gib" and f.origin == "prose" and f.value > _LARGEST)]


def is_of_all_cards(size_gib: float, count: int, card_bytes: float) -> bool:
    """Whether a size is what several cards hold together: "2x3090 = one 48 GB card"."""
    return count > 1 and abs(size_gib - count * card_bytes / GIB) <= _ROUNDED * size_gib


_ROUNDED: Final = 0.04
"""Part by which a card's memory and its name in GB differ."""


def _on_machines(text: str, places: Sequence[tuple[int, Line]]) -> tuple[float, Fact] | None:
    """The cards of one machine, and the fact of the cards of all: ``2 nodes of 8``."""
    parts = {}
    for role in ("nodes", "gpus_per_node", "gpu_count"):
        sure = sure_of(text, role)
        if len({q.value for q in sure}) > 1:
            return None
        parts[role] = sure[0] if sure else None
    nodes, each = parts["nodes"], parts["gpus_per_node"]
    if (
        nodes is None
        or each is None
        or parts["gpu_count"] is not None
        or not 1 < nodes.value * each.value <= _MAX_CARDS
    ):
        return None
    start, line = _line_of(each, places)
    count = int(nodes.value * each.value)
    return each.value, Fact("gpu_count", count, line.span(each.start - start + 1), "prose", _CONFIDENCE + 0.2)


def _limit(text: str, places: Sequence[tuple[int, Line]]) -> Fact | None:
    """What a person says may be used of a card at most, in place of what it holds; of one value."""
    sure = sure_of(text, "memory_limit")
    if len({q.value for q in sure}) != 1 or negated(text, sure[0].start):
        return None
    start, line = _line_of(sure[0], places)
    return Fact("capacity_gib", whole(sure[0].value), line.span(sure[0].start - start + 1), "prose", _CONFIDENCE + 0.3)


def _line_of(found: Quantity, places: Sequence[tuple[int, Line]]) -> tuple[int, Line]:
    """The line in which a number stands, and where that begins."""
    return next(place for place in reversed(places) if place[0] <= found.start)


_MAX_CARDS: Final = 65_536
_LARGEST: Final = 320
"""GiB beyond which memory is that of several cards together, where none is named."""


def _is_refuted(fact: Fact, text: str, places: Sequence[tuple[int, Line]]) -> bool:
    """Whether the number that a fact was read from is surely of something else."""
    number = isinstance(fact.value, int | float) and not isinstance(fact.value, bool)
    if fact.origin not in ("prose", "log") or fact.name not in SET_BY or not number:
        return False
    here = (fact.span.source, fact.span.line)
    start, line = next(((at, one) for at, one in places if (one.source, one.number) == here), (0, None))
    if line is None:
        return False
    of_line = (q for q in quantities_in(text) if start <= q.start < start + len(line.text))
    numbers = [q for q in of_line if abs(q.value - fact.value) <= _SAME * abs(q.value)]
    return bool(numbers) and all(refutes(q, text, fact.name) for q in numbers)


def _told(text: str, places: Sequence[tuple[int, Line]]) -> Iterator[Fact]:
    """Facts of roles of which the text has one value."""
    values: dict[str, set[float]] = {}
    sure: dict[str, Quantity] = {}
    for found in quantities_in(text):
        values.setdefault(found.role, set()).add(found.value)
        of_experts = found.role == "params" and text[found.start - 1 : found.start] in ("x", "×")
        of_process = found.role == "lora_r" and is_of_process(text, found.start, found.end)
        if found.probability >= SURE and found.role in _FACTS and not of_experts and not of_process:
            sure.setdefault(found.role, found)
    if (host := _host_that_is_there(text)) is not None:
        sure["host_memory"], values["host_memory"] = host, {host.value}
    for role, found in sure.items():
        denied = negated(text, found.start) or not_given(text, found.start)
        if len(values[role]) > 1 or denied or doubt(text, found.start, found.end) > 0.5:
            continue
        if role == "card_memory" and _OF_ALL.search(" ".join(around(text, found))):
            continue  # what cards that nobody counts hold together is no card's
        start, line = _line_of(found, places)
        if line.text.strip() == found.written.strip():
            continue  # a number alone on its line: nothing says what it is of
        yield Fact(_FACTS[role], whole(found.value), line.span(found.start - start + 1), "prose", _CONFIDENCE)


_OF_ALL: Final = compiled(r"(?i)\b(?:total(?! capacity)|combined|altogether|in all)\b|总共|总计|合计|加起来|一共")


def _host_that_is_there(text: str) -> Quantity | None:
    """The host memory that is all but surely one, beside less sure ones: "I have 128 GB, can go to 256"."""
    found = [q for q in quantities_in(text) if q.role == "host_memory" and q.probability >= _ALL_BUT_SURE]
    return found[0] if len({q.value for q in found}) == 1 else None


_ALL_BUT_SURE: Final = 0.9


def shares_in(evidence: Evidence) -> tuple[float, ...]:
    """The shares of a card that the prose names for an engine."""
    return tuple(q.value for q in sure_of(evidence.prose, "utilization"))
