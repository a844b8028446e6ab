"""What a plain question wants to know: whether it fits, how much it takes, how large it may be, how many cards.

Questions in the field's ordinary words, English or Chinese; a word decides only where the facts leave something open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import Any, Final, TypeVar

from oomdoc.evidence import Evidence
from oomdoc.intake.alternatives import combined, comparisons_in, settings_in
from oomdoc.intake.named_fields import key_question
from oomdoc.intake.numbers import number_of, to_count
from oomdoc.intake.polarity import negated, with_question_marks
from oomdoc.intake.quantities import quantities_in
from oomdoc.intake.quantities.fields import (
    MAX_TOKENS,
    MIN_TOKENS,
    at_once,
    lengths_of,
    refuted,
    request_of,
    tokens_of,
    value_of,
)
from oomdoc.intake.several import questions_in
from oomdoc.intake.wanted import Wanted, wanted_in
from oomdoc.intake.weight_formats import FORMATS
from oomdoc.intake.worded import CACHED, ROWS, Alternative, cards_in, needed_card, of_cache, written_numbers
from oomkb.catalog import gpus
from oomkb.frameworks import has
from oomkb.units import GIB

_MAX_CHARACTERS: Final = 4000
_MIN_CARD_GIB, _MAX_CARD_GIB = 2, 512
_MAX_COUNT: Final = 4096
"""Cards, and requests at once."""


def _count(text: str, role: str) -> int | None:
    found = value_of(text, role)
    return int(found) if found is not None and 1 <= found <= _MAX_COUNT else None


def _target_length(text: str) -> int | None:
    """The length that is asked about; other numbers in such a place name cards or count something else."""
    for found in ROWS["target"].finditer(text):
        place = next(n for n in range(1, len(found.groups()) + 1) if found[n])
        size = int(number_of(found[place]))
        if not refuted(text, "target", *found.span(place)):
            return size if MIN_TOKENS <= size <= MAX_TOKENS and (size % 256 == 0 or size % 1000 == 0) else None
    return None


def _servers(text: str) -> int | None:
    """How many engines are to share one card."""
    found = ROWS["servers"].search(text)
    return to_count(next(n for n in found.groups() if n)) if found is not None else None


def _first(text: str, group: str) -> str | None:
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
        for name, pattern in FORMATS.items()
        if (found := next((m for m in pattern.finditer(text) if _is_meant(text, m)), None)) is not None
    }
    if not places:
        return None
    width = _WIDTHS.get(min(places, key=lambda name: places[name]), 4)
    return next(name for name in places if _WIDTHS.get(name, 4) == width)


def _is_meant(text: str, found: re.Match[str]) -> bool:
    """Whether a format is that of the weights, and not denied: "without 8bit quantization"."""
    return not of_cache(text, *found.span()) and not negated(text, found.start())


_WIDTHS: Final = {"none": 16, "fp8": 8, "int8": 8, "gptq-int8": 8, "q8_0": 8}
"""Bits of the formats that are no four-bit ones, or thereabouts."""


def _bare_card(text: str) -> str | None:
    found = ROWS["bare_card"].search(text)
    return found[1] if found is not None else None


def _active(text: str) -> str:
    found = ROWS["counts_active"].search(text)
    return found[0] if found is not None else ""


def _refused(text: str) -> Iterator[str]:
    """What is not wanted, where it is not asked whether it would do without."""
    for name, pattern in ROWS.group("refuses").items():
        asked = (ROWS["is_asked"].match(text, found.end()) for found in pattern.finditer(text))
        if any(one is None or (name == "length" and not {",", "，"}.isdisjoint(one[0])) for one in asked):
            yield name


T = TypeVar("T")


def _part(read: Callable[[str], T]) -> cached_property[T]:
    """A part of what is asked that the words alone tell."""
    return cached_property(lambda asked: read(asked._text))


def _says(row: str) -> cached_property[bool]:
    """Whether the words of a row stand there."""
    return _part(lambda text: ROWS[row].search(text) is not None)


class Asked:
    """What is asked, and what the words say of the run that the facts may leave open.

    Each part is worked out when it is first looked at: of a report of a failure few are.

    :param text: the words of a question.
    :param instead: parts by name that are taken as given, whatever the words say.
    """

    def __init__(self, text: str, **instead: Any) -> None:
        self._text, self._instead = text, instead
        vars(self).update(instead)

    def but(self, **instead: Any) -> Asked:
        """The same with other parts in place of those that the words say."""
        return Asked(self._text, **{**self._instead, **instead})

    @cached_property
    def axes(self) -> tuple[tuple[Alternative, ...], ...]:
        """What the question compares: for each setting two or more alternatives, in the order of the words."""
        found = comparisons_in(self._text)
        return _of_cache(found) if self.wanted == "cache" else found

    @cached_property
    def wanted(self) -> Wanted:
        """Which quantity is asked for; ``fit`` where none is."""
        if ROWS["reserved"].search(self._text):
            return "reserved"
        wanted = wanted_in(self._text)
        if wanted in _OF_ITS_SIZE and _holds_a_share(self._text, self.engine):
            return "reserved"
        return wanted

    trains = _says("trains")
    """Whether its words speak of training."""
    serves = _says("serves")
    """Whether its words speak of serving."""
    infers = _says("infers")
    """Whether the work named is nothing but running a model."""
    full = _says("full")
    """Whether all weights are said to be trained."""
    scratch = _says("scratch")
    """Whether a model is said to be trained from scratch."""
    engine = _part(partial(_first, group="engine"))
    """The engine that is named."""
    card = _part(_bare_card)
    """A card by its bare number."""

    @cached_property
    def capacity_gib(self) -> float | None:
        """What one card holds, where only that is said."""
        size = value_of(self._text, "card_memory")
        return size if size is not None and _MIN_CARD_GIB <= size <= _MAX_CARD_GIB else None

    @cached_property
    def cards(self) -> int | None:
        """How many of them, where that stands beside it."""
        return _count(self._text, "gpu_count") if self.capacity_gib is not None else None

    @cached_property
    def concurrency(self) -> int | None:
        """Requests at once."""
        found = at_once(self._text) if self.wanted != "requests" else None
        return found if found is not None and 1 < found <= _MAX_COUNT else None

    per_machine = _part(partial(_count, role="gpus_per_node"))
    """Cards of one machine, where machines are what is counted."""
    servers = _part(_servers)
    """Engines that are to share one card."""

    @cached_property
    def length(self) -> int | None:
        """Tokens of context or of a sample."""
        return lengths_of(self._text, of_requests=self.wanted == "requests")[0]

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """Job fields that the words name with one value."""
        return settings_in(self._text, [side for axis in self.axes for side in axis])

    target_length = _part(_target_length)
    """The length in tokens that is asked about, whatever the described run has."""

    @cached_property
    def request_length(self) -> int | None:
        """Tokens of a usual request, prompt and answer."""
        return request_of(self._text, of_requests=self.wanted == "requests")

    completion = _part(partial(tokens_of, role="output_tokens"))
    """Tokens that are generated for each sample."""
    diffusion = _says("diffusion")
    """Whether it is about a model that makes images or video."""
    of_reference = _says("of_reference")
    """Whether it asks about the reference model of a preference run."""
    of_memory = _says("of_memory")
    """Whether its words are about memory, sizes or whether something can be run."""
    in_all = _says("in_all")
    """Whether it asks for the sum over all cards."""
    of_image_tokens = _says("image_tokens")
    """Whether it asks for the tokens of images."""
    key = _part(key_question)
    """The settings whose keys are asked for, and of which frameworks."""
    why = _says("why")
    """Whether it asks for a reason or for what something is."""
    pure = _says("pure")
    """Whether training is said to be in 16 bits throughout."""

    @cached_property
    def on_files(self) -> bool:
        """Whether it is about merging, quantising or converting files, where nothing is trained or served."""
        stands = ROWS["on_files"].search(self._text) is not None
        return stands and not self.axes and self.concurrency is None

    quant = _part(_format)
    """How the weights are stored, in words of a job's ``quant`` (``none``: 16 bits); ``int4``: any four bits."""
    asks_launch = _says("asks_launch")
    """Whether it asks what a program is to be started with."""
    own_context = _says("own_context")
    """Whether it says that the engine was given no length."""
    needed_card = _part(needed_card)
    """A card of which it is asked whether it takes that one."""
    counts_active = _part(_active)
    """Where it names how many parameters of a mixture of experts work at once."""

    @cached_property
    def questions(self) -> int:
        """How many questions are put."""
        return max(sum(map(self._text.count, "?？")), len(ROWS["item"].findall(self._text)))

    @cached_property
    def term(self) -> str | None:
        """The term of the memory table that is asked about."""
        return _first(self._text, "term") if self.wanted == "share" else None

    numbers = _part(written_numbers)
    """Every number from 2 on but those of times and prices."""
    refused = _part(lambda text: frozenset(_refused(text)))
    """What is not wanted: ``offload quant lora``."""

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Every run that the question asks about, where these are several."""
        return combined(self.axes)


PARTS: Final = tuple(name for name, part in vars(Asked).items() if isinstance(part, cached_property) and name[0] != "_")
"""Everything that is read of a question, by name."""
NOTHING_ASKED: Final = Asked("", of_memory=True)
"""Where there are no words."""


def asked_in(prose: str) -> Asked:
    """What the words of a question want; ``fit`` where nothing else is asked."""
    return _asked_in(prose[:_MAX_CHARACTERS])


def _holds_a_share(text: str, engine: str | None) -> bool:
    """Whether an engine is told to hold most of its card, as one does that takes its share at the start."""
    if engine is None or not has(engine, "serving.utilization"):
        return False
    whole = value_of(text, "card_memory")
    if whole is None:
        named = next(iter(gpus.find_all(text)), None)
        if named is None:
            return False
        whole = named.device.capacity_bytes / GIB
    sizes = (q.value for q in quantities_in(text) if q.role in ("used_memory", "other_memory"))
    return any(_MOST_OF_A_CARD * whole <= size < whole for size in sizes)


_OF_ITS_SIZE: Final = ("fit", "amount")
"""What is wanted of a run where nothing else is named."""
_MOST_OF_A_CARD: Final = 0.8
"""Share of a card from which what an engine holds is taken for the share that it reserves."""


@lru_cache(maxsize=4)
def _asked_in(text: str) -> Asked:
    """Of one input many parts of a diagnosis ask it."""
    return Asked(with_question_marks(text))


def _of_cache(axes: tuple[tuple[Alternative, ...], ...]) -> tuple[tuple[Alternative, ...], ...]:
    """Formats that a question for the KV cache compares are the cache's."""

    def cached(side: Alternative) -> Alternative:
        own = {"serving.kv_dtype": CACHED.get(side.fields["quant"], side.fields["quant"])}
        return replace(side, fields={**{n: v for n, v in side.fields.items() if n != "quant"}, **own})

    of_formats = ([set(side.fields) == {"quant"} for side in axis] for axis in axes)
    return tuple(tuple(map(cached, axis)) if all(own) else axis for axis, own in zip(axes, of_formats, strict=True))


