"""Which expressions can match a text at all: decided by the literals that each of them needs, before any of them runs.

Most expressions of this package look for something that most texts do not hold. An :class:`Expression` knows literals
of which every match contains one; a :class:`Vocabulary` knows quickly which literals a text holds; a :class:`Sieve`
tries on each line only those of its expressions that could match there. Nothing is found that was not found before,
and nothing less: a sieve only leaves out searches that must fail. An expression is compiled when it is first tried, so
that a cold start pays for few of them.
"""

from __future__ import annotations

from oomdoc.intake.sieve.sieve import Expression, Sieve, Vocabulary, candidates, found_in, grams_of

__all__ = ["Expression", "Sieve", "Vocabulary", "candidates", "found_in", "grams_of"]
