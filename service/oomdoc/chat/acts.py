"""What a turn does to what stands: whether it decides something, and what it adds to what was only asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from oomdoc.chat.context import Context
from oomdoc.chat.describing import is_pasted, tells_of_failure
from oomdoc.chat.ellipsis import switched
from oomdoc.chat.grammar import Turn, understand
from oomdoc.chat.measures import asks_to_compare
from oomdoc.chat.phrases import OFF_VALUES, SHARE, fields_named, said_in
from oomdoc.chat.prices import with_world
from oomdoc.chat.questions import WANTED, agreed_first, asks, asks_plainly, only_leaves, says, topic_of, weighs_runs
from oomdoc.chat.session import Session
from oomdoc.chat.turn_words import acts_of, views_of
from oomdoc.chat.undoing import Undo, read_undo, takes_back
from oomdoc.chat.views import TOPICS
from oomdoc.evidence import Evidence
from oomdoc.intake import read_text
from oomdoc.intake.alternatives import comparisons_in
from oomdoc.intake.asked import asked_in
from oomdoc.intake.quantities.tokens import tokens_of
from oomkb.kept import compiled

_DECIDE: Final = ("set", "accept", "undo")
_MENTION: Final = ("ask", "explain", "compare", "failed", "reject", "talk", "off")
"""Acts of a turn that only mentions the values that it names."""
_LEADS: Final = ("hold", "reject", "failed", "undo", "set")
"""Acts that stand before another one in the same turn: "no offload, too slow. what about int4?"."""
_FOLLOWS: Final = ("set", "whatif", "ask", "explain", "compare", "accept", "claim")
_LEAST_TO_CHANGE: Final = 0.25
"""Probability that a turn decides or supposes something, below which the values that it names change nothing.

