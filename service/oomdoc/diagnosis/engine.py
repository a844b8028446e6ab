"""The whole diagnosis: job, price, tensors, cases, features, ranking, questions, plans, summary.

A stage that cannot work with what there is says so in ``warnings`` and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

from oomdoc.diagnosis.advice import advice_for, last_stage, one_replica, unsupported
from oomdoc.diagnosis.answering import sizes_with
from oomdoc.diagnosis.cache_room import rooms
from oomdoc.diagnosis.cases import Look, look_at
from oomdoc.diagnosis.explaining import asks_concept, found_topics, of_the_others, of_what_is_asked
from oomdoc.diagnosis.features import features_of
from oomdoc.diagnosis.forms import Side, compared
from oomdoc.diagnosis.grids import grid_beside_failure, grid_for
from oomdoc.diagnosis.inferring import infer
from oomdoc.diagnosis.logits import kept_logits, with_whole_logits
from oomdoc.diagnosis.named_keys import keys_asked
from oomdoc.diagnosis.own_figures import sees_figures
from oomdoc.diagnosis.own_lines import beside_failure, of_own_figures
from oomdoc.diagnosis.planned import (
    Choice,
    careful_job,
    counts_of_sides,
    is_planned,
    locally_served,
    planned_run,
    wants_figure,
)
from oomdoc.diagnosis.planning.for_diagnosis import plan_for
from oomdoc.diagnosis.proven_causes import proven_causes
from oomdoc.diagnosis.questions import questions_for
from oomdoc.diagnosis.ranker import rank
from oomdoc.diagnosis.regressions import affecting, distinct, suspects
from oomdoc.diagnosis.result import CauseFinding, Diagnosis, Inference, Inferred, Outlook, TensorMatch, Verdict
from oomdoc.diagnosis.run_of_evidence import (
    SPLIT,
    card_by_number,
    of_unknown_stage,
    over_its_cards,
    ranks_that_speak,
    requests_at_once,
    run_as_told,
    set_in_words,
    split_by_layers,
    usual_precision,
    with_card_of_the_question,
    without_foreign_engine,
)
from oomdoc.diagnosis.run_words import of_usual_sizes
from oomdoc.diagnosis.summary import summarise
from oomdoc.diagnosis.supposed_runs import answers_to, enough_memory
from oomdoc.diagnosis.tensors import Scene, tensors_for, tensors_of_unknown_model
from oomdoc.diagnosis.usual_need import smaller_card, with_usual_need
from oomdoc.diagnosis.verdict import agreed, other_failure_of, outlook_of, verdict_of
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Evidence, Message, problem_of, say
from oomdoc.intake.asked import asked_beside, asked_of
from oomdoc.intake.configs import to_job
from oomdoc.intake.digest import query_of
from oomkb.errors import ARITHMETIC_ERRORS, JobError, OomdocError
from oomkb.memory.job import Job
from oomkb.pricing import Priced, device_of, price
from oomkb.records.case import Case
from oomkb.records.loader import cached_cases

_NO_PRICE: Final = "diagnosis.no-price"
_MATCHES: Final = 5
_NEIGHBOURS: Final = 8
"""Known cases whose causes are compared."""
_READS_ALIKE: Final = 0.45
"""Likeness from which a thread is shown: at 0.4 to 0.5 three in five are of the same cause, above four in five."""
_OF_NO_SETTING: Final = frozenset({"leak", "fragmentation", "other-process", "host-ram", "shared-memory"})
"""Causes under which what filled the card tells nothing of the settings."""


def _problem(error: Exception) -> str:
    return str(error) if isinstance(error, OomdocError) else f"{type(error).__name__}: {error}"


def diagnose(evidence: Evidence, *, plans: bool = True, questions: bool = True) -> Diagnosis:
    """Why it ran out of memory and what would fit.

    Never raises on odd input: what a stage could not do is in ``warnings``.

    :param plans: whether to search for plans that fit (most of the time of a diagnosis).
    :param questions: whether to weigh which missing facts to ask for; nobody answers for a log of last month.
    """
    view, stated, cases, warnings, inference = _worked_out(evidence)
    verdict = verdict_of(evidence.outcome)
    if verdict == "no-failure":
        return _without_failure(view, stated, cases, warnings, inference, plans=plans, questions=questions)
    view, look = _looked(view, cases, warnings)
    verdict, evidence, causes = _judged(evidence, view)
    matches = look.chosen({c.cause: c.probability for c in causes}, _MATCHES) if look is not None else ()
    sized = not causes or causes[0].cause not in _OF_NO_SETTING
    grid = grid_beside_failure(view, stated)
    diagnosis = Diagnosis(
        verdict=verdict,
        summary=(),
        evidence=evidence,
        job=stated,
        causes=causes,
        tensors=view.tensors,
        estimate=view.supposed or view.estimate,
        inferred=(*_split(stated), *(inference.inferred if inference is not None and sized else ())),
        conflicts=(*unsupported(view), *(inference.conflicts if inference is not None and sized else ())),
        other_failure=other_failure_of(evidence.outcome),
        matches=matches,
        threads=tuple(thread for thread in look.views.threads if thread.likeness >= _READS_ALIKE) if look else (),
        questions=questions_for(view, causes) if questions else (),
        warnings=tuple(warnings),
        answers=(
            *answers_to(evidence, stated, verdict),
            *enough_memory(evidence, stated, verdict),
            *beside_failure(view),
            *one_replica(view),
            *last_stage(view, causes),
            *rooms(view),
            *kept_logits(view),
            *of_what_is_asked(evidence, stated),
            *(of_usual_sizes(stated) if grid is not None else ()),
        ),
        topics=found_topics(evidence, stated),
        grid=grid,
    )
    if plans:
        diagnosis = _planned(diagnosis)
        if diagnosis.plans:
            then = sizes_with(diagnosis.plans[0], asked_beside(evidence), asked_of(evidence))
            diagnosis = replace(diagnosis, answers=(*diagnosis.answers, *then))
    diagnosis = replace(diagnosis, warnings=(*diagnosis.warnings, *advice_for(view, stated, causes)))
    return replace(diagnosis, summary=summarise(view, diagnosis))


def _split(job: Job) -> tuple[Inferred, ...]:
    """What is known of the layout without having been stated."""
    known = job.assumed.get("pp")
    if known is None or known.why != SPLIT:
        return ()
    return (Inferred("pp", known.value, 0.95, say("inferred.device-map", count=known.value)),)


def _without_failure(
    view: View,
    stated: Job,
    cases: Sequence[Case],
    warnings: list[Message],
    inference: Inference | None,
    *,
    plans: bool,
    questions: bool,
) -> Diagnosis:
    """The answer to a question, a plan or a log of work that went on: no causes; what would fit where it does not."""
    planned = is_planned(view.evidence)
    # The run is planned already: it was, before it was priced.
    choice = Choice(stated, asked_of(view.evidence), careful_job(view.evidence, stated)) if planned else None
    outlook = outlook_of(view)
    device = device_of(stated)
    capacity = view.bytes_of("capacity") or (device.capacity_bytes if device is not None else None)
    if (own := of_own_figures(view.evidence, capacity, priced=view.estimate is not None)) is not None:
        answer, said = own
        outlook = Outlook(answer) if answer is not None else None
        return Diagnosis(verdict="no-failure", summary=said, evidence=view.evidence, job=stated, outlook=outlook)
    topics = cache(partial(found_topics, view.evidence, stated)) if planned else tuple
    known = planned and view.estimate is None and any(keys_asked(asked_of(view.evidence).key))
    explained = known or asks_concept(view, topics, outlook)
    figures = choice is not None and choice.careful and view.estimate is not None and not explained
    sides = compared(stated, choice.asked, counts_of_sides(stated)) if choice is not None and figures else ()
    if choice is not None and choice.asked.wanted == "cards" and _are_one(sides):
        sides = ()
    look = None if explained else _look(view, cases, warnings)
    diagnosis = Diagnosis(
        verdict="no-failure",
        summary=(),
        evidence=view.evidence,
        job=stated,
        estimate=view.estimate,
        outlook=outlook,
        inferred=inference.inferred if inference is not None else (),
        conflicts=inference.conflicts if inference is not None else (),
        careful=choice is not None and choice.careful,
        asked=choice.asked if choice is not None else None,
        sides=sides,
        grid=grid_for(choice, view, sides)
        if choice is not None and wants_figure(view.evidence) and not explained
        else None,
        matches=look.chosen({}, _MATCHES) if look is not None else (),
        questions=questions_for(view, ()) if questions and not explained else (),
        warnings=tuple(w for w in warnings if not (explained and w.key == _NO_PRICE)),
        topics=topics() if explained else of_the_others(topics, view.evidence),
        explained=explained,
    )
    if plans and diagnosis.outlook is not None and diagnosis.outlook.answer in ("tight", "does-not-fit"):
        diagnosis = _planned(diagnosis)
    return replace(diagnosis, summary=summarise(view, diagnosis))


def _are_one(sides: Sequence[Side]) -> bool:
    """Whether runs that are set against each other take the same cards and as much of each: two names for one."""
    needs = [side.needed_bytes or 0.0 for side in sides]
    runs = [{n: v for n, v in side.fields.items() if n not in side.asked.fields} for side in sides]
    return len(sides) > 1 and max(needs) <= _SAME_NEED * min(needs) and all(run == runs[0] for run in runs)


_SAME_NEED: Final = 1.01
"""How many times the least of the needs of one run the largest may be."""


def view_of(evidence: Evidence, *, hidden: Collection[str] = ()) -> tuple[View, Job, Look | None, list[Message]]:
    """What the rules may look at, the job as stated, the look at the known cases, and what could not be worked out.

    :param hidden: ids of cases that may not speak, so that a case can be judged by what the others know of it.
    """
    view, job, cases, warnings, _ = _worked_out(evidence, hidden=hidden)
    view, look = _looked(view, cases, warnings, hidden=hidden)
    return view, job, look, warnings


def causes_of(evidence: Evidence, *, hidden: Collection[str] = ()) -> tuple[CauseFinding, ...]:
    """The causes as a diagnosis has them, none where nothing failed; ``hidden`` as in :func:`view_of`."""
    return causes_in(evidence, view_of(evidence, hidden=hidden)[0])


def causes_in(evidence: Evidence, view: View) -> tuple[CauseFinding, ...]:
    """The same where the view is known."""
    return () if verdict_of(evidence.outcome) == "no-failure" else _judged(evidence, view)[2]


def _judged(evidence: Evidence, view: View) -> tuple[Verdict, Evidence, tuple[CauseFinding, ...]]:
    """What happened, the evidence for it, and the causes: ranked, those that sums prove first."""
    return agreed(evidence, proven_causes(view, rank(features_of(view))))


def _worked_out(
    evidence: Evidence, *, hidden: Collection[str] = ()
) -> tuple[View, Job, Sequence[Case], list[Message], Inference | None]:
    """As :func:`view_of`, before a look at the known cases, with what the observed figures imply of the job."""
    warnings: list[Message] = []
    evidence = with_card_of_the_question(evidence) if is_planned(evidence) else evidence
    job = _job(evidence, warnings)
    inference: Inference | None = None
    supposed: Inference | None = None
    planned = is_planned(evidence)
    running = planned and sees_figures(evidence)
    careful = planned and careful_job(evidence, job)
    if planned:
        job = planned_run(evidence, job).job
        if careful and (job.framework is not None or running):
            job = job.with_fields({"planned": True})
    else:
        for completed in _COMPLETED_BY_ITS_TEXT:
            job = completed(evidence, job)
    makes_pictures = planned and asked_of(evidence).diffusion
    priced = _priced(job, warnings, careful=careful) if not makes_pictures else None
    whole = None if planned or priced is None else with_whole_logits(evidence, job, priced)
    if whole is not None:
        job, priced, _ = whole
    if priced is not None and (running or not planned):
        smaller_one = None if planned else smaller_card(evidence, job, priced)
        inference = smaller_one or infer(evidence, job, priced)
        if whole is not None:
            inference = replace(inference, inferred=(*inference.inferred, whole[2]))
        job, priced = inference.job, inference.priced
        smaller = with_usual_need(evidence, job, priced) if not planned and not inference.inferred else None
        if smaller is not None:
            supposed = infer(evidence, *smaller)
            if supposed.inferred:
                inference, job, priced, supposed = supposed, supposed.job, supposed.priced, None
    cases = _cases(warnings)
    known = tuple(case for case in cases if case.id not in hidden) if hidden else cases
    view = View(
        evidence=evidence,
        job=priced.job if priced else job,
        estimate=priced.estimate if priced else None,
        supposed=supposed.priced.estimate if supposed is not None else None,
        shape=priced.shape if priced else None,
        advisories=tuple(distinct(affecting(job, evidence.versions, known))),
        suspects=tuple(distinct(suspects(job, evidence.versions, known))),
        settings_by_key=_settings(evidence),
    )
    return replace(view, tensors=_tensors(view)), job, cases, warnings, supposed or inference


def _looked(
    view: View, cases: Sequence[Case], warnings: list[Message], *, hidden: Collection[str] = ()
) -> tuple[View, Look | None]:
    """The view with what the known cases say, and the look at them."""
    look = _look(view, cases, warnings)
    if look is None:
        return view, None
    return replace(view, votes=look.votes(_NEIGHBOURS, hidden=hidden), sounds=look.sounds()), look


_COMPLETED_BY_ITS_TEXT: Final = (
    *(card_by_number, run_as_told, locally_served, split_by_layers, over_its_cards),
    *(ranks_that_speak, of_unknown_stage, without_foreign_engine, set_in_words, requests_at_once, usual_precision),
)
"""What a failed run's own text tells of it beside its facts, in order."""


