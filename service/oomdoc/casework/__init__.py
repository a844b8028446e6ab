"""Working with case records: list, show, start, check and add them. Nothing here prints."""

from oomdoc.casework.asking import QUESTIONS, Added, Question, add, check_text, found, from_answers, listed
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
