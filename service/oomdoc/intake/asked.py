"""What a plain question wants to know: whether it fits, how much it takes, how large it may be, how many cards.

Questions in the field's ordinary words, English or Chinese; a word decides only where the facts leave something open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import lru_cache
from typing import Any, Final

from oomdoc.evidence import Evidence
from oomdoc.intake.alternatives import bare_length_in, combined, comparisons_in, length_in, settings_in
from oomdoc.intake.numbers import number_of, to_count
from oomdoc.intake.polarity import negated, with_question_marks
from oomdoc.intake.quantities.fields import refuted, value_of
from oomdoc.intake.wanted import Wanted, wanted_in
from oomdoc.intake.worded import CACHED, ROWS, Alternative, needed_card, of_cache
from oomkb.dataclass import dataclass
from oomkb.frameworks import has

_MAX_CHARACTERS: Final = 4000


def _found(text: str, row: str) -> re.Match[str] | None:
    """The first match of a row none of whose numbers is surely of something else."""
    for found in ROWS[row].finditer(text):
        places = (found.span(n) for n in range(1, len(found.groups()) + 1) if found[n])
        if not any(refuted(text, _REFUTABLE[row], *place) for place in places):
            return found
    return None


_REFUTABLE: Final = {
    "capacity": "capacity_gib",
    "concurrency": "concurrency",
    "in_out": "request",
    "out_behind": "request",
    "servers": "servers",
}
"""Rows of one quantity, by the name that roles of numbers know it by."""


def _capacity(text: str) -> float | None:
    found = _found(text, "capacity")
    if found is not None:
        size: float | None = float(next(v for n, v in found.groupdict().items() if v and n != "n"))
    else:
        size = value_of(text, "card_memory")
    return size if size is not None and 2 <= size <= 512 else None


def _cards_of_a_size(text: str) -> int | None:
    """``on 2x48``: how many cards, where only what one holds is said."""
    found = _found(text, "capacity")
    count = found["n"] if found is not None else None
    return to_count(count) if count else None


def _request(text: str) -> int | None:
    """Tokens of a request: what goes in and what comes out, together."""
    if (found := _found(text, "in_out") or _found(text, "out_behind")) is not None:
        return sum(int(number_of(n)) for n in found.groups() if n)
    if (sized := value_of(text, "request_tokens")) is not None:
        return int(sized)
    parts = [value_of(text, "prompt_tokens"), value_of(text, "output_tokens")]
    if parts[0] is not None:
        return int(sum(part for part in parts if part is not None))
    if (found := ROWS["length"].search(text)) is not None and found["d"]:
        return int(number_of(found["d"]))  # "8k requests"
    return length_in(text, "request")


def _round(length: int | None) -> int | None:
    """A length as people choose them; other numbers in such a place name cards or count something else."""
    return length if length is not None and (length % 256 == 0 or length % 1000 == 0) else None


def _length(text: str, request: int | None) -> int | None:
    """The context or the length of a sample: by its words, by its role, else by its value alone."""
    named = length_in(text)
    if named is None and (sized := value_of(text, "length")) is not None:
        named = int(sized)
    return named or (None if request else bare_length_in(text))


def _concurrency(text: str) -> int | None:
    found = _found(text, "concurrency")
    count = int(number_of(next(n for n in found.groups() if n))) if found is not None else value_of(text, "users") or 0
    return int(count) if 1 < count <= 4096 else None


def _per_machine(text: str) -> int | None:
    """How many cards one machine has."""
    found = ROWS["per_machine"].search(text)
    return None if found is None else 8 if re.search("8|eight|八", found[0], re.IGNORECASE) else 4


def _servers(text: str) -> int | None:
    """How many engines are to share one card."""
    found = _found(text, "servers")
    return to_count(next(n for n in found.groups() if n)) if found is not None else None


@dataclass(frozen=True, slots=True)
class WrittenNumber:
    """A number as a question writes it."""

    values: frozenset[float]
    """What it may mean: ``4k`` is 4,000 or 4,096."""
    phrase: str
    """It and the words beside it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked, and what the words say of the run that the facts may leave open."""

    wanted: Wanted = "fit"
    trains: bool = False
    serves: bool = False
    infers: bool = False
    """Whether the work named is nothing but running a model."""
    full: bool = False
    """Whether all weights are said to be trained."""
    scratch: bool = False
    engine: str | None = None
    """The engine that is named."""
    card: str | None = None
    """A card by its bare number."""
    capacity_gib: float | None = None
    """What one card holds, where only that is said."""
    cards: int | None = None
    """How many of them, where that stands beside it."""
    concurrency: int | None = None
    """Requests at once."""
    per_machine: int | None = None
    """Cards of one machine, where machines are what is counted."""
    servers: int | None = None
    """Engines that are to share one card."""
    length: int | None = None
    """Tokens of context or of a sample."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Job fields that the words name with one value."""
    target_length: int | None = None
    """The length that is asked about, whatever the described run has."""
    request_length: int | None = None
    """Tokens of a usual request, prompt and answer."""
    completion: int | None = None
    """Tokens that are generated for each sample."""
    diffusion: bool = False
    """Whether it is about a model that makes images or video."""
    of_reference: bool = False
    """Whether it asks about the reference model of a preference run."""
    of_memory: bool = True
    """Whether its words are about memory, sizes or whether something can be run."""
    why: bool = False
    """Whether it asks for a reason or for what something is."""
    pure: bool = False
    """Whether training is said to be in 16 bits throughout."""
    on_files: bool = False
    """Whether it is about merging, quantising or converting: work on files, in which nothing is trained or served."""
    quant: str | None = None
    """How the weights are stored, in the words of a job's ``quant`` (``none``: 16 bits); ``int4``: any four bits."""
    own_context: bool = False
    """Whether it says that the engine was given no length."""
    needed_card: str | None = None
    """A card of which it is asked whether it takes that one."""
    questions: int = 0
    """How many questions are put."""
    term: str | None = None
    """The term of the memory table that is asked about."""
    numbers: tuple[WrittenNumber, ...] = ()
    """Every number from 2 on but those of times and prices."""
    refused: frozenset[str] = frozenset()
    """What is not wanted: ``offload quant lora``."""
    axes: tuple[tuple[Alternative, ...], ...] = ()
    """What the question compares: for each setting two or more alternatives, in the order of the words."""

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Every run that the question asks about, where these are several."""
        return combined(self.axes)


def _first(group: str, text: str) -> Any:
    """The first of a group's names whose words stand there and are not denied."""
    low = text.lower()
    for name, pattern in ROWS.group(group).items():
        if pattern.may_match(low) and any(not negated(text, found.start()) for found in pattern.finditer(text)):
            return name.partition(":")[0]
    return None


