"""What of a case and of a cause is embedded and indexed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.records.case import Case
from oomkb.records.taxonomy import CAUSES
from oomkb.retrieval.text import MAX_CHARS, bilingual, gloss, search_words, spellings, telling, widened
from oomkb.tables import read_toml

_BLANKS: Final = re.compile(r"\s+")
_HEADING_CHARS: Final = 400
_SYMPTOM_CHARS: Final = (320, 160)
"""How much of the first and of the second symptom: embedding costs about 0.2 ms per token and core."""


def matched(text: str, cases: Sequence[Case]) -> dict[int, tuple[float, str]]:
    """Case number -> (how much it decides, 0..1; the signature), for the cases that have one in the text.

    1 for a signature of one case alone, falling with the logarithm of how many cases have it.
    """
    plain = _plain(text[:MAX_CHARS])
    holders: dict[str, list[int]] = {}
    for number, case in enumerate(cases):
        for signature in case.signatures:
            if _plain(signature.text) in plain:
                holders.setdefault(signature.text, []).append(number)
    found: dict[int, tuple[float, str]] = {}
    for words, numbers in sorted(holders.items()):
        decides = 1 - math.log(len(set(numbers))) / math.log(max(2, len(cases)))
        for number in numbers:
            found[number] = max(found.get(number, (0.0, "")), (decides, words))
    return found


@lru_cache(maxsize=65_536)
def _plain(text: str) -> str:
    return _BLANKS.sub(" ", text.lower()).strip()


@dataclass(frozen=True, slots=True)
class CauseExamples:
    """How people describe a cause: whole questions, and single words that speak for it."""

    questions: tuple[str, ...]
    signs: tuple[str, ...]


@cache
def causes() -> Mapping[str, CauseExamples]:
    """Cause -> how people describe it, in the order of the names."""
    table = read_toml(Path(__file__).parent / "data" / "causes.toml")
    return {
        name: CauseExamples(tuple(table[name]["questions"]), tuple(table[name]["signs"])) for name in sorted(CAUSES)
    }


def query_words(text: str) -> list[str]:
    """The search words of a question or a passage: its own, those of its English gloss, those behind its slang."""
    text = telling(text)
    english = gloss(text)
    own = search_words(text)
    translated = [] if english == text.strip() else search_words(english)
    return own + translated + search_words(widened(english))


def shown_words(text: str) -> dict[str, str]:
    """Search word -> what to show a person for it. Chinese pairs that are no word of the vocabulary are not shown."""
    english = gloss(telling(text))
    known = {word: word for word in bilingual() if word in text}
    return known | spellings(widened(english)) | spellings(english)


def case_passages(case: Case) -> list[str]:
    """The texts that stand for a case as vectors: what happened, and the symptom as it was met."""
    heading = f"{case.title.get('en', '')}. {case.summary.get('en', '')}"
    symptoms = (gloss(telling(text))[:limit] for text, limit in zip(case.symptoms, _SYMPTOM_CHARS, strict=False))
    return [gloss(heading)[:_HEADING_CHARS], *symptoms]


def case_words(case: Case) -> list[str]:
    """The search words of a case; its title and signatures count twice."""
    title, summary, why = ([*m.values()] for m in (case.title, case.summary, case.why))
    signatures = [s.text for s in case.signatures if s.text]
    fields = [*title, *title, *summary, *why, *signatures, *signatures, *case.symptoms, *case.frameworks]
    return [word for field in fields for word in query_words(field)]


def cause_passages(cause: str) -> list[str]:
    """The texts that stand for a cause as vectors: its definition and each question."""
    return [CAUSES[cause][0], *(gloss(q) for q in causes()[cause].questions)]


def cause_words(cause: str) -> list[str]:
    """The search words of a cause."""
    talk = causes()[cause]
    fields = [*CAUSES[cause], *talk.questions, *talk.signs, *talk.signs]
    return [word for field in fields for word in query_words(field)]