def _job(evidence: Evidence, warnings: list[Message]) -> Job:
    try:
        return to_job(evidence.facts, evidence.framework, evidence.versions)
    except OomdocError as error:
        warnings.append(say("diagnosis.no-job", problem=problem_of(error)))
        return Job(framework=evidence.framework, versions=dict(evidence.versions))


def _priced(job: Job, warnings: list[Message], *, careful: bool = False) -> Priced | None:
    try:
        return price(job, careful=careful)
    except OomdocError as error:
        warnings.append(say(_NO_PRICE, problem=problem_of(error), impossible=isinstance(error, JobError)))
    except ARITHMETIC_ERRORS as error:
        warnings.append(say(_NO_PRICE, problem=_problem(error)))
    return None


def _tensors(view: View) -> tuple[TensorMatch, ...]:
    failure = view.failure
    if failure is None or failure.kind != "device" or not failure.requested_bytes:
        return ()
    if view.shape is None:
        return tensors_of_unknown_model(failure.requested_bytes, view.job)
    scene = Scene(
        phase=view.phase,
        trace=view.trace,
        allocated_bytes=failure.allocated_bytes,
        made_up=view.job.model is None,
    )
    return tensors_for(failure.requested_bytes, view.shape, view.job, scene)


def _cases(warnings: list[Message]) -> tuple[Case, ...]:
    try:
        return cached_cases()
    except OomdocError as error:
        warnings.append(say("diagnosis.no-cases", problem=str(error)))
        return ()


