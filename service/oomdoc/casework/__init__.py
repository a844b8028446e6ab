"""Working with case records: list, show, start, check and add them. Nothing here prints."""

from oomdoc.casework.adding import Added, add, check_text, found, listed
from oomdoc.casework.asking import QUESTIONS, Question, from_answers
from oomdoc.casework.starting import from_diagnosis, read_diagnosis, scaffold, write_new

__all__ = [
    "QUESTIONS",
    "Added",
    "Question",
    "add",
    "check_text",
    "found",
    "from_answers",
    "from_diagnosis",
    "listed",
    "read_diagnosis",
    "scaffold",
    "write_new",
]
