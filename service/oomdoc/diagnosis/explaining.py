"""Questions about a concept: the topics that answer them, with what the memory model computes for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from oomdoc.diagnosis.forms import most_of
from oomdoc.diagnosis.planned import asks_why_held, put_off, wants_figure
from oomdoc.diagnosis.result import FoundTopic, Outlook
from oomdoc.diagnosis.run_words import model_of
from oomdoc.diagnosis.view import View
from oomdoc.evidence import Evidence, Message, say
from oomdoc.intake.asked import asked_in, asked_of
from oomdoc.intake.topics import NEAR, SHOWN, topics_asked, topics_in, topics_of, topics_told
from oomkb.errors import OomdocError
from oomkb.kept import lazy
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.pricing import price_planned
from oomkb.topics import Shown, Topic, topics

_SURE: Final = 0.8
"""Probability from which a topic answers words for a size, and stands beside the figures of a run."""
_FLAGS_ASKED_ABOUT: Final = 1
"""Settings that a question about a flag may quote; more are a configuration, and the question is about its run."""
_LISTED_FLAGS: Final = 3
"""Options without values from which a question lists them."""
_MAX_WHOLE: Final = 2
"""Topics that are given in full; of more the beginning of each."""
_MAX_TOPICS: Final = 7
"""Topics of an input that puts several questions."""


def found_topics(evidence: Evidence, job: Job) -> tuple[FoundTopic, ...]:
    """The topics that a person's words ask about: up to two, of several questions up to three."""
    if named := _topics_of_flags(evidence):
        return tuple(FoundTopic(topic, 1.0, None) for topic in named)
    likely = topics_of(evidence)
    if not likely:
        return ()
    found = _found(likely, job, most=max(2, _questions(evidence)))
    if found or not asked_of(evidence).on_files:
        return found
    return _found(likely, job, most=1, least=NEAR)  # no run answers it: the nearest topic does


def _topics_of_flags(evidence: Evidence) -> tuple[Topic, ...]:
    """The topics that speak of the options which a question lists without values, in their order."""
    settings = [setting for document in evidence.documents for setting in document.settings]
    if len(settings) < _LISTED_FLAGS or any(setting.value is not True for setting in settings):
        return ()  # few, or a configuration
    if not asked_of(evidence).why:
        return ()
    listed = [setting.key.lower().replace("-", "_") for setting in settings]
    found: dict[str, Topic] = {}
    for flag in listed:
        told = (t for place in range(_PLACES) for t in topics().values() if _names(t, flag, place))
        if (topic := next(told, None)) is not None:
            found.setdefault(topic.id, topic)
    return tuple(found.values())[:_MAX_TOPICS]


_PLACES: Final = 4


def _names(topic: Topic, flag: str, place: int) -> bool:
    """Whether a topic speaks of an option: in its title, in its questions, by its fields, or only in its answer."""
    if place == 2:
        return flag in (setting.rpartition(".")[2] for setting in topic.settings)
    texts = ((topic.id, topic.title["en"]), topic.questions["en"], (), (topic.answer["en"],))[place]
    return any(flag in text.lower().replace("-", "_") for text in texts)


def asked_topics(text: str, job: Job) -> tuple[FoundTopic, ...]:
    """The topics that a turn of a conversation asks about."""
    return _found(topics_in(text), job, most=2)


def concept_asked(text: str, job: Job) -> tuple[FoundTopic, ...]:
    """The topic that answers a turn which asks why or what something is, and names no run of its own."""
    asked = asked_in(text)
    if not asked.why or asked.wanted not in ("fit", "share", "reserved"):
        return ()
    return explained_topics(text, job)


def explained_topics(text: str, job: Job) -> tuple[FoundTopic, ...]:
    """The topic of a turn that asks how something works."""
    return _found(topics_in(text), job, most=1, least=_WHY)


def nearest_topic(text: str) -> Message | None:
    """The text of the topic that is nearest to a turn which asks how something works, called that."""
    best = next(iter(topics_in(text).items()), None)
    if best is None or best[1] < _MIN_NEAR_A_TURN:
        return None
    return _nearest(topics()[best[0]])


