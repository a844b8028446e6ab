"""Whether a text tells a known case word for word: the same log, the same settings, not merely something alike.

Being alike is a matter of degree, and of the words that all failures share. A record's symptom standing whole in
somebody's log is another thing: it is that failure again, met by somebody else, or by the same machine a week later.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from oomkb.records.case import Case
from oomkb.records.texts import shingles

Said = frozenset[tuple[str, ...]]
_MIN_SHARED_PART: Final = 0.9
"""The part of a symptom that has to be there: a path or a process number may differ."""
_MIN_SHARED_RUNS: Final = 20
"""Runs of three words that have to agree in all: a short question is asked of many failures, a log line with its
figures, or a command, is not."""


def said(text: str) -> Said:
    """What a text says, as :func:`retold` asks for it."""
    return shingles(text)


def retold(case: Case, text: Said) -> bool:
    """Whether the text holds so much of the case's symptoms that it tells of the same failure."""
    parts = [_parts(symptom) for symptom in case.symptoms]
    return sum(len(part) for part in parts if len(part & text) >= _MIN_SHARED_PART * len(part)) >= _MIN_SHARED_RUNS


@lru_cache(maxsize=4096)
def _parts(symptom: str) -> Said:
    return shingles(symptom)
