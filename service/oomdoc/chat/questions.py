"""What kind of turn it is: which question is asked, whether anything is to change, small talk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomdoc.chat.phrases import fields_named
from oomdoc.chat.wording import patterns
from oomdoc.intake.asked import asked_in

if TYPE_CHECKING:
    from oomdoc.chat.grammar import Turn

_RE: Final = patterns("questions")
_PLEASANTRIES: Final = patterns("pleasantries")
_TOPICS: Final = patterns("topics")


def doubts(turn: str) -> bool:
    """Whether a turn says how somebody feels about a setting, and orders nothing."""
    return bool(_RE["doubts"].search(turn) and not _RE["orders"].search(turn))


def without_courtesy(turn: str) -> str:
    """The turn without its thanks."""
    return turn if _RE["praise_alone"].match(turn) else _RE["courtesy"].sub("", turn)


def asks_only(turn: str) -> bool:
    """Whether nothing is to change, whatever values are named."""
    return bool(_RE["ask"].search(turn))


_WANTED: Final = {
    "batch": "micro_batch",
    "length": "seq_len",
    "cards": "gpus",
    "requests": "serving.concurrency",
}
"""What a question for a quantity is about, as a job's field."""


def refers(turn: str) -> bool:
    """Whether a turn that names nothing goes on from what was said, in so many words."""
    return bool(_RE["refers"].search(turn))


def asks_of_change(turn: str) -> bool:
    """Whether a reason is asked for what went up, down or stayed."""
    return bool(_RE["of_change"].search(turn))


def asks_plainly(turn: str) -> bool:
    """Whether a turn asks for the reason and names nothing: "why?", "为什么呢"."""
    return bool(_RE["why_alone"].fullmatch(turn.strip()))


def about(text: str, turn: Turn) -> tuple[str, ...]:
    """The fields that a question without values is about: a number in the next turn is for them."""
    wanted = _WANTED.get(asked_in(text).wanted)
    return (wanted,) if wanted is not None and wanted not in turn.changes else ()


def asks(turn: str) -> bool:
    """Whether a turn is a question by its mark or its last word."""
    return turn.rstrip().endswith(("?", "？", "吗", "呢", "么"))


def keeps_everything(turn: str) -> bool:
    """Whether a turn says that nothing is to be changed."""
    return bool(_RE["keeps"].search(turn))


def compares(turn: str) -> bool:
    """Whether speed is asked about."""
    return bool(_RE["of_two"].search(turn) or (_RE["compare"].search(turn) and topic_of(turn) != "pick"))


def chooses(turn: str) -> bool:
    """Whether alternatives are set against each other: "lora vs full?"."""
    return bool(_RE["versus"].search(turn) and not _RE["compare"].search(turn))


def invents(turn: str) -> bool:
    """Whether a figure or a verdict is dictated."""
    return bool(_RE["invent"].search(turn))


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
    return (
        next((name for name, pattern in _PLEASANTRIES.items() if pattern.search(turn)), "") if len(turn) <= 80 else ""
    )


def topic_of(turn: str) -> str:
    """What a question is about, beside the parts of the memory."""
    return next((name for name, pattern in _TOPICS.items() if pattern.search(turn)), "")


def views(turn: str, *, serving: bool) -> str:
    """Which view of the job as it stands is wanted: ``config diff breakdown saved``, of a server ``requests``."""
    found = topic_of(turn)
    return (
        found
        if found in ("config", "diff", "setting", "breakdown", "saved") or (serving and found == "requests")
        else ""
    )


def asks_why(turn: str) -> bool:
    """Whether a reason is asked for."""
    return bool(_RE["why"].search(turn))


def still_fails(turn: str) -> bool:
    """Whether a turn tells that the run fails as it is now."""
    return bool(_RE["still_fails"].search(turn)) and not _RE["supposes"].search(turn)


def suggests(turn: str) -> bool:
    """Whether "why not" asks for what a change would do."""
    return bool(_RE["why_not"].search(turn))


def largest_asked(turn: str) -> bool:
    """Whether a limit is asked for."""
    return bool(_RE["largest"].search(turn))


def in_domain(turn: str) -> bool:
    """Whether a turn without any known question is oomdoc's business at all."""
    asked = asked_in(turn)
    named = _RE["domain"].search(turn) or topic_of(turn) or largest_asked(turn) or fields_named(turn)
    return bool(named or asked.of_memory or asked.trains or asked.serves or asked.wanted != "fit")
