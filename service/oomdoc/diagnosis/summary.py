"""Two sentences a tired engineer can act on, with numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from oomdoc.diagnosis.answering import answer_to
from oomdoc.diagnosis.comparing import Plain
from oomdoc.diagnosis.explaining import nearest_topics, sentences_of
from oomdoc.diagnosis.forms import needed_of
from oomdoc.diagnosis.named_keys import keys_asked
from oomdoc.diagnosis.planned import asks_why_held, is_planned
from oomdoc.diagnosis.result import CauseFinding, Diagnosis, Plan, action_key
from oomdoc.diagnosis.run_words import model_of, step_of
from oomdoc.diagnosis.serving_answers import held_by_engine, room
from oomdoc.diagnosis.supposed_runs import ENOUGH
from oomdoc.diagnosis.tables import read_tables, shown_use
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Message, Outcome, say
from oomdoc.intake.asked import asked_of, not_read
from oomkb.memory.estimate import Estimate
from oomkb.units import GIB

_MIN_PROBABILITY: Final = 0.55
_OPEN: Final = 0.4
"""A first cause less likely than this is named beside the next ones."""
_SHOWN: Final = 3
_MAX_STEPS: Final = 4


def summarise(view: View, found: Diagnosis) -> tuple[Message, ...]:
    """What it is, and what to do."""
    if found.verdict == "no-failure":
        return _quiet(view, found)
    if found.other_failure is not None:
        beside = [answer for answer in found.answers if answer.key == ENOUGH]
        return (found.other_failure.why, *_printed(found.evidence.outcome), found.other_failure.next, *beside)
    if not found.causes:
        return (say("summary.unclear"),)
    best = found.causes[0]
    out = [*found.answers, *([say("summary.unclear")] if found.verdict == "unclear" else [])]
    out += [_cause(found.causes), *_numbers(view, best)]
    action = say(action_key(best.cause, view.job.objective, view.job.grad_ckpt))
    out.append(_plan(found.plans) or found.nothing_fits or action)
    return tuple(out)


def _cause(causes: Sequence[CauseFinding]) -> Message:
    """The first cause; where none is likely, those between which the input does not decide."""
    best = causes[0]
    if best.probability >= _OPEN or len(causes) == 1:
        key = "summary.cause" if best.probability >= _MIN_PROBABILITY else "summary.probable"
        return say(key, title=say(f"cause.{best.cause}.title"), percent=round(100 * best.probability))
    shown = [
        say("summary.share", title=say(f"cause.{c.cause}.title"), percent=round(100 * c.probability)) for c in causes
    ]
    return say("summary.open", causes=shown[:_SHOWN])


def _printed(outcome: Outcome | None) -> list[Message]:
    """The line that shows another failure: what programs print often names the way out."""
    quote = " ".join(outcome.span.text.split()) if outcome is not None and outcome.printed else ""
    return [say("summary.printed", quote=quote)] if quote else []


def _weights_in_files(view: View, found: Diagnosis) -> Iterator[Message]:
    """What the model's files are in 16 bits, where the question is about work on them."""
    if found.asked is not None and found.asked.on_files and view.shape is not None:
        yield say("answer.in-files", model=model_of(found.job), size_bytes=2.0 * view.shape.params)


def _cut_off(view: View) -> Iterator[Message]:
    """That the end of a command never reaches the program: what it was meant to set is not in effect."""
    cut = next((one for one in view.evidence.inactive if one.reason in _CUT), None)
    if cut is not None:
        yield say("answer.cut-off", why=say(cut.reason, **{"setting": cut.setting, **cut.values}))


_CUT: Final = frozenset({"inactive.cut-by-comment", "inactive.missing-continuation", "inactive.blank-after-backslash"})
_NOT_WORKED_OUT: Final = ("answer.no-run", "answer.unknown")
"""Answers that say of a question only that nothing can be worked out."""