Of 1,713 labelled turns that a fit had not seen, 113 that grammar alone took for changes lie below it rightly, 25 not.
"""
_LEAST_OF_DECISION: Final = 0.4
"""The same, from which what stands before a question is decided."""
_LEAST_DECIDED: Final = 0.8
"""Probability that a turn decides something, from which the values of what reads as a question are decided."""
_LEAST_SUPPOSED: Final = 0.6
"""Probability that a turn supposes or claims something, from which it decides nothing; one that says all it supposes,
and is not "and with zero3?".
"""
_LONG: Final = 8
"""Tokens of such a turn."""
_LEAST_OF_MEANING: Final = 0.6
"""Probability that it is asked what a named value means, from which a turn that decides nothing supposes nothing."""
_LEAST_HELD: Final = 0.35
"""The same of ruling out, from which what is switched off is not proposed again."""
_LEAST_ACCEPTED: Final = 0.6
_LEAST_REJECTED: Final = 0.7
_LEAST_UNDONE: Final = 0.45
_LEAST_EXPLAINED: Final = 0.5
"""Probabilities of acts from which they are taken where no pattern says so."""
_LEAST_OF_PARTS: Final = 0.5
"""Product of the probabilities of both acts from which a turn is two."""
_PART: Final = compiled(r"[,，;；.。!！?？\n]+\s*(?=\S)")


def in_two(text: str) -> tuple[str, str] | None:
    """A turn that holds, turns down, takes back or reports something, and then does another thing, as its two parts."""
    if tells_of_failure(read_text(text)) or only_leaves(text) or asks_to_compare(text):
        return None
    best, found = _LEAST_OF_PARTS, None
    for seam in islice(_PART.finditer(text), _MAX_SEAMS):
        head, rest = text[: seam.end()].strip(), text[seam.end() :].strip()
        if seam[0].strip() == "." and text[seam.start() - 1 : seam.start()].isdigit() and text[seam.end()].isdigit():
            continue
        before, after = acts_of(head), acts_of(rest)
        lead, act = max(_LEADS, key=before.__getitem__), max(_FOLLOWS, key=after.__getitem__)
        if lead == act == "set":
            continue  # two settings are one turn
        if _cuts_comparison(text, rest):
            continue
        if (both := before[lead] * after[act]) > best:
            best, found = both, (head, rest)
    return found


def _cuts_comparison(text: str, rest: str) -> bool:
    """Whether what a turn sets against each other stands before a part of it that asks which to take."""
    return _weighs(text) and not comparisons_in(rest)


_MAX_SEAMS: Final = 6
"""Places of a turn at which it may be two."""


def meant(session: Session, text: str, context: Context) -> Turn:
    """The turn as its words mean it: whether the values that it names are decided, asked about, or only mentioned.

    Patterns find the values; what is done with them is what :mod:`oomdoc.chat.turn_words` has learned.
    """
    turn = (None if _weighs(text) else on_proposal(session, text, context)) or understand(text, session.job, context)
    if turn.refused is not None or turn.topic == "away":
        return turn
    odds = acts_of(text)
    decided = sum(odds[act] for act in _DECIDE)
    if odds["compare"] >= _LEAST_SUPPOSED and len(sides := _sides(turn, text, session, context)) > 1:
        return Turn("compare", sides=sides)
    meaning = views_of(text)["value"] >= _LEAST_OF_MEANING and decided < _LEAST_TO_CHANGE
    doubtful = meaning or decided + odds["whatif"] < _LEAST_TO_CHANGE
    if turn.kind == "change" and doubtful and not _is_plain(turn, text, context):
        return _not_decided(turn, text, odds)
    long = len(tokens_of(text)) >= _LONG
    supposed = odds["claim"] + (odds["whatif"] if long else 0.0)
    if turn.kind == "change" and supposed >= _LEAST_SUPPOSED:
        return Turn("ask", turn.changes, topic_of(text))
    off = all(_switches_off(name, value) for name, value in turn.changes.items())
    if turn.kind == "change" and off and odds["hold"] >= _LEAST_HELD:
        return replace(turn, held=tuple(turn.changes))  # "offloading is out": off, and not to be proposed
    if turn.kind == "ask" and turn.changes and odds["explain"] >= _LEAST_EXPLAINED:
        return Turn("ask", topic=topic_of(text))
    if turn.kind == "ask" and turn.changes and decided >= _LEAST_DECIDED:
        return Turn("change", turn.changes)
    if turn.kind in ("ask", "off-topic", "talk") and not turn.changes and odds["undo"] >= _LEAST_UNDONE:
        return Turn("undo", undo=read_undo(text, changes=False) or Undo(fields=fields_named(text)))
    if session.proposed and not turn.changes and turn.kind in ("ask", "off-topic", "talk"):
        if odds["accept"] >= _LEAST_ACCEPTED:
            return Turn("change", session.proposed)
        if odds["reject"] >= _LEAST_REJECTED:
            return Turn("talk", topic="dropped")
    return turn


def _weighs(text: str) -> bool:
    """Whether a turn asks which of the runs that it names is the better one."""
    return weighs_runs(text) and bool(comparisons_in(text))


def explains(turn: Turn, text: str) -> bool:
    """Whether a turn asks how something works, or which of two things is better of which no run is one, and names no
    values.
    """
    if turn.kind in ("change", "compare") or turn.changes or turn.topic == "away":
        return False
    odds = acts_of(text)
    return odds["explain"] + (0.0 if comparisons_in(text) else odds["compare"]) >= _LEAST_EXPLAINED


def may_decide(text: str) -> bool:
    """Whether a turn may decide or suppose something, though no value was found in it."""
    odds = acts_of(text)
    return odds["set"] + odds["whatif"] >= _LEAST_TO_CHANGE


def _is_plain(turn: Turn, text: str, context: Context) -> bool:
    """Whether a turn decides whatever its words are like: a value alone, a setting that is switched off, what others
    leave of the card, a value for which an amount is asked.
    """
    off = any(
        _switches_off(name, value)
        or (isinstance(value, tuple | list) and set(value) < set(context.present(name) or ()))
        for name, value in turn.changes.items()
    )
    alone = len(tokens_of(text)) <= _MAX_TOKENS_ALONE
    wanted = WANTED.get(asked_in(text).wanted, "")
    asks = bool(wanted) and wanted not in turn.changes
    return off or alone or asks or turn.changes.keys() == {"capacity_gib"} or bool(switched(text, context))


_MAX_TOKENS_ALONE: Final = 2


def _switches_off(name: str, value: Any) -> bool:
    return name in OFF_VALUES and value == OFF_VALUES[name]


def _sides(turn: Turn, text: str, session: Session, context: Context) -> tuple[Mapping[str, Any], ...]:
    """The values that a turn sets against each other, each by itself: of one field several, or one of each field."""
    if turn.kind not in ("change", "ask") or comparisons_in(text):
        return ()
    serves = session.job.objective == "inference"
    named = [one for one in said_in(text, [], serving=serves) if one.field not in _CIRCUMSTANCES]
    found = dict.fromkeys(
        (one.field, one.value if not isinstance(one.value, list) else tuple(one.value)) for one in named
    )
    names = {SHARE: context.utilization}
    return tuple(MappingProxyType({names.get(name, name): value}) for name, value in found)


_CIRCUMSTANCES: Final = frozenset({"host_gib", "gpus", "nodes", "objective", "framework", "others_gib", "free_gib"})
"""Fields that a turn names beside what it compares."""


def asks_of_failure(text: str, evidence: Evidence) -> bool:
    """Whether words for a failure are those of a question or a comparison, and no program printed any."""
    if any(f.signal.name not in _SAID for f in evidence.failures):
        return False
    odds = acts_of(text)
    return sum(odds[act] for act in ("ask", "explain", "compare", "whatif", "claim")) >= _LEAST_ASKED


_SAID: Final = frozenset({"said-device", "said-host", "said-shared", "said-growth", "complaint"})
"""Signs of a failure that a person tells of."""
_LEAST_ASKED: Final = 0.8


def _not_decided(turn: Turn, text: str, odds: Mapping[str, float]) -> Turn:
    """A turn that names values and decides nothing."""
    if odds["hold"] >= max(odds[act] for act in ("claim", *_MENTION)):
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in turn.changes.values()):
            return replace(turn, held=tuple(turn.changes))  # "it must be 128k"
        return Turn("ask", topic="held", held=tuple(turn.changes))
    if odds["claim"] + odds["compare"] >= max(odds[act] for act in _MENTION if act != "compare"):
        return Turn("ask", turn.changes, topic_of(text))
    if odds["reject"] >= _LEAST_REJECTED:
        return Turn("talk", topic="dropped")
    return Turn("ask", topic=topic_of(text))


def decides(session: Session, said: str, context: Context) -> bool:
    """Whether what stands before a question changes, accepts or takes back something: "use it. And 128k?"."""
    if comparisons_in(said) or is_pasted(said) or says(said, "supposes") or tells_of_failure(read_text(said)):
        return False
    turn = meant(session, said, context)
    odds = acts_of(said)
    if sum(odds[act] for act in _DECIDE) < _LEAST_OF_DECISION:
        return False
    return turn.refused is None and (
        turn.kind in ("undo", "accept-plan") or (turn.kind == "change" and bool(turn.changes))
    )


def on_proposal(session: Session, text: str, context: Context) -> Turn | None:
    """The turn where it goes on from what was only asked about: "and with 4 cards?" after "would zero3 fit?"."""
    if not session.proposed or takes_back(text) or ("gpu" in session.proposed and says(text, "own_card")):
        return None
    base = with_world(session.job.with_fields(session.proposed))
    turn = understand(text, base, replace(context, job=base, proposed={}))
    alone = turn.kind == "ask" and turn.topic not in TOPICS and not asks_plainly(text)
    goes_on = says(text, "goes_on") or says(text, "only_value")
    same = "model" in session.proposed or turn.changes.keys() == {"host_gib"} or goes_on
    if turn.kind not in ("change", "ask") or not (turn.changes or alone) or not same:
        return None  # it is about the run as it is
    spread = {"tp", "world", "nodes"} if "gpus" in turn.changes else set()
    if turn.kind == "change" and not (asks(text) or agreed_first(text)):
        return None  # settings of its own, and what was only asked about is not to be made
    kept = {name: value for name, value in session.proposed.items() if name not in spread}
    return replace(turn, changes=MappingProxyType({**kept, **turn.changes}))
