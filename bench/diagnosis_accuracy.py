"""How often the right cause comes first, and whether its probability can be believed.

usage: python bench/diagnosis_accuracy.py REPORTS.jsonl [...] [--confirmed] [--cases DIR] [--half 0|1] [--misses]
       [--fit]

Each line of REPORTS holds ``id``, ``report`` (the text), ``cause``, ``also`` (further causes that are right to name
first) and, where given, ``confirmed`` and ``url``. Printed: cause@1 and cause@3 per cause and in all, the reliability
table with the expected calibration error (ten bins of the first cause's probability), and the same for the reports
whose thread no case record cites. ``--half`` keeps one half by a hash of the id, so that rules can be written against
one and judged by the other. ``--fit`` prints the calibration error at other temperatures.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.ranking import TEMPERATURE, probabilities, scores, weigh
from oomdoc.intake import read_text

BINS = 10


@dataclass(frozen=True)
class Judged:
    """One report with the scores of all causes."""

    row: Mapping[str, Any]
    scores: Mapping[str, float]
    seconds: float

    def order(self) -> list[str]:
        """Causes, most probable first."""
        return sorted(self.scores, key=lambda cause: -self.scores[cause])

    def first(self) -> bool:
        """Whether the first cause is right."""
        return self.order()[0] in (self.row["cause"], *self.row.get("also", ()))

    def three(self) -> bool:
        """Whether the label is among the first three."""
        return self.row["cause"] in self.order()[:3]

    def sure(self, temperature: float) -> float:
        """The probability of the first cause."""
        return max(probabilities(self.scores, temperature).values())


def judge(row: Mapping[str, Any]) -> Judged:
    evidence = read_text(row["report"])
    started = time.perf_counter()
    view, *_ = view_of(evidence)
    scored = scores(weigh(view))
    return Judged(row, scored, time.perf_counter() - started)


def half(identifier: str) -> int:
    return hashlib.sha1(identifier.encode()).digest()[-1] % 2


def calibration(judged: Sequence[Judged], temperature: float) -> tuple[float, dict[int, list[float]]]:
    """Expected calibration error, and per bin: count, summed probability, right ones."""
    bins: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for item in judged:
        sure = item.sure(temperature)
        cell = bins[min(int(sure * BINS), BINS - 1)]
        cell[0] += 1
        cell[1] += sure
        cell[2] += item.first()
    error = sum(abs(cell[1] - cell[2]) for cell in bins.values()) / max(len(judged), 1)
    return error, dict(sorted(bins.items()))


def rates(judged: Sequence[Judged]) -> str:
    count = max(len(judged), 1)
    first, three = sum(j.first() for j in judged), sum(j.three() for j in judged)
    return f"{len(judged):4d} reports  cause@1 {first / count:6.1%}  cause@3 {three / count:6.1%}"


def cited(folder: Path) -> set[str]:
    text = "\n".join(p.read_text(encoding="utf-8") for p in folder.rglob("*.yaml"))
    return set(re.findall(r"https?://[^\s'\"},]{1,300}", text))


def rows_of(files: Iterable[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for f in files for line in f.read_text(encoding="utf-8").splitlines() if line.strip()]


def show(judged: Sequence[Judged], seen: set[str]) -> None:
    by: dict[str, list[Judged]] = defaultdict(list)
    for item in judged:
        by[item.row["cause"]].append(item)
    for cause, items in sorted(by.items(), key=lambda pair: -len(pair[1])):
        print(f"{cause:20s} {rates(items)}")
    print(f"{'all':20s} {rates(judged)}")
    for number in (0, 1):
        print(f"{f'half {number}':20s} {rates([j for j in judged if half(j.row['id']) == number])}")
    if seen:
        unseen = [j for j in judged if j.row.get("url") not in seen]
        print(f"{'cited by no case':20s} {rates(unseen)}")
        print(f"{'':20s} calibration error {calibration(unseen, TEMPERATURE)[0]:.3f}")
    error, bins = calibration(judged, TEMPERATURE)
    print(f"expected calibration error {error:.3f} at temperature {TEMPERATURE}")
    for number, (count, sure, right) in bins.items():
        low, high = number / BINS, (number + 1) / BINS
        print(f"  {low:.1f}-{high:.1f}  {count:4.0f} reports  said {sure / count:5.1%}  right {right / count:5.1%}")
    slowest = sorted(j.seconds for j in judged)
    middle = slowest[len(slowest) // 2] if slowest else 0.0
    print(f"median {1000 * middle:.1f} ms a report after reading, retrieval included")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--confirmed", action="store_true", help="only causes confirmed in the thread or by arithmetic")
    parser.add_argument(
        "--cases", type=Path, default=Path("cases"), help="case records, for the reports that none cites"
    )
    parser.add_argument("--half", type=int, choices=(0, 1), help="only this half of the reports")
    parser.add_argument("--misses", action="store_true", help="list the reports whose first cause is wrong")
    parser.add_argument("--fit", action="store_true", help="the calibration error at other temperatures")
    options = parser.parse_args()
    rows = rows_of(options.reports)
    if options.confirmed:
        rows = [r for r in rows if r.get("confirmed") in ("thread", "arithmetic")]
    if options.half is not None:
        rows = [r for r in rows if half(r["id"]) == options.half]
    judged = [judge(row) for row in rows]
    if options.misses:
        for item in judged:
            if not item.first():
                print(f"  {item.row['id']}: {item.row['cause']} <- {item.order()[:3]}")
    show(judged, cited(options.cases) if options.cases.is_dir() else set())
    if options.fit:
        for step in range(4, 14):
            print(f"  temperature {step / 10:.1f}: calibration error {calibration(judged, step / 10)[0]:.3f}")


if __name__ == "__main__":
    main()
