"""A cause with the sum that proves it, and what several sums ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from oomdoc.diagnosis.view import View
from oomdoc.evidence import Signal, Span
from oomdoc.messages import Message, say
from oomkb.dataclass import dataclass

WEIGHT_BYTES: Final = 2
TUNES: Final = frozenset(
    {"do_autotuning", "benchmark_in_current_process", "autotune_to_one_config", "benchmark_all_configs"}
)
"""Functions in which Inductor tries kernels: torch ``_inductor/select_algorithm.py`` and ``triton_heuristics.py``."""


@dataclass(frozen=True, slots=True)
class Account:
    """What a sum says of the cause."""

    cause: str
    why: Message
    span: Span


def account_of(
    view: View, cause: str, words: str, values: Mapping[str, Any], span: Span | None = None
) -> Iterator[Account]:
    """A cause with its sum, at a line that shows it or at that of the failure."""
    if span is None and view.failure is not None:
        span = view.failure.signal.span
    if span is not None:
        yield Account(cause, say(f"account.{words}", **values), span)


def last_signal(view: View, *names: str) -> Signal | None:
    """The last signal of one of these names."""
    return next(iter(reversed(list(view.evidence.find(*names)))), None)
