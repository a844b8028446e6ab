"""Questions about a concept: the topics that answer them, with what the memory model computes for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from oomdoc.diagnosis.planned import is_planned
from oomdoc.diagnosis.result import FoundTopic, Outlook
from oomdoc.diagnosis.run_words import model_of
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Evidence
from oomdoc.intake.asked import asked_of
from oomdoc.intake.topics import SHOWN, SHOWN_TOO, topics_of
from oomdoc.messages import Message, say
from oomkb.errors import OomdocError
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.pricing import price_planned
from oomkb.topics import Shown, Topic, topics

__all__ = ["asks_concept", "figure_of", "found_topics", "near_topics", "sentences_of"]

_SAME: Final = 0.005
"""Relative difference up to which two figures are the same."""


def found_topics(evidence: Evidence, job: Job) -> tuple[FoundTopic, ...]:
    """The topics that a person's words ask about: none, one or two."""
    likely = list(topics_of(evidence).items())[:2]
    if not likely or likely[0][1] < SHOWN:
        return ()
    return tuple(
        FoundTopic(topics()[name], share, figure_of(topics()[name], job))
        for name, share in likely
        if share >= SHOWN or (share >= SHOWN_TOO and is_planned(evidence))
    )


def near_topics(evidence: Evidence) -> tuple[Topic, ...]:
    """Up to three topics that are near what is asked, where none is sure enough to be shown."""
    return tuple(topics()[name] for name in list(topics_of(evidence))[:3])


def asks_concept(view: View, found: Sequence[FoundTopic], outlook: Outlook | None) -> bool:
    """Whether a topic is the answer, and not a figure for the run that the question describes."""
    if not found or view.evidence.documents or (outlook is not None and outlook.answer != "unknown"):
        return False
    asked = asked_of(view.evidence)
    named = view.stated("model") is not None or view.stated("params_b") is not None
    return not (named and (asked.wanted not in ("fit", "reserved") or asked.alternatives))


def sentences_of(found: Sequence[FoundTopic]) -> Iterator[Message]:
    """What an answer says of the topics, the first of them under its title already."""
    for number, one in enumerate(found):
        yield say("topic.titled" if number else "topic.said", title=one.topic.title, text=one.topic.answer)
        if one.figure is not None:
            yield one.figure
        yield say("topic.sources", sources="; ".join(one.topic.sources))


def figure_of(topic: Topic, job: Job) -> Message | None:
    """The figures of a topic, for the model that a question names, else for the topic's example."""
    shown = topic.shown
    if shown is None:
        return None
    own = {n: job.get(n) for n in ("model", "params_b") if job.get(n) is not None and n not in job.assumed}
    for model in (own, {}):
        run = {**{n: v for n, v in shown.job.items() if not model or n not in ("model", "params_b")}, **model}
        sizes = _sizes(shown, run)
        if sizes is not None:
            named = Job.from_document(run)
            common = _fields({n: v for n, v in run.items() if n not in ("model", "params_b")})
            run_ = say("topic.run", model=model_of(named), fields=common) if common else model_of(named)
            return say(f"topic.figure{'' if model else '-example'}", run=run_, sides=sizes, what=_what(shown))
    return None


def _fields(fields: Mapping[str, Any]) -> str:
    """Job fields as ``--set`` takes them."""
    return " ".join(f"{name}={_plain(value)}" for name, value in fields.items())


def _what(shown: Shown) -> Message | str:
    return say(f"topic.of-{shown.figure}") if shown.figure in _METERS else say(f"term.{shown.figure}")


def _sizes(shown: Shown, run: Mapping[str, Any]) -> list[Message] | None:
    """Each side with its size; ``None`` where one cannot be priced."""
    out = []
    try:
        for side in shown.sides:
            priced = price_planned(Job.from_document(run).with_fields(side))
            out.append(
                say(
                    "topic.side",
                    side=_fields(side) or say("topic.plain"),
                    size_bytes=_size_of(priced.estimate, shown.figure),
                )
            )
    except OomdocError:
        return None
    return out


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_plain(one)}" for name, one in value.items()) + "}"
    return "+".join(map(_plain, value)) if isinstance(value, list | tuple) else f"{value}"


_METERS: Final = ("process", "allocated", "host", "cache")


def _size_of(estimate: Estimate, figure: str) -> float:
    if figure == "cache":
        return estimate.served.needed_bytes if estimate.served is not None else 0.0
    if figure in _METERS:
        return float(getattr(estimate, f"{figure}_bytes"))
    terms = (terms for terms in (phase.terms_bytes for phase in estimate.phases.values()))
    return max(sum(size for name, size in one.items() if name.startswith(figure)) for one in terms)
