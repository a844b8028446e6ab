"""Write ``table.json`` from the files of signs."""

from __future__ import annotations

from oomdoc.intake.signs.schema import read_rows
from oomdoc.intake.signs.table import TABLE, written

if __name__ == "__main__":
    TABLE.write_text(written(read_rows()), encoding="utf-8")
