"""Check the files of signs: every row by the schema and by its own examples."""

from __future__ import annotations

from oomdoc.intake.signs.schema import read_rows

if __name__ == "__main__":
    read_rows()
