"""In how many public threads each expression of reading says something, by reading them and counting.

    python bench/pattern_support.py LABELLED.jsonl ... [--write]

Each line of a file holds ``report`` (or ``text``) and ``id`` or ``url``; the symptoms of ``cases/`` count too, with the
case as the thread. An expression counts where a search of the reader itself found it, so that one that is tried behind
a number counts only there. ``--write`` puts the counts into the third column of the tables, but for rows that name the
program or the notation behind them. Rows that nothing shows are printed last.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from oomdoc.intake import patterns, read_text
from oomdoc.intake.asked import asked_of
from oomdoc.intake.sieve import sieve

ROOT = Path(__file__).resolve().parent.parent
INTAKE = Path(patterns.__file__).parent
seen: dict[tuple[str, int], set[str]] = defaultdict(set)
thread = ""


class Counting:
    """A compiled expression that notes the thread of every match."""

    def __init__(self, expression: re.Pattern[str]) -> None:
        self.expression = expression

    def __getattr__(self, name: str) -> Any:
        made = getattr(self.expression, name)
        if name not in ("search", "match", "fullmatch", "finditer", "findall", "split", "sub"):
            return made

        def call(*args: Any, **more: Any) -> Any:
            out = made(*args, **more)
            hit = out
            if name == "finditer":
                out = list(out)
                hit = out
                out = iter(out)
            elif name in ("split", "sub"):
                hit = self.expression.search(args[0] if name == "split" else args[1])
            if hit:
                seen[self.expression.pattern, self.expression.flags & ~re.UNICODE].add(thread)
            return out

        return call


def texts(files: list[Path]) -> Iterator[tuple[str, str]]:
    """Thread and text."""
    for file in files:
        for number, line in enumerate(file.read_text("utf-8").splitlines()):
            row = json.loads(line)
            yield str(row.get("url") or row.get("id") or f"{file.name}:{number}"), row.get("report") or row["text"]
    for path in sorted((ROOT / "cases").glob("*/*.yaml")):
        for symptom in yaml.safe_load(path.read_text("utf-8")).get("symptoms", ()):
            yield path.stem, symptom if isinstance(symptom, str) else str(symptom.get("text", ""))


def main() -> None:
    """Count, print, and write where that is asked for."""
    global thread
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()

    def compiled(self: Any) -> Any:
        if self._compiled is None:
            self._compiled = Counting(re.compile(self.pattern, self.flags))
        return self._compiled

    sieve.Expression.compiled = compiled  # type: ignore[method-assign]
    for thread, text in texts(chosen.files):  # noqa: B007 (read by the counting expressions)
        evidence = read_text(text)
        asked_of(evidence)
        asked_of(evidence, failed=True)
    for path in sorted(INTAKE.rglob("*.tsv")):
        _counted(path, write=chosen.write)


def _counted(path: Path, *, write: bool) -> None:
    module = __import__("oomdoc.intake." + ".".join(path.relative_to(INTAKE).with_suffix("").parts), fromlist=["_RE"])
    table = module._RE if hasattr(module, "_RE") else module.ROWS
    counts = {row.name: len(seen[row.pattern, row.flags]) for row in table.rows.values()}
    for name, count in counts.items():
        print(f"{path.relative_to(INTAKE)}\t{name}\t{count}")
    if write:
        out = []
        for line in path.read_text("utf-8").split("\n"):
            columns = line.split("\t")
            if len(columns) == 4 and columns[0] in counts and re.fullmatch(r"\?|\d+ threads", columns[2]):
                columns[2] = f"{counts[columns[0]]} threads"
            out.append("\t".join(columns))
        path.write_text("\n".join(out), "utf-8")


if __name__ == "__main__":
    main()
