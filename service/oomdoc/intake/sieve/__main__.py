"""Write the table of literals anew: ``python -m oomdoc.intake.sieve``. ``--check`` only tells whether that is due."""

from __future__ import annotations

import gc
import json
import sys
from importlib import import_module
from pkgutil import walk_packages
from typing import Final

from oomdoc.intake import phase
from oomdoc.intake.patterns import Patterns
from oomdoc.intake.sieve.sieve import TABLE, Expression, key_of, literals_of
from oomdoc.intake.signs import schema

_PACKAGE: Final = "oomdoc.intake"
"""Where expressions are made, when its modules are imported."""


def expressions() -> list[Expression]:
    """Every expression of the package; importing a module makes its expressions."""
    for module in walk_packages(import_module(_PACKAGE).__path__, f"{_PACKAGE}."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    for table in [thing for thing in gc.get_objects() if type(thing) is Patterns]:
        for name in table.rows:
            _ = table[name]
    for section in phase.sections():
        phase.phase_table(section)
    for row in schema.shipped():
        _ = row.traced, row.printed
    return [thing for thing in gc.get_objects() if type(thing) is Expression]


def table_text() -> str:
    """The text of the table as it should be."""
    rows = {key_of(e.pattern, e.flags): literals_of(e.pattern, e.flags) for e in expressions()}
    lines = (f"{json.dumps(key)}: {json.dumps(literals, ensure_ascii=False)}" for key, literals in sorted(rows.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(arguments: list[str]) -> int:
    """Write it, or with ``--check`` tell by the exit status whether it is current."""
    if arguments == ["--check"]:
        return int(TABLE.read_text(encoding="utf-8") != table_text())
    TABLE.write_text(table_text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
