"""Read the files of signs, every row by its form; what it says of itself is checked by its tests."""

from __future__ import annotations

from oomdoc.intake.signs.schema import shipped

if __name__ == "__main__":
    shipped()