def _nearest(topic: Topic) -> Message:
    return say("topic.nearest", title=topic.title, text=topic.answer)


_MIN_NEAR_A_TURN: Final = 0.12
"""Probability from which the nearest topic answers a turn that surely asks how something works."""
_WHY: Final = 0.3
"""Probability from which a topic answers a turn that asks for a reason."""


def _questions(evidence: Evidence) -> int:
    """How many questions a text puts, as far as topics are shown for them."""
    return min(_MAX_TOPICS, asked_of(evidence).questions)


def _found(likely: Mapping[str, float], job: Job, *, most: int, least: float = SHOWN) -> tuple[FoundTopic, ...]:
    shown = [(topics()[name], share) for name, share in list(likely.items())[:most] if share >= least]
    return tuple(FoundTopic(topic, share, figure_of(topic, job)) for topic, share in shown)


_MIN_NEAREST: Final = 0.2
"""Probability from which the text of the nearest topic is given where no topic is sure enough to be shown."""


def nearest_topics(evidence: Evidence) -> Iterator[Message]:
    """The topics that are near what is asked, where none is sure enough to be shown: the text of the nearest one, if it
    is not improbable, and the names of up to three.
    """
    near = [(topics()[name], share) for name, share in list(topics_of(evidence).items())[:_MAX_NEAR]]
    others = "topic.none-sure"
    if near and near[0][1] >= _MIN_NEAREST:
        (nearest, _), *near = near
        yield _nearest(nearest)
        others = "topic.also-near"
    if near:
        yield say(others, topics=[say("topic.named", title=topic.title, id=topic.id) for topic, _ in near])


_MAX_NEAR: Final = 3


def asks_concept(view: View, topics_found: Callable[[], Sequence[FoundTopic]], outlook: Outlook | None) -> bool:
    """Whether a topic is the answer, and not a figure for the run that the question describes.

    :param topics_found: finds the topics, which takes longer than all else; asked only where they decide.
    """
    if _topics_of_flags(view.evidence):
        return True
    if _configures(view.evidence) or put_off(view.evidence):
        return False
    asked = asked_of(view.evidence)
    if asked.on_files:
        return bool(topics_found())
    if asked.wanted == "model" and view.stated("gpu") is not None:
        return False
    if asked.wanted == "cache" and view.stated("model") is not None and (asked.length or asked.concurrency):
        return False
    known = outlook is not None and outlook.answer != "unknown"
    whole = view.stated("model") is not None and view.stated("gpu") is not None and asked.wanted == "fit"
    why = asked.why and asked.wanted in ("fit", "reserved") and not (whole and known)
    named = view.stated("model") is not None or view.stated("params_b") is not None
    of_no_run = not known and not (named and (asked.wanted not in ("fit", "reserved") or asked.alternatives))
    found = topics_found() if why or of_no_run else ()
    held = asks_why_held(view.evidence, view.job)
    if not found or (held and found[0].topic.id not in _OF_A_SHARE):
        return False
    of_a_card = wants_figure(view.evidence) and (view.stated("gpu") or view.stated("capacity_gib")) is not None
    if of_a_card and not asked.why and asked.wanted in ("fit", "amount", "cards") and asked.questions < _ASKS_MORE:
        return False  # whether it is enough, of a run whose model is not named
    if found[0].probability >= _SURE:
        return True
    # How much of a run that is not known is no concept.
    return of_no_run and not of_a_card and not (asked.wanted == "amount" and outlook is not None)


_OF_A_SHARE: Final = frozenset({"gpu-memory-utilization", "lmdeploy-cache-share"})
"""Topics of why an engine holds its share of the card: any other one only stands beside it in the text."""
_ASKS_MORE: Final = 3
"""Questions from which a text about a card asks for more than whether it is enough."""


def _configures(evidence: Evidence) -> bool:
    """Whether a text sets several options, and does not only name them in its sentences."""
    values = [setting.value for document in evidence.documents for setting in document.settings]
    return sum(value is not True and not _PROSE.search(str(value)) for value in values) > _FLAGS_ASKED_ABOUT


_PROSE: Final = lazy(r"[一-鿿？?]")
"""What stands behind the name of an option in a sentence, and is no value."""


