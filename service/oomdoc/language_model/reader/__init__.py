"""The reader: the masked text to claims with quotes, claims checked against the text, what holds into Evidence.

:func:`questions_of` and :func:`taken` are plain functions of values, so that the call between them may be made by
another process, or be a recorded reply; :func:`reading_by` does all of it.
"""

from __future__ import annotations

from oomdoc.language_model.reader.asking import VERSION, Question, questions_of
from oomdoc.language_model.reader.reading import Reader, reading_by, recorded, replies_to, taken

__all__ = ["VERSION", "Question", "Reader", "questions_of", "reading_by", "recorded", "replies_to", "taken"]
