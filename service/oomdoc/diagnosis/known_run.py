"""The answer to words about a run that is known already, as in a conversation, as :func:`diagnose` gives it."""

from __future__ import annotations

from oomdoc.diagnosis.answering import answer_of
from oomdoc.diagnosis.comparing import Plain
from oomdoc.diagnosis.forms import compared
from oomdoc.diagnosis.planned import chosen_run, counts_of_sides
from oomdoc.evidence import Message
from oomdoc.intake.asked import NOTHING_ASKED, asked_in
from oomkb.dataclass import dataclass
from oomkb.memory.job import Job
from oomkb.pricing import Priced, price


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer and the run that it is about."""

    priced: Priced
    messages: tuple[Message, ...]
    compared: bool = False
    """Whether it sets several runs against each other."""


def answer_about(job: Job, words: str, *, weighs: bool = True) -> Answered:
    """What the words ask of a run, answered.

    :param weighs: whether they may set alternatives against each other: not where what they name has been set.
    :raises OomdocError: where the run cannot be priced.
    """
    asked = asked_in(words)
    if not weighs:
        asked = asked.but(axes=())
    if asked.wanted == "cards":
        job = job.with_fields({name: None for name in ("gpus", "nodes", "world", "dp", "tp", "pp") if job.get(name)})
    job, careful = _of_usual_requests(job), is_careful(job)
    job = chosen_run(job, asked) if careful or asked.wanted == "cards" else job
    priced = price(job, careful=careful)
    sides = compared(job, asked, counts_of_sides(job))
    about = Plain(job, priced.job, priced.estimate, careful, asked, sides)
    return Answered(priced, answer_of(about), bool(sides))


def priced_run(job: Job) -> Priced:
    """The price of a run, what it leaves open chosen as an answer about it would.

    :raises OomdocError: where it cannot be priced.
    """
    return price(taken_run(job), careful=is_careful(job))


def taken_run(job: Job) -> Job:
    """The run that an answer is about: what a plan leaves open and has to be chosen is chosen, and marked as assumed.

    :raises OomdocError: where none of the choices can be priced.
    """
    job = _of_usual_requests(job)
    return chosen_run(job, NOTHING_ASKED) if is_careful(job) else job


def is_careful(job: Job) -> bool:
    """Whether open fields are filled as a careful person starts: no trainer's own defaults are what runs."""
    return bool(job.planned) or job.framework is None


def _of_usual_requests(job: Job) -> Job:
    """Several requests at once have the usual length, where that is stated beside the longest."""
    usual, longest = job.seq_len, job.get("serving.max_model_len")
    several = (job.get("serving.concurrency") or 1) > 1 and job.objective == "inference"
    shorter = usual is not None and longest is not None and usual < longest
    return job.with_fields({"serving.max_model_len": usual}) if several and shorter else job
