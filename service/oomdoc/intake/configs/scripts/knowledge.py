"""The table of calls (``calls.toml``), read once and checked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from oomkb.dataclass import dataclass
from oomkb.memory.vocabulary import normalise
from oomkb.tables import read_table


@dataclass(frozen=True, slots=True)
class Calls:
    """What calls mean, by full name."""

    optimizers: Mapping[str, tuple[str, str]]
    """Class to the job's ``optimizer`` and ``optimizer_impl`` (empty: the class's own default)."""
    bare: Mapping[str, tuple[str, str]]
    """The same by a class's own name, where every module means the same by it."""
    eight_bit: Mapping[str, str]
    wrappers: Mapping[str, str]
    strategies: Mapping[str, str]
    casts: Mapping[str, str]
    dtypes: Mapping[str, str]
    autocast: frozenset[str]
    no_grad: frozenset[str]
    prepares: frozenset[str]
    lightning: Mapping[str, Mapping[str, object]]
    """Of Lightning's trainer: ``precision.<value>`` and ``strategy.<value or class>`` to the job's fields."""


@cache
def calls() -> Calls:
    """The shipped table.

    :raises JobError: where a word is none of the job's.
    """
    table = read_table(Path(__file__).with_name("calls.toml"))
    optimizers = {}
    by_name: dict[str, set[tuple[str, str]]] = {}
    for module, classes in table["optimizers"].items():
        for name, word in classes.items():
            kind, _, how = word.partition("/")
            pair = (normalise("optimizer", kind), normalise("optimizer_impl", how) if how else "")
            optimizers[f"{module}.{name}"] = pair
            by_name.setdefault(name, set()).add(pair)
    for word in (*table["wrappers"].values(), *table["strategies"].values()):
        normalise("sharding", word)
    return Calls(
        optimizers=optimizers,
        bare={name: next(iter(found)) for name, found in by_name.items() if len(found) == 1},
        eight_bit=table["eight_bit"],
        wrappers=table["wrappers"],
        strategies=table["strategies"],
        casts=table["casts"],
        dtypes=table["dtypes"],
        autocast=frozenset(table["contexts"]["autocast"]),
        no_grad=frozenset(table["contexts"]["no_grad"]),
        prepares=frozenset(table["kbit"]["prepares"]),
        lightning={
            f"{part}.{name}": fields for part in table["lightning"] for name, fields in table["lightning"][part].items()
        },
    )
