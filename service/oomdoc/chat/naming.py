"""Whether a number that a language model sets was named: by the person, or by a result that it was shown."""

from __future__ import annotations

import re
from typing import Final

from oomdoc.chat.grammar import understand
from oomdoc.chat.history import context_of
from oomdoc.chat.operators import find_operators
from oomdoc.chat.provenance import Sources
from oomdoc.chat.session import Session
from oomdoc.intake.numbers import NUMBER, read_number
from oomkb.errors import JobError

__all__ = ["check_named"]

_NUMBER: Final = re.compile(f"(?i){NUMBER}")
_DERIVED: Final = ("world", "dp", "params_b", "nodes")
"""Fields that follow from others: their numbers need not be said."""


def check_named(name: str, value: float, text: str, before: Session, sources: Sources) -> None:
    """Nothing, where somebody has named the number, in digits, in words or as a part of the present one.

    :param text: what the person says.
    :param before: the conversation until then.
    :raises JobError: where nobody has.
    """
    context = context_of(before)
    own = understand(text, before.job, context).changes
    if name in _DERIVED or own.get(name) == value or value in sources.numbers | sources.sizes:
        return
    present = context.present(name)
    named = {read_number(match[0]) for match in _NUMBER.finditer(text)}
    if isinstance(present, int | float):
        named |= {round(operator.apply(float(present)), 3) for operator in find_operators(text)}
    if not any(abs(value - one) < 1e-6 or abs(value - one / 100) < 1e-6 for one in named):
        raise JobError("nobody named this value", where=name, hint="ask the person, or take one that a result proposes")
