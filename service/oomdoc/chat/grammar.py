"""What one turn means: a change, a question, an undo, a comparison, or none of oomdoc's business.

No language model: bounded patterns over a short turn, in English and Chinese. Pasted logs and configs go through
intake instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, Final, Literal

from oomdoc.chat import questions
from oomdoc.chat.choosing import chosen, returned
from oomdoc.chat.context import Context
from oomdoc.chat.explicit import read_explicit
from oomdoc.chat.reading import kept_fields, read_changes, without_kept
from oomdoc.chat.undoing import Undo, read_undo, takes_back
from oomdoc.intake.alternatives import comparisons_in
from oomkb.dataclass import dataclass
from oomkb.errors import JobError
from oomkb.memory.job import Job

Kind = Literal["change", "ask", "compare", "undo", "accept-plan", "talk", "off-topic"]

LONGEST_TURN: Final = 600
"""Characters of a turn that are read as a phrase; longer ones are pasted material."""

_SCRIPT_SEAM: Final = re.compile(r"(?<=[A-Za-z0-9])(?=[\u4e00-\u9fff])|(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9])")

_GLUED: Final = re.compile(r"(?i)(?<![\w./-])(?:rank|m?bsz?|batch|tp|pp|cp|ep|ga|seq|ctx|r(?!1\b))(?=\d)")
"""Short names with their number: "bs4 rank16"."""
_PRODUCT: Final = re.compile(r"(?<![\w.])(?P<a>\d{1,5})\s?[*×x]\s?(?P<b>\d{1,4})\s?[*×x]\s?(?P<c>\d{1,4})(?![\w.])")
"""Pixels as people write them: 1280*28*28."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn understood. ``changes`` are job fields (``None`` clears); for ``ask`` they are the ones asked about."""

    kind: Kind
    changes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    topic: str = ""
    """What a question, or small talk, is about: ``fits pick``, ``thanks`` ..."""
    undo: Undo = field(default_factory=Undo)
    """What an ``undo`` takes back."""
    invented: bool = False
    """Whether the turn asks for a number that is not computed."""
    sides: tuple[Mapping[str, Any], ...] = ()
    """Of a comparison, the job fields of each run."""
    held: tuple[str, ...] = ()
    """Fields of which the turn says that they must not change."""
    refused: JobError | None = None
    """Why a value that it states is none that a run can have."""


def understand(text: str, job: Job, context: Context | None = None) -> Turn:
    """Read one short turn against the session's job and what was said before."""
    # Word boundaries do not exist between Latin and Chinese characters, so a blank is put there.
    turn = _GLUED.sub(r"\g<0> ", _SCRIPT_SEAM.sub(" ", text.strip()[:LONGEST_TURN]))
    turn = multiplied(turn)
    context, kept = context or Context(job), kept_fields(turn)
    for less in (questions.without_courtesy, without_kept):
        rest = less(turn)
        if rest != turn and any(read_changes(rest, context)):
            turn = rest
    if (plain := _stating_nothing(turn, context)) is not None:
        return plain
    taken, rest = chosen(turn, context)
    if taken:
        job = job.with_fields(taken)
        more, refused = read_changes(rest, replace(context, job=job))
        return Turn("ask" if questions.says(rest, "ask") else "change", {**taken, **more}, refused=refused)
    agreed = questions.says_yes(turn)
    if agreed == "plan":
        return Turn("accept-plan")
    if agreed and context.proposed:
        return Turn("change", context.proposed)
    if agreed and context.tried:
        return Turn("accept-plan")
    if context.proposed and (rest := questions.agreed_first(turn)) and not takes_back(rest):
        more, refused = read_changes(rest, context)  # "ok do that, nf4"
        if refused is None and more and not questions.says(rest, "ask"):
            return Turn("change", {**context.proposed, **more})
    changes, refused = read_changes(turn, context)
    if refused is not None:
        return Turn("change", refused=refused)
    changes = returned(turn, changes, context)
    asks = questions.says(turn, "ask") or questions.asks_for_amount(turn)
    if (weighed := _weighing(turn, changes, context, asks=asks)) is not None:
        return weighed
    undo = read_undo(turn, changes=bool(changes))
    if undo is not None and not undo.said_outright and context.proposed:
        return Turn("talk", topic="dropped")  # what was only asked about is not to be made
    if undo is not None and changes and all(context.present(n) == v for n, v in changes.items()):
        return Turn("change", changes)  # "revert to the 2-card setup", which it is
    if undo is not None:
        if not undo.everything:
            # "revert the offload" names what to take back; it does not turn it on.
            spelled = read_explicit(turn, context).fields
            changes = {
                n: v
                for n, v in changes.items()
                if n in spelled or (n.partition(".")[0] not in undo.fields and n not in undo.fields and n != "world")
            }
        return Turn("undo", {} if undo.everything else changes, undo=replace(undo, kept=kept))
    topic = questions.topic_of(turn)
    if asks and (changes or questions.in_domain(turn)):
        return Turn("ask", changes, topic)
    if changes:
        return Turn("change", changes)
    if questions.only_asks(turn):
        return Turn("ask", topic=topic)
    said = questions.pleasantry(turn)
    if said:
        return Turn("talk", topic=said)
    return Turn("ask" if questions.in_domain(turn) else "off-topic", topic=topic)


def _weighing(turn: str, changes: Mapping[str, Any], context: Context, *, asks: bool) -> Turn | None:
    """A turn that asks for runs side by side: those that were tried, or alternatives that it names itself."""
    if questions.compares(turn) and not questions.says(turn, "why") and (asks or questions.asks(turn) or not changes):
        return Turn("compare", changes)
    several = len(context.tried) > 1 or bool(context.offered)
    sides = comparisons_in(turn)
    if several and questions.weighs_runs(turn) and not changes and not sides:
        return Turn("compare")
    if several and questions.says(turn, "against") and not sides:
        return Turn("compare", changes)  # "compared to zero3?"
    chooses = questions.weighs_runs(turn) or questions.chooses(turn) or (asks and questions.says(turn, "either"))
    return Turn("ask") if chooses and sides and not (context.proposed and not questions.weighs_runs(turn)) else None


def multiplied(text: str) -> str:
    """The text with its products worked out."""
    return _PRODUCT.sub(lambda m: str(int(m["a"]) * int(m["b"]) * int(m["c"])), text)


def _stating_nothing(turn: str, context: Context) -> Turn | None:
    """A turn that sets nothing, whatever it names: a dictated figure, a view, a remark, a doubt."""
    if questions.only_leaves(turn) and not any(read_changes(questions.without_leave(turn), context)):
        return Turn("talk", topic="away")
    if questions.says(turn, "invent"):
        return Turn("ask", invented=True)
    if questions.asks_room(turn) and not any(read_changes(turn, context)):
        return Turn("ask", topic="room")
    if questions.says(turn, "rate") and not questions.says(turn, "against"):
        return Turn("ask", topic="rate")
    if view := _view(turn, context):
        return Turn("ask", topic=view)
    if questions.only_praises(turn):
        return Turn("talk", topic=questions.pleasantry(turn) or "thanks")
    return Turn("ask") if questions.doubts(turn) else None


def _view(turn: str, context: Context) -> str:
    """The view of the job as it stands that is asked for, where the turn states nothing."""
    view = questions.views(turn, serving=context.job.objective == "inference")
    if not view or (view == "saved" and not comparisons_in(turn)):
        return view
    changes, refused = read_changes(turn, context)
    named = changes.keys() <= {"framework", "planned"} and view in ("config", "diff", "setting")
    return view if refused is None and (not changes or named) else ""
