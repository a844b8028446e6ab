"""What happened: which memory ran out, which other failure was seen, or that nothing failed.

One file ``<id>.toml`` a kind of outcome; :mod:`rows` reads and checks them, :mod:`decide` chooses among what was seen
and :mod:`in_words` by what a person writes.
"""

from oomdoc.intake.outcomes.decide import failure_of, is_asserted, outcome_of
from oomdoc.intake.outcomes.in_words import OTHER_SUBJECT, complaint_of, question_of_figures
from oomdoc.intake.outcomes.rows import row_of, rows

__all__ = [
    "OTHER_SUBJECT",
    "complaint_of",
    "failure_of",
    "is_asserted",
    "outcome_of",
    "question_of_figures",
    "row_of",
    "rows",
]
