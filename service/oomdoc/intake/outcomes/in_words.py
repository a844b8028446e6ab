"""What a person's words say happened: that memory is complained of, asked about, fine again, or not the matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oomdoc.evidence import Outcome, Signal, Span
from oomdoc.intake.asked import asked_in
from oomdoc.intake.lines import Line
from oomdoc.intake.outcomes.decide import MAX_CHARS, MAX_TRIED, NAMED, is_denied, memory_named, names_memory
from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import asks_on
from oomdoc.intake.statements.complaints import read_asked
from oomdoc.intake.topics import SHOWN, topics_in

_RE: Final = patterns(__file__)
OTHER_SUBJECT: Final = "other-subject"
"""Name of the outcome of a text that tells or asks of something else than memory, in words alone."""
_COMPLAINS: Final = 0.6
"""Probability of a complaint from which one counts where nothing failed by name."""
_COMPLAINS_PLAINLY: Final = 0.7
"""Probability of a complaint from which one counts even where the size of something is asked for."""
_WONDERS: Final = 0.6
"""Probability of a complaint below which a text that asks about a known topic is answered by the topic."""
_COMPLAINS_OF_MEMORY: Final = 0.65
"""Probability of a complaint from which it is one of memory though no word of it names memory."""
_COMPLAINS_AND_COUNTS: Final = 0.95
"""The same where the number of something is asked for: cards, requests, the largest batch or length."""
_COUNTS: Final = frozenset({"cards", "batch", "length", "requests", "cache"})
_ASKS: Final = 0.9
"""Probability of a question from which words for a lack of memory speak of no failure."""
_ASKS_OF_IT: Final = 0.75
"""The same where the sentence that holds the words is a question."""
_ASKS_OF_TOPIC: Final = 0.7
"""The same where that question is of a topic that is known."""
_SURE_TOPIC: Final = 0.9
"""Probability of a topic from which a text that complains of nothing is a question of it."""
_COMPLAINS_WITHOUT_A_MARK: Final = 0.2
"""Probability of a complaint below which words without any question mark may still be about a topic."""
_COMPLAINS_IN_A_QUESTION: Final = 0.3
"""Probability of a complaint below which such a sentence speaks of no failure."""
_OTHER_SUBJECT: Final = 0.6
"""Probability that a text is about something else than memory from which no figure is given for it."""


def complaint_of(
    outcome: Outcome | None, prose: Sequence[Line], *, configured: bool = False, serves: bool = False
) -> Outcome | None:
    """The outcome by what a person writes: memory that is complained of fails, memory that is asked about does not.

    :param outcome: what lines show. One that a program printed stays as it is, and the prose is not read.
    :param configured: whether a configuration or a command is there as well: then its run is what the text is about.
    :param serves: whether an engine runs that takes its share of the card.
    """
    said = outcome is not None and outcome.kind == "said"
    open_to_words = outcome is None or outcome.kind in ("said", "question") or outcome.confidence < NAMED
    asked = read_asked(prose) if open_to_words else None
    if asked is None:
        return outcome
    words = "\n".join(line.text[:MAX_CHARS] for line in prose[:MAX_TRIED])
    wanted = asked_in(words)
    # Why a running engine holds its share has an answer, and nothing failed.
    why_held = wanted.wanted == "reserved" and (serves or wanted.engine is not None)
    if outcome is not None and said:
        within = asks_on(outcome.span.text, outcome.span.column - 1)
        # A question of a topic that is known, with no complaint in it, whatever sign ends it.
        of_topic = asked.complaint < min(asked.question, _COMPLAINS_IN_A_QUESTION)
        of_topic = of_topic and (wanted.questions > 0 or asked.complaint < _COMPLAINS_WITHOUT_A_MARK)
        of_topic = of_topic and _topic_in(words) >= _SURE_TOPIC
        asks = (asked.question >= _ASKS or of_topic) or (
            within
            and (
                asked.question >= _ASKS_OF_IT
                or asked.complaint < _COMPLAINS_IN_A_QUESTION
                or (why_held and outcome.name == "said-growth")
                or (asked.question >= _ASKS_OF_TOPIC and _topic_in(words) >= SHOWN)
            )
        )
        return _question(outcome.span) if asks else outcome
    # Whose words ask for a size or compare two ways wants an answer; who tells of a failure names machines too.
    compares = any("gpu" not in side.fields for side in wanted.alternatives)
    sized = compares or wanted.wanted not in ("fit", "reserved")
    if asked.other >= _OTHER_SUBJECT and not (sized or configured) and (outcome is None or outcome.kind == "question"):
        return Outcome("question", OTHER_SUBJECT, prose[0].span(1), None, asked.other)
    if asked.complains is None or asked.complaint < _COMPLAINS:
        if (sized or asked.question > asked.complaint) and outcome is not None and outcome.kind == "other":
            return _question(outcome.span)
        return outcome
    nothing = outcome is None or outcome.kind == "question"
    # What only may be a complaint, and asks about a topic that is known, is answered by the topic.
    wondered = wanted.questions > 0 and asked.complaint < _WONDERS
    if nothing and (wondered or _RE["no_failure"].search(words)) and _topic_in(words) >= SHOWN:
        return _question(asked.complains)
    least = _COMPLAINS_AND_COUNTS if wanted.wanted in _COUNTS else _COMPLAINS_PLAINLY
    plainly = asked.complaint >= least and not compares
    if (
        why_held
        or (sized and not plainly)
        or (configured and wanted.questions and asked.complaint < _COMPLAINS_PLAINLY)  # a run that is to come
        or (asked.complaint < _COMPLAINS_OF_MEMORY and _RE["of_memory"].search(words) is None)
        or is_denied(asked.complains.text)
    ):
        return outcome
    texts = (asked.complains.text, words)
    named = next((t for t in texts if names_memory(t)), "")
    return Outcome("said", "complaint", asked.complains, memory_named(named), 0.6)


def _question(span: Span) -> Outcome:
    return Outcome("question", "memory-question", span, None, 0.8)


def _topic_in(words: str) -> float:
    """The probability of the topic that words are most likely about."""
    return max(topics_in(words).values(), default=0.0)


def question_of_figures(outcome: Outcome | None, signals: Sequence[Signal], prose: Sequence[Line]) -> Outcome | None:
    """The outcome; a question behind figures that a person measured is one, whatever else is said."""
    if outcome is None or outcome.name not in ("said-growth", "complaint"):
        return outcome
    asks = any("?" in line.text or "？" in line.text for line in prose)
    parts = any(signal.name == "size-beside" and "fixed_bytes" in signal.data for signal in signals)
    on_a_line = sum(signal.name == "held-at" for signal in signals) + parts > 1
    measured = any(signal.name == "worked-at" and signal.data.get("measured") for signal in signals)
    if asks and (on_a_line or (outcome.name == "complaint" and measured)):
        return _question(outcome.span)
    return outcome
