"""What happened: which memory ran out, which other failure was seen, or that nothing failed.

One file ``<id>.toml`` a kind of outcome; :mod:`rows` reads and checks them, :mod:`decide` chooses among what was seen.
"""

from oomdoc.intake.outcomes.decide import complaint_of, failure_of, is_asserted, outcome_of
from oomdoc.intake.outcomes.rows import of_engine_that_runs, row_of, rows

__all__ = ["complaint_of", "failure_of", "is_asserted", "of_engine_that_runs", "outcome_of", "row_of", "rows"]
