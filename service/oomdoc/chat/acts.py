"""What a turn does to what stands: whether it decides something, and what it adds to what was only asked about."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from oomdoc.chat.context import Context
from oomdoc.chat.describing import is_pasted, tells_of_failure
from oomdoc.chat.grammar import Turn, understand
from oomdoc.chat.prices import with_world
from oomdoc.chat.questions import asks_plainly, says
from oomdoc.chat.session import Session
from oomdoc.chat.undoing import takes_back
from oomdoc.chat.views import TOPICS
from oomdoc.intake import read_text


def decides(session: Session, said: str, context: Context) -> bool:
    """Whether what stands before a question changes, accepts or takes back something: "use it. And 128k?"."""
    if is_pasted(said) or says(said, "supposes") or tells_of_failure(read_text(said)):
        return False
    turn = on_proposal(session, said, context) or understand(said, session.job, context)
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
    return replace(turn, changes=MappingProxyType({**session.proposed, **turn.changes}))