def beside(found: Sequence[FoundTopic]) -> tuple[FoundTopic, ...]:
    """The topic beside the figures of a run."""
    return tuple(topic for topic in found[:1] if topic.probability >= _SURE)


def of_what_is_asked(evidence: Evidence, job: Job) -> Iterator[Message]:
    """The topic of a question that tells of a failure in a few words, where nothing that a program printed is there."""
    asked, root = asked_of(evidence), evidence.root
    traced = root is not None and bool(root.frames)
    if evidence.documents or traced or not (asked.why or asked.questions):
        return
    for one in _found(topics_told(evidence), job, most=1, least=_SURELY_ASKED):
        yield say("topic.titled", title=one.topic.title, text=one.topic.answer)


_SURELY_ASKED: Final = 0.85
"""Probability from which a topic stands before the cause of a failure that is only told of."""


def of_the_others(topics_found: Callable[[], Sequence[FoundTopic]], evidence: Evidence) -> tuple[FoundTopic, ...]:
    """The topics beside the figures of a run: of several questions those of the others.

    Only what the questions themselves are about: a setting that the run merely has is no question, and one question of
    a run on a card is answered by its figures.

    :param topics_found: as of :func:`asks_concept`.
    """
    most = max(0 if "gpu" in evidence.facts else 1, _questions(evidence) - 1)
    sure = [topic for topic in topics_found() if topic.probability >= _SURE] if most else []
    asked = topics_asked(evidence) if sure else {}
    return tuple(topic for topic in sure if asked.get(topic.topic.id, 0.0) >= SHOWN)[:most]


def sentences_of(found: Sequence[FoundTopic], *, titled: bool = False) -> Iterator[Message]:
    """What an answer says of the topics; ``titled``: the first one under its title too, which a screen has above it."""
    if len(found) > _MAX_WHOLE:
        for one in found:
            text = {language: _beginning(said) for language, said in one.topic.answer.items()}
            yield say("topic.brief", title=one.topic.title, text=text, id=one.topic.id)
        return
    for number, one in enumerate(found):
        yield say("topic.titled" if number or titled else "topic.said", title=one.topic.title, text=one.topic.answer)
        if one.figure is not None:
            yield one.figure
        yield say("topic.sources", sources="; ".join(one.topic.sources))


def _beginning(text: str) -> str:
    """The first sentences of a text, about a line or two."""
    least = _LINE if text.isascii() else _LINE // 3
    ends = (n + 1 for n, c in enumerate(text) if c in "。；" or (c in ".;" and text[n + 1 : n + 2] == " "))
    return text[: next((end for end in ends if end >= least), len(text))].strip()


_LINE: Final = 90
"""Characters of about a line of English."""


def figure_of(topic: Topic, job: Job) -> Message | None:
    """The figures of a topic, for the model that a question names, else for the topic's example."""
    shown = topic.shown
    if shown is None:
        return None
    own = {n: job.get(n) for n in _MODEL if job.get(n) is not None and n not in job.assumed}
    example = {n: v for n, v in shown.job.items() if n in _MODEL}
    common = {n: v for n, v in shown.job.items() if n not in _MODEL}
    # Where models stand side by side, none takes their place.
    for model in (example,) if "model" in shown.sides[0] else (own, example):
        sizes = _sizes(shown, {**common, **model}) if model or not example else None
        if sizes is not None:
            key = "topic.figure" if own and model is own else "topic.figure-example"
            what = say(f"{'topic.of-' if shown.figure in _METERS else 'term.'}{shown.figure}")
            return say(key, run=_run(model, common), sides=sizes, what=what)
    return None


_MODEL: Final = ("model", "params_b")


def _run(model: Mapping[str, Any], common: Mapping[str, Any]) -> Message | str:
    """The model and the fields that all sides share."""
    if not model:
        return _fields(common)
    name = model_of(Job.from_document(model))
    return say("topic.run", model=name, fields=_fields(common)) if common else name


def _fields(fields: Mapping[str, Any]) -> str:
    """Job fields as ``--set`` takes them."""
    return " ".join(f"{name}={_plain(value)}" for name, value in fields.items())


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
    return most_of(estimate, figure)