def _format(text: str) -> str | None:
    """How the weights are stored: as wide as the format that is named first (what follows is what else might be done),
    by the most telling name of that width.
    """
    places = {
        name.partition(":")[0]: found.start()
        for name, pattern in ROWS.group("format").items()
        if (found := next((m for m in pattern.finditer(text) if not of_cache(text, *m.span())), None)) is not None
    }
    if not places:
        return None
    width = _WIDTHS.get(min(places, key=lambda name: places[name]), 4)
    return next(name for name in places if _WIDTHS.get(name, 4) == width)


_WIDTHS: Final = {"none": 16, "fp8": 8, "int8": 8, "q8_0": 8}
"""Bits of the formats that are no four-bit ones, or thereabouts."""


def asked_in(prose: str) -> Asked:
    """What the words of a question want; ``fit`` where nothing else is asked."""
    return _asked_in(prose[:_MAX_CHARACTERS])


def _asks_why_a_share(text: str, engine: str | None) -> bool:
    """Whether a reason is asked for beside an engine and a size that is most of the card's."""
    whole = _capacity(text)
    if engine is None or whole is None or not has(engine, "serving.utilization") or ROWS["why"].search(text) is None:
        return False
    sizes = (float(size) for size in ROWS["number.capacity_gib"].findall(text))
    return any(_MOST_OF_A_CARD * whole <= size < whole for size in sizes)


_MOST_OF_A_CARD: Final = 0.8
"""Share of a card from which what an engine holds is taken for the share that it reserves."""


@lru_cache(maxsize=4)
def _asked_in(text: str) -> Asked:
    """Of one input many parts of a diagnosis ask it."""
    text = with_question_marks(text)
    engine = _first("engine", text)
    reserved = ROWS["reserved"].search(text) is not None or _asks_why_a_share(text, engine)
    wanted: Wanted = "reserved" if reserved else wanted_in(text)
    axes = comparisons_in(text)
    if (
        wanted == "cards"
        and any("gpu" in side.fields for axis in axes for side in axis)
        and not ROWS["counts"].search(text)
    ):
        wanted = "fit"  # which of the machines that are named
    axes = _of_cache(axes) if wanted == "cache" else axes
    settings = settings_in(text, [side for axis in axes for side in axis])
    request = _request(text)
    at_once = None if wanted == "requests" else _concurrency(text)
    if wanted == "cache":
        at_once = at_once or settings.get("serving.concurrency")
    return Asked(
        wanted=wanted,
        trains=ROWS["trains"].search(text) is not None,
        serves=ROWS["serves"].search(text) is not None,
        infers=ROWS["infers"].search(text) is not None,
        card=found[1] if (found := ROWS["bare_card"].search(text)) is not None else None,
        capacity_gib=_capacity(text),
        cards=_cards_of_a_size(text),
        length=_length(text, request),
        settings=settings,
        target_length=_round(length_in(text, "target")),
        request_length=request,
        completion=length_in(text, "completion"),
        concurrency=at_once,
        per_machine=_per_machine(text),
        servers=_servers(text),
        full=ROWS["full"].search(text) is not None,
        scratch=ROWS["scratch"].search(text) is not None,
        engine=engine,
        diffusion=ROWS["diffusion"].search(text) is not None,
        of_reference=ROWS["of_reference"].search(text) is not None,
        of_memory=ROWS["of_memory"].search(text) is not None,
        why=ROWS["why"].search(text) is not None,
        pure=ROWS["pure"].search(text) is not None,
        on_files=not axes and at_once is None and ROWS["on_files"].search(text) is not None,
        quant=_format(text),
        own_context=ROWS["own_context"].search(text) is not None,
        needed_card=needed_card(text),
        questions=max(sum(map(text.count, "?？")), len(ROWS["item"].findall(text))),
        term=_first("term", text) if wanted == "share" else None,
        numbers=tuple(_numbers(text)),
        refused=frozenset(_refused(text)),
        axes=axes,
    )


