"""How often the right cause comes first in the answer, and whether its probability can be believed.

usage: python bench/diagnosis_accuracy.py [REPORTS.jsonl ...] [--cases-as-reports] [--confirmed] [--cases DIR]
       [--half 0|1] [--misses] [--record NAME]

Judged is what an answer shows: the ranker's causes with what printed figures prove or rule out, and with the verdict; a
report that is taken for no failure names no cause.

Each line of REPORTS holds ``id``, ``report`` (the text), ``cause``, ``also`` (further causes that are right to name
first) and, where given, ``confirmed`` and ``url``. Printed: how often an accepted cause (the label or a further one) is
first and among three, how often the label itself is, per cause and in all, and the reliability
table with the expected calibration error (ten bins of the first cause's probability), and the same for the reports
whose thread no case record cites.

``--cases-as-reports`` judges the case records themselves: the symptoms, hardware, framework and settings of each are
given as a report, while the case and every other case that cites one of its threads is hidden from retrieval and from
the known version ranges. That is what a report of a thread nobody has read yet meets. REPORTS, where given, name the
threads whose cases are left out.

Threads that the package's table of known threads or a case holds are training figures: the line "neither cited nor
known" leaves them out. ``--half`` keeps one half by a hash of the thread. ``--record`` writes the figures under this
name into ``bench/results/diagnosis.json``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomdoc.diagnosis.engine import causes_of
from oomdoc.intake import read_text
from oomkb.records.case import Case
from oomkb.records.loader import load_cases
from oomkb.retrieval.threads import shipped

BINS = 10
RESULTS = Path(__file__).parent / "results" / "diagnosis.json"


@dataclass(frozen=True)
class Judged:
    """One report with the probabilities of all causes."""

    row: Mapping[str, Any]
    chances: Mapping[str, float]
    """Cause -> probability, in the order of the answer."""
    seconds: float

    def order(self) -> list[str]:
        """Causes as the answer has them."""
        return list(self.chances)

    def first(self) -> bool:
        """Whether the first cause is right."""
        return bool({self.row["cause"], *self.row.get("also", ())} & set(self.order()[:1]))

    def three(self) -> bool:
        """Whether the label or a further accepted cause is among the first three."""
        return bool({self.row["cause"], *self.row.get("also", ())} & set(self.order()[:3]))

    def strict(self, most: int) -> bool:
        """Whether the label itself is among the first ``most``."""
        return self.row["cause"] in self.order()[:most]

    def sure(self) -> float:
        """The probability of the first cause."""
        return next(iter(self.chances.values()), 0.0)


def judge(row: Mapping[str, Any]) -> Judged:
    evidence = read_text(row["report"])
    started = time.perf_counter()
    found = causes_of(evidence, hidden=row.get("hidden", ()))
    return Judged(row, {c.cause: c.probability for c in found}, time.perf_counter() - started)


def half(row: Mapping[str, Any]) -> int:
    """Which half a row is in: all that tells of one thread is on the same side."""
    return hashlib.sha1(str(row.get("url") or row["id"]).encode()).digest()[-1] % 2


def calibration(judged: Sequence[Judged]) -> tuple[float, dict[int, list[float]]]:
    """Expected calibration error, and per bin: count, summed probability, right ones."""
    bins: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for item in judged:
        sure = item.sure()
        cell = bins[min(int(sure * BINS), BINS - 1)]
        cell[0] += 1
        cell[1] += sure
        cell[2] += item.first()
    error = sum(abs(cell[1] - cell[2]) for cell in bins.values()) / max(len(judged), 1)
    return error, dict(sorted(bins.items()))


def rates(judged: Sequence[Judged]) -> str:
    count = max(len(judged), 1)
    first, three = sum(j.first() for j in judged), sum(j.three() for j in judged)
    one, among = sum(j.strict(1) for j in judged), sum(j.strict(3) for j in judged)
    return (
        f"{len(judged):4d} reports  cause@1 {first / count:6.1%}  cause@3 {three / count:6.1%}  "
        f"label itself {one / count:6.1%} / {among / count:6.1%}"
    )


def cited(folder: Path) -> set[str]:
    """Threads that a case cites or the table of known threads holds."""
    text = "\n".join(p.read_text(encoding="utf-8") for p in folder.rglob("*.yaml"))
    return {*re.findall(r"https?://[^\s'\"},]{1,300}", text), *shipped().urls}


def rows_of(files: Iterable[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for f in files for line in f.read_text(encoding="utf-8").splitlines() if line.strip()]


# Facts of a record in the words of a config that every reader knows.
_KEYS: Mapping[str, str] = {
    "model": "model_name_or_path",
    "micro_batch": "per_device_train_batch_size",
    "grad_accum": "gradient_accumulation_steps",
    "seq_len": "max_seq_length",
    "grad_ckpt": "gradient_checkpointing",
    "attention": "attn_implementation",
    "optimizer": "optim",
}


def rows_of_cases(left_out: Collection[str]) -> list[dict[str, Any]]:
    """Each case as a report, with the cases hidden from it that tell of the same thread."""
    cases = load_cases()
    by_thread: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        for url in threads(case):
            by_thread[url].add(case.id)
    rows = []
    for case in cases:
        mine = threads(case)
        if case.private or mine & set(left_out):
            continue
        hidden = frozenset({case.id}.union(*(by_thread[url] for url in mine)))
        row = {"id": case.id, "cause": case.cause, "also": case.also, "url": case.url, "hidden": hidden}
        rows.append({**row, "report": report_of(case)})
    return rows


def threads(case: Case) -> set[str]:
    return {r.url.partition("#")[0] for r in case.references if r.role in ("report", "evidence", "discussion", "fix")}


def report_of(case: Case) -> str:
    """The symptoms, then what the record states of machine, software and settings; not its cause, phase or remedy."""
    hardware = case.hardware
    gpu = f"{hardware.count} x {hardware.gpu}" if hardware.gpu and hardware.count else hardware.gpu
    about = [f"Framework: {', '.join(case.frameworks)}" if case.frameworks else "", f"GPU: {gpu}" if gpu else ""]
    settings = [f"{_KEYS[k]}: {v}" for k, v in (case.before or {}).items() if k in _KEYS]
    return "\n\n".join(part for part in (*case.symptoms, ". ".join(filter(None, about)), "\n".join(settings)) if part)


def show(judged: Sequence[Judged], seen: set[str]) -> None:
    by: dict[str, list[Judged]] = defaultdict(list)
    for item in judged:
        by[item.row["cause"]].append(item)
    for cause, items in sorted(by.items(), key=lambda pair: -len(pair[1])):
        print(f"{cause:20s} {rates(items)}")
    print(f"{'all':20s} {rates(judged)}")
    for number in (0, 1):
        print(f"{f'half {number}':20s} {rates([j for j in judged if half(j.row) == number])}")
    if seen:
        unseen = [j for j in judged if j.row.get("url") not in seen]
        print(f"{'neither cited nor known':20s} {rates(unseen)}")
        print(f"{'':20s} calibration error {calibration(unseen)[0]:.3f}")
    error, bins = calibration(judged)
    print(f"expected calibration error {error:.3f}")
    for number, (count, sure, right) in bins.items():
        low, high = number / BINS, (number + 1) / BINS
        print(f"  {low:.1f}-{high:.1f}  {count:4.0f} reports  said {sure / count:5.1%}  right {right / count:5.1%}")
    slowest = sorted(j.seconds for j in judged)
    middle = slowest[len(slowest) // 2] if slowest else 0.0
    print(f"median {1000 * middle:.1f} ms a report after reading, retrieval included")


def figures(judged: Sequence[Judged]) -> dict[str, Any]:
    """What is kept: counts, both rates and the calibration error."""
    count = max(len(judged), 1)
    return {
        "reports": len(judged),
        "cause_at_1": round(sum(j.first() for j in judged) / count, 3),
        "cause_at_3": round(sum(j.three() for j in judged) / count, 3),
        "label_at_1": round(sum(j.strict(1) for j in judged) / count, 3),
        "label_at_3": round(sum(j.strict(3) for j in judged) / count, 3),
        "calibration_error": round(calibration(judged)[0], 3),
    }


def record(name: str, judged: Sequence[Judged], seen: set[str]) -> None:
    """Put the figures beside those of other runs."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    by: dict[str, list[Judged]] = defaultdict(list)
    for item in judged:
        by[item.row["cause"]].append(item)
    entry: dict[str, Any] = {"all": figures(judged), "causes": {c: figures(items) for c, items in sorted(by.items())}}
    if seen:
        entry["neither_cited_nor_known"] = figures([j for j in judged if j.row.get("url") not in seen])
    kept[name] = entry
    RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="*", type=Path)
    parser.add_argument(
        "--cases-as-reports", action="store_true", help="judge the case records, each hidden from itself"
    )
    parser.add_argument("--confirmed", action="store_true", help="only causes confirmed in the thread or by arithmetic")
    parser.add_argument(
        "--cases", type=Path, default=Path("cases"), help="case records, for the reports that none cites"
    )
    parser.add_argument("--half", type=int, choices=(0, 1), help="only this half of the reports")
    parser.add_argument("--misses", action="store_true", help="list the reports whose first cause is wrong")
    parser.add_argument("--record", help="write the figures under this name into bench/results/diagnosis.json")
    options = parser.parse_args()
    rows = rows_of(options.reports)
    if options.cases_as_reports:
        rows = rows_of_cases({row.get("url", "") for row in rows})
    elif options.confirmed:
        rows = [r for r in rows if r.get("confirmed") in ("thread", "arithmetic")]
    if options.half is not None:
        rows = [r for r in rows if half(r) == options.half]
    judged = [judge(row) for row in rows]
    if options.misses:
        for item in judged:
            if not item.first():
                print(f"  {item.row['id']}: {item.row['cause']} <- {item.order()[:3]}")
    seen = cited(options.cases) if options.cases.is_dir() and not options.cases_as_reports else set()
    show(judged, seen)
    if options.record:
        record(options.record, judged, seen)


if __name__ == "__main__":
    main()
