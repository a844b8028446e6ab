"""The language of a turn."""

from __future__ import annotations

import re
from typing import Final

from oomdoc.chat.describing import is_pasted
from oomdoc.chat.explicit import SENTENCE_WORDS
from oomdoc.chat.session import Session
from oomdoc.intake.topics import is_chinese

_LATIN_WORD: Final = re.compile(r"[A-Za-z]{2,}")


def language_of(session: Session, text: str) -> str:
    """The language that a turn is answered in: the conversation's, until the person clearly writes in the other.

    Keys, flags, names and pasted material are written in Latin letters by everybody.
    """
    if is_chinese(text):
        return "zh"
    if not session.steps:
        return "en"
    if session.language == "en" or is_pasted(text):
        return session.language
    return "en" if sum(word.lower() in SENTENCE_WORDS for word in _LATIN_WORD.findall(text)) >= 2 else "zh"