def not_read(evidence: Evidence) -> tuple[str, ...]:
    """The questions of an input that are about time, speed, cost or tuning: no figure of memory answers them."""
    asked = questions_in(evidence.prose[:_MAX_CHARACTERS])
    return tuple(one for one in asked if ROWS["elsewhere"].search(one) and not ROWS["in_memory"].search(one))


def asked_of(evidence: Evidence, *, failed: bool = False) -> Asked:
    """What the words of an input ask for; of one without words, what its documents are about.

    :param failed: whether it tells of a failure: then the failing lines count too.
    """
    if failed:
        return asked_in(f"{evidence.prose}\n{evidence.digest}")
    if evidence.prose:
        said = asked_in(evidence.prose)
        return said.but(wanted="reserved") if said.wanted in ("fit", "amount") and _shows_share(evidence) else said
    found = asked_in("\n".join(document.text[:2000] for document in evidence.documents))
    # Sizes of a document are settings of it, which its own reader reads.
    lengths: dict[str, None] = dict.fromkeys(("length", "target_length", "request_length", "completion"))
    return found.but(**lengths, settings={}, axes=(), numbers=())


def card_in_question(evidence: Evidence) -> Mapping[str, Any] | None:
    """The card, and how many, that the questions of a text name, where they name one."""
    asked = questions_in(with_question_marks(evidence.prose[:_MAX_CHARACTERS]))
    cards = [card.fields for one in asked for _, _, card in cards_in(one)]
    return cards[-1] if len({card["gpu"] for card in cards}) == 1 else None