def _quiet(view: View, found: Diagnosis) -> tuple[Message, ...]:
    """No failure; where a job is described, what it is predicted to need, and what would fit."""
    outcome = view.evidence.outcome
    if outcome is not None and outcome.name == "solved":
        return (say("summary.solved"),)
    if outcome is not None and outcome.name == "printed-table" and (read := tuple(read_tables(view.evidence))):
        return read
    shown = tuple(shown_use(view.evidence))
    keys = tuple(keys_asked(asked_of(view.evidence).key)) if is_planned(view.evidence) else ()
    if found.explained:
        return (*keys, *_weights_in_files(view, found), *sentences_of(found.topics))
    answer = answer_to(view, found)
    if keys and not answer:
        return keys
    if answer and answer[0].key in _NOT_WORKED_OUT:
        near = tuple(nearest_topics(view.evidence))
        explained = bool(near) and near[0].key == "topic.nearest" and answer[0].key == "answer.no-run"
        return keys or shown or (near if explained else (*near, *answer))
    if answer:
        waits = any(a.key == "answer.queued" for a in answer)  # the engine shares its cache, and nothing need change
        short = found.outlook is not None and found.outlook.answer != "fits" and not (found.sides or waits)
        layers_first = [*_other_plans(found), *found.plans] if _asks_layers(found) else found.plans
        plan = _plan(layers_first) if short and not _is_only_shorter(found) else None
        lead = [a for a in answer if a.key.startswith("answer.servers")]
        first, *rest = (a for a in answer if a not in lead)
        rest.sort(key=lambda a: a.key != "answer.queued")
        same_cards = plan is not None and found.plans[0].name != "more-hardware"
        others = [a for a in rest if not same_cards or a.key != "answer.instead"]
        other = _plan(_other_plans(found)) if plan else None
        also = [say("summary.plan-other", changes=other.values["changes"])] if other not in (None, plan) else []
        if first.key == "answer.does-not-fit" and plan and found.plans[0].name == "spilled":
            first = say("answer.spills", **first.values)
        seen = [*(one.why for one in found.inferred), *(one.why for one in found.conflicts)]
        weighed = bool(found.sides) and found.asked is not None and found.asked.questions < 2  # "what would it cost"
        left = [] if found.topics or weighed else [say("answer.not-answered", quote=q) for q in not_read(view.evidence)]
        then = _room_then(view, found) if plan else ()
        return (*keys, *lead, *_cut_off(view), first, *seen, *([plan] if plan else []), *then, *also, *others, *left)
    outlook = found.outlook.answer if found.outlook is not None else "unknown"
    estimate, capacity = view.estimate, view.bytes_of("capacity")
    if outlook == "unknown" or estimate is None or not capacity:
        healthy = outcome is not None and outcome.kind == "healthy"
        if healthy and (held := tuple(held_by_engine(view, whole=asks_why_held(view.evidence, found.job)))):
            return held
        if healthy and asks_why_held(view.evidence, found.job):
            return (say("answer.reserved-plain"),)
        level = next((s for s in view.evidence.signals if s.name == "level-over-steps"), None)
        if level is not None and any(s.name == "growth-stated" for s in view.evidence.signals):
            return (say("answer.level", points=level.data["points"], size_bytes=level.data["last_bytes"]),)
        if shown:
            return shown
        return (say("summary.healthy" if healthy else "summary.no-failure"),)
    sizes = {"peak_bytes": needed_of(estimate), "capacity_bytes": capacity}
    if outlook == "fits":
        return (say("summary.fits", **sizes),)
    key = "summary.foreseen" if outlook == "does-not-fit" else "summary.foreseen-close"
    plan = _plan(found.plans)
    return (say(key, phase=estimate.peak_phase, owner=estimate.owner, **sizes), *([plan] if plan else []))


def _is_only_shorter(found: Diagnosis) -> bool:
    """Whether the first plan only shortens the context of which the longest is asked, and so told to the token."""
    wanted = found.asked is not None and found.asked.wanted == "length"
    return (
        wanted and bool(found.plans) and all([*c.fields] == ["serving.max_model_len"] for c in found.plans[0].changes)
    )


