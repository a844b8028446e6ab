"""The language of a turn."""

from __future__ import annotations

import re
from typing import Final

from oomdoc.chat.context import Context
from oomdoc.chat.describing import is_pasted
from oomdoc.chat.explicit import SENTENCE_WORDS, blanked, read_explicit
from oomdoc.chat.session import Session
from oomdoc.chat.wording import words
from oomdoc.intake.topics import is_chinese

_LATIN_WORD: Final = re.compile(r"(?<![\w.-])[A-Za-z]{2,}(?![\w-])")
_OF_BOTH: Final = frozenset({"on", "off", "true", "false", "yes", "no", "ok", "okay", "oops", "haha", "lol"})
"""Words that a setting has for a value, and those that are said in Chinese too."""
_ENGLISH: Final = (SENTENCE_WORDS | words("fillers")) - _OF_BOTH


def language_of(session: Session, text: str) -> str:
    """The language that a turn is answered in: the conversation's, until the person writes in the other.

    Keys, their values, names and pasted material are written in Latin letters by everybody; English is what has words
    of a sentence beside them.
    """
    if is_chinese(text):
        return "zh"
    if not session.steps:
        return "en"
    if session.language == "en" or is_pasted(text):
        return session.language
    rest = blanked(text, read_explicit(text, Context(session.job)).spans)
    return "en" if any(word.lower() in _ENGLISH for word in _LATIN_WORD.findall(rest)) else "zh"