def _look(view: View, cases: Sequence[Case], warnings: list[Message]) -> Look | None:
    try:
        return look_at(retrieval_query(view.evidence), _context(view), cases)
    except OomdocError as error:
        warnings.append(say("diagnosis.no-cases", problem=str(error)))
    return None


def retrieval_query(evidence: Evidence) -> str:
    """What is searched by: the person's words first, then the failing lines, each line once."""
    return query_of(evidence.prose, evidence.digest)


def _context(view: View) -> dict[str, Any]:
    job = view.job
    context: dict[str, Any] = {
        "framework": view.evidence.framework or job.framework,
        "phase": view.phase if view.phase != "unknown" else None,
        "method": job.method,
        "objective": job.objective,
        "gpu": job.gpu,
        "versions": dict(view.evidence.versions) or None,
    }
    return {k: v for k, v in context.items() if v}


def _settings(evidence: Evidence) -> dict[str, Any]:
    """Settings of every document by the plain end of their key."""
    found: dict[str, Any] = {}
    for document in evidence.documents:
        for setting in document.settings:
            name = setting.key.lstrip("-").rpartition(".")[2].replace("-", "_").lower()
            found.setdefault(name, setting.value)
    return found


def _planned(diagnosis: Diagnosis) -> Diagnosis:
    try:
        return plan_for(diagnosis)
    except (OomdocError, *ARITHMETIC_ERRORS) as error:
        return replace(diagnosis, warnings=(*diagnosis.warnings, say("diagnosis.no-plan", problem=_problem(error))))
