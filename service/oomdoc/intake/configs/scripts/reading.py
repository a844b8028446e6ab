"""From the pieces of a script to facts."""

from __future__ import annotations

from collections.abc import Sequence

from oomdoc.intake.configs.scripts.found import Found
from oomdoc.intake.configs.scripts.loop import loop_facts
from oomdoc.intake.configs.scripts.program import Module, Program
from oomdoc.intake.configs.scripts.roles import Roles
from oomdoc.intake.configs.scripts.setup import loads_in_default_dtype, setup_facts
from oomkb.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ScriptReading:
    """What a script says."""

    facts: tuple[Found, ...] = ()
    unset: tuple[str, ...] = ()
    """Fields that the program leaves at their defaults, whatever names it gives to values."""


def read_scripts(modules: Sequence[Module]) -> ScriptReading:
    """Read the pieces of one program together. Nothing is read of what trains or sets up nothing."""
    program = Program(modules)
    roles = Roles(program)
    if not roles.models:
        return ScriptReading()
    facts = (*setup_facts(program, roles), *loop_facts(program, roles))
    cast = any(fact.name == "param_dtype" for fact in facts)
    unset = ("param_dtype",) if not cast and loads_in_default_dtype(program) else ()
    return ScriptReading(facts, unset)
