"""Tables of expressions: one ``<module>.tsv`` beside a module, read and checked here, compiled when first used.

A row has four columns, parted by tabs: the name, the flags (``i`` in any case, ``a`` ASCII classes, ``m`` lines, or
``-``), who vouches for it (``program: file`` that prints it, ``format`` of a notation, or ``N threads``: public ones of
the development data that show it, counted by ``bench/pattern_support.py``), and the expression. A row without a name
continues the one before. ``part`` as the flags marks a piece that other rows take in as ``<<name>>``. A name with a
dot belongs to a group (:meth:`Patterns.group`). Lines that begin with ``#`` are comments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from oomdoc.intake.sieve import Expression
from oomkb.dataclass import dataclass

_FLAGS: Final = {"i": re.IGNORECASE, "a": re.ASCII, "m": re.MULTILINE, "-": re.NOFLAG}
_NAME: Final = re.compile(r"[a-z0-9_]{1,40}(?:\.[\w.+:-]{1,40})?")
_REFERENCE: Final = re.compile(r"<<([a-z0-9_]{1,40})>>")


@dataclass(frozen=True, slots=True)
class Row:
    """One expression as it is written, its pieces filled in."""

    name: str
    flags: int
    witness: str
    pattern: str


class Patterns(dict[str, Expression]):
    """The table of one module: ``table["name"]`` is the expression, made when it is first asked for."""

    def __init__(self, path: Path, given: Mapping[str, str]) -> None:
        super().__init__()
        self._path, self._given = path, given
        self._groups: dict[str, Mapping[str, Expression]] = {}

    @cached_property
    def rows(self) -> dict[str, Row]:
        """Every row by its name, in the order of the file.

        :raises ValueError: where a line breaks the schema; names file and line.
        """
        written: list[list[str]] = []
        for number, line in enumerate(self._path.read_text(encoding="utf-8").split("\n"), start=1):
            if not line or line.startswith("#"):
                continue
            columns = line.split("\t")
            if len(columns) != 4 or not columns[3]:
                raise ValueError(f"{self._path.name}:{number}: a row has four columns")
            if columns[0]:
                if _NAME.fullmatch(columns[0]) is None or not (
                    columns[1] == "part" or set(columns[1]) <= _FLAGS.keys()
                ):
                    raise ValueError(f"{self._path.name}:{number}: not a name or not flags: {columns[:2]}")
                written.append(columns)
            elif written:
                written[-1][3] += columns[3]
        parts, out = dict(self._given), {}
        for name, flags, witness, text in written:
            pattern = _REFERENCE.sub(lambda found: parts[found[1]], text)
            if flags == "part":
                parts[name] = pattern
                continue
            if name in out:
                raise ValueError(f"{self._path.name}: {name} stands there twice")
            out[name] = Row(name, sum(_FLAGS[letter] for letter in flags), witness, pattern)
        return out

    def __missing__(self, name: str) -> Expression:
        row = self.rows[name]
        found = self[name] = Expression(row.pattern, row.flags)
        return found

    def group(self, prefix: str) -> Mapping[str, Expression]:
        """The rows ``<prefix>.<key>`` by their keys, in order."""
        if prefix not in self._groups:
            names = [name for name in self.rows if name.startswith(f"{prefix}.")]
            self._groups[prefix] = {name.partition(".")[2]: self[name] for name in names}
        return self._groups[prefix]


def patterns(module_file: str, **parts: str) -> Patterns:
    """The table beside a module.

    :param parts: pieces that other modules define, by the names under which rows take them in.
    """
    return Patterns(Path(module_file).with_suffix(".tsv"), parts)