def _room_then(view: View, found: Diagnosis) -> tuple[Message, ...]:
    """How many requests the first plan's server holds, where that is asked."""
    asked, best = found.asked, found.plans[0]
    if asked is None or asked.wanted != "requests" or best.estimate.served is None:
        return ()
    about = Plain(best.job, best.job, best.estimate, found.careful, asked)
    return tuple(say("answer.room-then", **one.values) for one in room(about) if one.key == "answer.room")


def _numbers(view: View, best: CauseFinding) -> list[Message]:
    if best.cause in _OF_HOST:  # what a card holds says nothing of it
        sizes = dict(best.why[0].values) if best.is_proven else {}
        wanted = {name: sizes.get(name) for name in ("needed_bytes", "given_bytes")}
        return [say("summary.host", **wanted)] if all(wanted.values()) else []
    tensor = next((t for t in view.tensors if t.match >= 0.6 and t.cause == best.cause), None)
    requested, capacity = view.bytes_of("requested"), view.bytes_of("capacity")
    if tensor is not None:
        shape = " × ".join(f"{n:,}" for n in tensor.shape)
        return [say("summary.tensor", tensor=tensor.note or tensor.name, shape=shape, size_bytes=tensor.size_bytes)]
    if (estimate := view.supposed or view.estimate) is not None and capacity:
        return [_predicted(estimate, capacity)]
    if requested:
        return [say("summary.requested", requested_bytes=requested)]
    return []


_OF_HOST: Final = frozenset({"host-ram", "shared-memory"})


def _predicted(estimate: Estimate, capacity_bytes: float) -> Message:
    """What the run is predicted to need beside what the card holds."""
    engine = estimate.served
    if engine is not None and not engine.starts and engine.cache_bytes > 0:
        return say(
            "summary.short-cache",
            cache_bytes=engine.cache_bytes,
            needed_bytes=engine.needed_bytes,
            length=f"{engine.length:,}",
            requests=engine.at_once,
        )
    needed = needed_of(estimate)  # what the allocator may cache besides, it gives back
    sizes = {"peak_bytes": needed, "capacity_bytes": capacity_bytes}
    if estimate.fits is False or needed > capacity_bytes:
        return say("summary.over", **sizes, phase=estimate.peak_phase, owner=estimate.owner)
    if needed > _NEAR * capacity_bytes:
        return say("summary.near", **sizes, owner=estimate.owner)
    return say("summary.under", **sizes)


_NEAR: Final = 0.9
"""Of a card: a run that is predicted to take more of it can fail for what no setting says."""


def _other_plans(found: Diagnosis) -> list[Plan]:
    """Plans that are named beside the first: how many layers go on the card, where that is asked."""
    if _asks_layers(found):
        return [p for p in found.plans if p.name == "spilled"]
    return [p for p in found.plans[1:] if p.name in _OTHERS]


def _asks_layers(found: Diagnosis) -> bool:
    return found.asked is not None and found.asked.wanted == "layers"


_OTHERS: Final = ("keep-context", "spilled")
"""Plans of servers that stand beside the first: a person chooses what to give up."""


def _plan(plans: Sequence[Plan]) -> Message | None:
    """The first plan that fits, in full."""
    for plan in plans:
        steps = [step_of(change) for change in plan.changes]
        # Steps of which arithmetic knows nothing come first only where it has nothing of its own to say.
        alone = plan.fits_probability >= 0.5 or not any(p.priced for p in plans)
        if not plan.priced and alone and 0 < len(steps) <= _MAX_STEPS:
            return say("fixes.note.steps", changes=steps)
        if plan.priced and plan.fits_probability >= 0.5 and 0 < len(steps) <= _MAX_STEPS:
            host = plan.estimate.host_bytes
            key = "summary.plan-host" if host >= GIB else "summary.plan"
            return say(key, changes=steps, peak_bytes=plan.needed_bytes, host_bytes=host)
    return None