def asks_need(evidence: Evidence) -> bool:
    """Whether the words of a report ask what a run takes: memory, or cards."""
    wanted = [asked_beside(evidence), *(asked_in(one.text).wanted for one in evidence.supposed)]
    return not {"amount", "cards"}.isdisjoint(wanted)


def _shows_share(evidence: Evidence) -> bool:
    """Whether a question shows that an engine holds most of a card, as one does that takes its share at the start."""
    if not has(evidence.framework, "serving.utilization") or "?" not in evidence.prose.replace("？", "?"):
        return False
    shown = (s.data for s in evidence.find("nvidia-smi-memory"))
    return any(_MOST_OF_A_CARD <= data["used_bytes"] / data["total_bytes"] < 1 for data in shown if data["total_bytes"])


def asked_beside(evidence: Evidence) -> Wanted:
    """What the questions of a report ask for beside its failure; ``fit`` where they ask for no quantity."""
    return wanted_in("\n".join(questions_in(with_question_marks(evidence.prose[:_MAX_CHARACTERS]))))


def pairs_in(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """``field=value`` as written in the words, in order."""
    found = ROWS["pair"].finditer(evidence.prose[:_MAX_CHARACTERS])
    return tuple((match[1], match[2].strip("\"'`,;，；。")) for match in found)
