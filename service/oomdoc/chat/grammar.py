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
from oomdoc.chat.context import Context
from oomdoc.chat.explicit import read_explicit
from oomdoc.chat.reading import kept_fields, read_changes, without_kept
from oomdoc.chat.undoing import Undo, read_undo
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
    refused: JobError | None = None
    """Why a value that it states is none that a run can have."""


def understand(text: str, job: Job, context: Context | None = None) -> Turn:
    """Read one short turn against the session's job and what was said before."""
    # Word boundaries do not exist between Latin and Chinese characters, so a blank is put there.
    turn = _GLUED.sub(r"\g<0> ", _SCRIPT_SEAM.sub(" ", text.strip()[:LONGEST_TURN]))
    context, kept = context or Context(job), kept_fields(turn)
    for less in (questions.without_courtesy, without_kept):
        rest = less(turn)
        if rest != turn and any(read_changes(rest, context)):
            turn = rest
    if (plain := _stating_nothing(turn, context)) is not None:
        return plain
    agreed = questions.says_yes(turn)
    if agreed == "plan":
        return Turn("accept-plan")
    if agreed and context.proposed:
        return Turn("change", context.proposed)
    head, _, rest = turn.replace("，", ",").partition(",")
    if rest and context.proposed and questions.says_yes(head) == "proposal":
        more, refused = read_changes(rest, context)  # "ok do that, nf4"
        if refused is None and not questions.asks_only(rest):
            return Turn("change", {**context.proposed, **more})
    changes, refused = read_changes(turn, context)
    if refused is not None:
        return Turn("change", refused=refused)
    if questions.compares(turn) and not questions.asks_why(turn):
        return Turn("compare", changes)
    if questions.chooses(turn) and not context.proposed and comparisons_in(turn):
        return Turn("ask")
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
    if questions.asks_only(turn) and (changes or questions.in_domain(turn)):
        return Turn("ask", changes, topic)
    if changes:
        return Turn("change", changes)
    said = questions.pleasantry(turn)
    if said:
        return Turn("talk", topic=said)
    return Turn("ask" if questions.in_domain(turn) else "off-topic", topic=topic)


def _stating_nothing(turn: str, context: Context) -> Turn | None:
    """A turn that sets nothing, whatever it names: a dictated figure, a view, a remark, a doubt."""
    if questions.invents(turn):
        return Turn("ask", invented=True)
    if view := _view(turn, context):
        return Turn("ask", topic=view)
    if questions.only_remarks(turn):
        return Turn("talk", topic=questions.pleasantry(turn) or "thanks")
    return Turn("ask") if questions.doubts(turn) else None


def _view(turn: str, context: Context) -> str:
    """The view of the job as it stands that is asked for, where the turn states nothing."""
    view = questions.views(turn, serving=context.job.objective == "inference")
    if view == "saved" and not comparisons_in(turn):
        return view
    changes, refused = read_changes(turn, context)
    named = changes.keys() <= {"framework", "planned"} and view in ("config", "diff", "setting")
    return view if view and refused is None and (not changes or named) else ""
