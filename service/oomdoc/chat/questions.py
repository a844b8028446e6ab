"""What kind of turn it is: which question is asked, whether anything is to change, small talk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomdoc.chat.phrases import fields_named
from oomdoc.chat.turn_words import views_of
from oomdoc.chat.wording import patterns
from oomdoc.intake.asked import asked_in

if TYPE_CHECKING:
    from oomdoc.chat.grammar import Turn

_RE: Final = patterns("questions")
_PLEASANTRIES: Final = patterns("pleasantries")
_TOPICS: Final = patterns("topics")
_SIDES: Final = patterns("choosing")["sides"]


def says(turn: str, what: str) -> bool:
    """Whether a turn holds the words of a row of ``[questions]``: ``why``, ``largest``, ``goes_on`` ..."""
    return bool(_RE[what].search(turn))


def doubts(turn: str) -> bool:
    """Whether a turn says how somebody feels about a setting, and orders nothing."""
    return bool(_RE["doubts"].search(turn) and not _RE["orders"].search(turn))


def without_courtesy(turn: str) -> str:
    """The turn without its thanks."""
    return turn if _RE["praise_alone"].match(turn) else _RE["courtesy"].sub("", turn)


def without_echo(turn: str) -> str:
    """The turn without a figure of the last answer that it doubts first: "only 3? they are short"."""
    return _RE["echo"].sub("", turn, count=1)


WANTED: Final = {
    "batch": "micro_batch",
    "length": "seq_len",
    "cards": "gpus",
    "requests": "serving.concurrency",
    "host": "host_gib",
}
"""What a question for a quantity is about, as a job's field."""


def asks_plainly(turn: str) -> bool:
    """Whether a turn asks for the reason and names nothing: "why?", "为什么呢"."""
    return bool(_RE["why_alone"].fullmatch(turn.strip()))


def about(text: str, turn: Turn) -> tuple[str, ...]:
    """The fields that a question without values is about: a number in the next turn is for them."""
    wanted = WANTED.get(asked_in(text).wanted)
    return (wanted,) if wanted is not None and wanted not in turn.changes else ()


def asks(turn: str) -> bool:
    """Whether a turn is a question by its mark or its last word."""
    return turn.rstrip().endswith(("?", "？", "吗", "呢", "么"))


def compares(turn: str) -> bool:
    """Whether speed is asked about."""
    return bool(_RE["of_two"].search(turn) or (_RE["compare"].search(turn) and topic_of(turn) != "pick"))


def weighs_runs(turn: str) -> bool:
    """Whether it is asked which of several runs is better, or for them side by side."""
    return bool(_SIDES.search(turn))


def asks_for_amount(turn: str) -> bool:
    """Whether a quantity is asked for, whatever values are named with it: "fp16, how many cards?"."""
    asked = _RE["quantity"].search(turn) and not _RE["to_set"].search(turn)
    sized = bool(asked) and (asked_in(turn).wanted != "fit" or says(turn, "largest"))
    return sized or says(turn, "which_card")


def chooses(turn: str) -> bool:
    """Whether alternatives are set against each other: "lora vs full?"."""
    return bool(_RE["versus"].search(turn) and not _RE["compare"].search(turn))


def says_yes(turn: str) -> str:
    """``proposal`` where the last hypothetical change is to be made, ``plan`` where oomdoc's own proposal is."""
    if _RE["plan"].search(turn):
        return "plan"
    if _RE["praise_alone"].match(turn):
        return ""
    return "proposal" if len(turn) <= 48 and any(c.isalnum() for c in turn) and _RE["yes"].match(turn) else ""


def only_remarks(turn: str) -> bool:
    """Praise, or a word about the time: nothing is to be changed."""
    return bool(_RE["away"].search(turn) or (_RE["praise"].search(turn) and not _RE["orders"].search(turn)))


def pleasantry(turn: str) -> str:
    """Small talk that deserves an answer of its own."""
    rows = _PLEASANTRIES.items() if len(turn) <= 80 else ()
    return next((name for name, pattern in rows if pattern.search(turn)), "")


def only_asks(turn: str) -> bool:
    """Whether a short question names nothing: it is about how the run stands."""
    return len(turn) <= 48 and bool(_RE["bare_question"].fullmatch(turn.strip()))


def topic_of(turn: str) -> str:
    """What a question is about, beside the parts of the memory: by its words as a whole, else by a pattern."""
    named, odds = _named_topic(turn), views_of(turn)
    if named in _NAMED_PRECISELY:
        return named
    best = max(odds, key=odds.__getitem__)
    least = _LEAST_VIEW.get(best)
    if least is not None and odds[best] >= least:
        return _VIEW_TOPICS.get(best, best)
    return named if odds.get(_VIEW_OF.get(named, named), 1.0) >= _LEAST_OF_NAMED else ""


def _named_topic(turn: str) -> str:
    return next((name for name, pattern in _TOPICS.items() if pattern.search(turn)), "")


_NAMED_PRECISELY: Final = frozenset({"setting", "saved", "sure", "breakdown"})
"""Topics whose patterns name nothing else."""
_VIEW_TOPICS: Final = {"history": "saved", "speed": "rate"}
"""Views that are topics of another name."""
_VIEW_OF: Final = {"saved": "history", "rate": "speed", "setting": "config", "requests": "largest"}
_LEAST_VIEW: Final = {
    **dict.fromkeys(("config", "diff", "history", "speed", "pick"), 0.65),
    **dict.fromkeys(("breakdown", "sure"), 0.8),
}
"""Probability from which a turn asks for a view, whatever it names."""
_LEAST_OF_NAMED: Final = 0.03
"""Probability of its view below which a topic that a pattern names is not asked for."""


def views(turn: str, *, serving: bool) -> str:
    """Which view of the job as it stands is wanted: ``config diff breakdown saved``, of a server ``requests``."""
    found, views = topic_of(turn), {"config", "diff", "setting", "breakdown", "saved"}
    return found if found in (views | {"requests"} if serving else views) else ""


def still_fails(turn: str) -> bool:
    """Whether a turn tells that the run fails as it is now."""
    return bool(_RE["still_fails"].search(turn)) and not _RE["supposes"].search(turn)


def in_domain(turn: str) -> bool:
    """Whether a turn without any known question is oomdoc's business at all."""
    asked = asked_in(turn)
    named = _RE["domain"].search(turn) or _named_topic(turn) or says(turn, "largest") or fields_named(turn)
    return bool(named or asked.of_memory or asked.trains or asked.serves or asked.wanted != "fit")