def _refused(text: str) -> Iterator[str]:
    """What is not wanted, where it is not asked whether it would do without."""
    for name, pattern in ROWS.group("refuses").items():
        if any(ROWS["is_asked"].match(text, found.end()) is None for found in pattern.finditer(text)):
            yield name


def _of_cache(axes: tuple[tuple[Alternative, ...], ...]) -> tuple[tuple[Alternative, ...], ...]:
    """Formats that a question for the KV cache compares are the cache's."""

    def cached(side: Alternative) -> Alternative:
        own = {"serving.kv_dtype": CACHED.get(side.fields["quant"], side.fields["quant"])}
        return replace(side, fields={**{n: v for n, v in side.fields.items() if n != "quant"}, **own})

    of_formats = ([set(side.fields) == {"quant"} for side in axis] for axis in axes)
    return tuple(tuple(map(cached, axis)) if all(own) else axis for axis, own in zip(axes, of_formats, strict=True))


def _numbers(text: str) -> Iterator[WrittenNumber]:
    """The numbers of a text, each with the words beside it."""
    for found in ROWS["written"].finditer(text):
        unit = (found["unit"] or "").strip().lower()
        value = (
            float(number_of(found["number"].lower()))
            if not found["number"][:1].isdigit()
            else float(found["number"].replace(",", ""))
        )
        if (
            value < 2
            or ROWS["aside"].match(text, found.end("unit") if found["unit"] else found.end("number"))
            or ROWS["price"].search(text, max(0, found.start() - 2), found.start())
            or ROWS["before_aside"].search(text, 0, found.start("number"))
        ):
            continue
        scales = {"k": (1e3, 1024.0, 1.0), "m": (1e6, 2.0**20, 1.0), "t": (1024.0, 1000.0, 1.0)}.get(unit[:1], (1.0,))
        yield WrittenNumber(frozenset(value * scale for scale in scales), found["phrase"].strip())


def not_read(evidence: Evidence) -> tuple[str, ...]:
    """The questions of an input that are about time, speed, cost or tuning: no figure of memory answers them."""
    asked = (found[0].strip(" ,，") for found in ROWS["sentence"].finditer(evidence.prose[:_MAX_CHARACTERS]))
    return tuple(one for one in asked if ROWS["elsewhere"].search(one) and not ROWS["in_memory"].search(one))


def asked_of(evidence: Evidence, *, failed: bool = False) -> Asked:
    """What the words of an input ask for; of one without words, what its documents are about.

    :param failed: whether it tells of a failure: then the failing lines count too.
    """
    if failed:
        return asked_in(f"{evidence.prose}\n{evidence.digest}")
    if evidence.prose:
        return asked_in(evidence.prose)
    found = asked_in("\n".join(document.text[:2000] for document in evidence.documents))
    # Sizes of a document are settings of it, which its own reader reads.
    return replace(
        found,
        length=None,
        target_length=None,
        request_length=None,
        completion=None,
        settings={},
        axes=(),
        numbers=(),
    )


def asked_beside(evidence: Evidence) -> Wanted:
    """What the questions of a report ask for beside its failure; ``fit`` where they ask for no quantity."""
    found = (one[0] for one in ROWS["sentence"].finditer(with_question_marks(evidence.prose[:_MAX_CHARACTERS])))
    return wanted_in("\n".join(found))


def pairs_in(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """``field=value`` as written in the words, in order."""
    found = ROWS["pair"].finditer(evidence.prose[:_MAX_CHARACTERS])
    return tuple((match[1], match[2].strip("\"'`,;，；。")) for match in found)
