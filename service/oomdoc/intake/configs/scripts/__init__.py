"""Training scripts that people write themselves: what they set up, and what their loops hold.

The configuration tables read arguments of calls one by one; what a loop means for memory (outputs that outlive a step,
a loss from the logits, gradients zeroed in place) shows only in the program as a whole. Nothing is executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oomdoc.evidence import Fact

if TYPE_CHECKING:
    from oomdoc.intake.configs.lines import Lines
    from oomdoc.intake.configs.scripts.program import Module

__all__ = ["of_scripts"]


def of_scripts(modules: Sequence[Module], lines: Lines, kept: dict[str, Fact]) -> None:
    """Put what a source's Python says as a whole into the facts.

    A program as a whole is surer than its arguments one by one, and yields to commands and files.
    """
    if not modules:
        return
    from oomdoc.intake.configs.scripts.reading import read_scripts

    script = read_scripts(modules)
    for name in script.unset:
        if name in kept and kept[name].origin == "code":
            del kept[name]
    for found in script.facts:
        fact = Fact(found.name, found.value, lines.span(found.offset), "code", found.confidence)
        known = kept.get(fact.name)
        if known is None or not known.stated or (known.origin in ("code", "prose") and fact.confidence == 1.0):
            kept[fact.name] = fact
