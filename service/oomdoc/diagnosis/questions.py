"""Which missing fact decides: at most three questions, the most telling first.

A fact is worth asking for where the answer changes the verdict. The alternatives that people use are priced; where some
fit and some do not, or the predicted peak moves by much, the fact decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from oomdoc.diagnosis.planned import is_planned, wants_figure
from oomdoc.diagnosis.result import IMPLIED, CauseFinding, Question
from oomdoc.diagnosis.view import View
from oomdoc.evidence import say
from oomdoc.intake.asked import asked_of
from oomdoc.intake.configs.companions import LINKS
from oomkb.catalog import gpus
from oomkb.errors import OomdocError
from oomkb.memory.job import Job
from oomkb.pricing import price
from oomkb.units import GIB

_MAX_QUESTIONS: Final = 3
_FILES: Final = (".json", ".yaml", ".yml")
_ALTERNATIVES: Final[Mapping[str, Sequence[Any]]] = {
    "seq_len": (1024, 4096, 16384),
    "micro_batch": (1, 4, 8),
    "grad_ckpt": (True, False),
    "method": ("lora", "full"),
    "sharding": ("zero3", "none"),
    "gpus": (8, 1),
    "attention": ("flash2", "eager"),
}
"""The least memory first; what sharding gathers may be more than it spares."""
_MOVES: Final = 1.0
"""Where the card is not known, a peak that at least doubles is worth a question."""
_OF_NO_SIZE: Final = frozenset(
    ["other-process", "checkpoint-save", "fragmentation", "eval", "leak", "inactive-setting", "version-regression"]
)
"""Causes of which no size of the job decides."""
_SURE: Final = 0.8
_MIN_REGRESSION_PROBABILITY: Final = 0.04
"""Probability of a regression from which the versions are asked for."""
_CLEAR_OF_CARD: Final = 0.9
"""Of a card: a run that failed and is predicted to take more tells nothing of what was left open."""
_MAX_CARDS: Final = 3.0
"""A peak beyond this many cards is no figure that helps anybody."""
_LARGEST_CARD: Final = 192 * GIB
"""A job that needs more whatever the answer fits no card: the answer decides nothing."""


def questions_for(view: View, causes: Sequence[CauseFinding]) -> tuple[Question, ...]:
    """At most three, the most telling first."""
    found: list[tuple[float, Question]] = []
    job, evidence = view.job, view.evidence
    if evidence.outcome is not None and evidence.outcome.kind == "healthy":
        return ()
    if is_planned(evidence):
        return () if asked_of(evidence).diffusion and view.estimate is None else _for_plan(view)
    found += _unread(view)
    found += _companions(view)
    if view.failure is None and evidence.outcome is None:
        return tuple(question for _, question in found)[:_MAX_QUESTIONS]
    if causes and causes[0].cause in ("host-ram", "shared-memory", "not-oom") and causes[0].probability > 0.5:
        return _for_lookalike(view, causes[0].cause)
    unseen = not view.bytes_of("other_process") and next(evidence.find("nvidia-smi-process"), None) is None
    if causes and causes[0].cause == "other-process" and unseen:  # what else holds the card
        found.append((2.8, _ask("other_process_gib")))
    if causes and causes[0].cause in _OF_NO_SIZE and causes[0].probability > _SURE:
        return tuple(question for _, question in found)[:_MAX_QUESTIONS]
    found += _versions(view, causes)
    if view.estimate is None:
        if not job.has_model and next(evidence.find("diffusion-model"), None) is None:
            found.append((3.0, _ask("model")))
    elif view.bytes_of("capacity") is None:
        found.append((2.5, _ask("gpu")))
    asked = evidence.outcome is not None and evidence.outcome.kind == "question"
    if not asked and _says_little(view) and not (causes and causes[0].probability > _SURE):
        found.append((0.6, _ask("log")))
    if view.estimate is not None:
        found += _flips(view)
    unique: dict[str, Question] = {}
    for _, question in sorted(found, key=lambda item: -item[0]):
        unique.setdefault(question.fact, question)
    return tuple(unique.values())[:_MAX_QUESTIONS]


def _says_little(view: View) -> bool:
    """Whether neither a size nor a place of the failure was given."""
    failure = view.failure
    return failure is None or (failure.requested_bytes is None and not failure.frames and failure.phase == "unknown")


def _for_plan(view: View) -> tuple[Question, ...]:
    """What an answer cannot do without; everything else was assumed and said."""
    if not wants_figure(view.evidence) or asked_of(view.evidence).wanted == "model":
        return ()
    if view.estimate is None:
        return () if view.job.has_model else (_ask("model"),)
    # How much it needs, and which card or how many hold it, is answered without one.
    open_ = asked_of(view.evidence).wanted in ("amount", "cards")
    return (_ask("gpu"),) if view.bytes_of("capacity") is None and not open_ else ()


def _unread(view: View) -> list[tuple[float, Question]]:
    """Settings of a framework that is not known whose names speak of memory: what they mean."""
    found = view.evidence.recognised
    if found is None or found.name != "unknown" or not found.unread:
        return []
    first = found.unread[0]
    listed = ", ".join(f"{s.key} = {str(s.value)[:40]}" for s in found.unread[:4])
    why = say("question.unread.why", settings=listed)
    return [(2.2, Question(first.key, why, say("question.unread.how")))]


def _companions(view: View) -> list[tuple[float, Question]]:
    """Files that a command or a config names for the engine's or the launcher's settings, and that were not given."""
    given = {document.source.replace("\\", "/").rpartition("/")[2] for document in view.evidence.documents}
    pasted = any(s.key.startswith("zero_optimization") for d in view.evidence.documents for s in d.settings)
    for document in view.evidence.documents:
        for setting in document.settings:
            key = setting.key.lstrip("-").replace("-", "_").rpartition(".")[2]
            name = str(setting.value)
            plain = name.replace("\\", "/").rpartition("/")[2]
            if key in LINKS and plain.endswith(_FILES) and plain not in given and not (pasted and "deepspeed" in key):
                why = say("question.companion.why", file=name)
                return [(2.6, Question(name, why, say("question.companion.how", file=name)))]
    return []


def _ask(fact: str) -> Question:
    return Question(fact, say(f"question.{fact}.why"), say(f"question.{fact}.how"))


def _for_lookalike(view: View, cause: str) -> tuple[Question, ...]:
    stated = view.failure is not None and view.failure.free_bytes is not None
    card = gpus.find(str(view.job.gpu)) if view.job.gpu else None
    shared = card is not None and card.unified  # the host's memory is the card's, which is known
    if cause == "host-ram" and view.job.host_gib is None and not stated and not shared:
        return (_ask("host_gib"),)
    return ()


def _versions(view: View, causes: Sequence[CauseFinding]) -> list[tuple[float, Question]]:
    """Where a known regression would explain it and the version is not stated."""
    suspects = [c for c in causes[:4] if c.cause == "version-regression"]
    if not suspects or view.advisories:
        return []
    job = view.job
    if job.sharding == "zero3" and "deepspeed" not in view.evidence.versions:
        question = Question("versions.deepspeed", say("question.deepspeed.why"), say("question.deepspeed.how"))
        return [(2.0 + suspects[0].probability, question)]
    if not view.evidence.versions and suspects[0].probability >= _MIN_REGRESSION_PROBABILITY:
        return [(1.0 + suspects[0].probability, _ask("versions"))]
    return []


def _flips(view: View) -> list[tuple[float, Question]]:
    capacity, evidence = view.bytes_of("capacity"), view.evidence
    implied = {name for name, assumption in view.job.assumed.items() if assumption.why == IMPLIED}
    found = []
    for fact, values in _ALTERNATIVES.items():
        if view.job.get(fact) is not None and fact not in view.job.assumed:
            continue
        if fact in implied:
            continue
        if fact in ("grad_ckpt", "sharding", "method", "micro_batch") and view.serving:
            continue
        if fact == "sharding" and (view.ranks or 1) < 2:
            continue
        if fact == "method" and view.job.objective == "pretrain":
            continue  # nobody pretrains adapters
        unknown = evidence.recognised is not None and evidence.recognised.name == "unknown"
        if fact in ("sharding", "method", "attention") and evidence.documents and not unknown:
            continue  # a config or command that names none has what its framework sets
        least, *others = values
        peaks: dict[Any, float] = {}
        if (peak := _peak(view.job, fact, least)) is not None:
            if capacity is not None and peak > capacity and fact != "sharding":
                continue  # what takes more does not fit either
            peaks[least] = peak
        peaks |= {value: peak for value in others if (peak := _peak(view.job, fact, value)) is not None}
        if len(peaks) < 2:
            continue
        low, high = min(peaks, key=lambda v: peaks[v]), max(peaks, key=lambda v: peaks[v])
        spread = peaks[high] / max(peaks[low], 1.0) - 1
        flips = capacity is not None and peaks[low] <= _CLEAR_OF_CARD * capacity and capacity < peaks[high]
        if flips or (capacity is None and spread > _MOVES and peaks[low] <= _LARGEST_CARD):
            far = capacity is not None and peaks[high] > _MAX_CARDS * capacity
            why = say(
                ("question.flips-far" if far else "question.flips") if flips else "question.moves",
                fact=fact,
                low=_value(low),
                high=_value(high),
                low_bytes=peaks[low],
                high_bytes=peaks[high],
            )
            found.append(
                ((1.5 if flips else 0.5) + min(spread, 3.0) / 4, Question(fact, why, say(f"question.{fact}.how")))
            )
    return found


def _value(value: Any) -> Any:
    """As people write it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _peak(job: Job, fact: str, value: Any) -> float | None:
    try:
        return price(job.with_fields({fact: value})).estimate.process_bytes
    except OomdocError:
        return None
