"""How far the memory model is from measured peaks.

    python bench/memory_accuracy.py tests/kb/memory/data/traces.jsonl [more.jsonl ...] [--worst 5]

Each line holds {"id", "job", "measured": {"allocated_gib" | "reserved_gib" | "process_gib": ...}}, as `bench/trace.py`
and `bench/measure_gpu.py` print them. The first meter that is present is compared with the same meter of the estimate;
a job that is refused counts as 100 % off.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from oomkb.errors import OomdocError
from oomkb.memory.estimate import METERS
from oomkb.memory.job import Job
from oomkb.pricing import price
from oomkb.units import GIB


def compare(row: dict) -> tuple[float, bool | None]:
    """Relative error, and whether the interval holds the measured figure."""
    meter = next(m for m in METERS if row["measured"].get(f"{m}_gib") is not None)
    real = float(row["measured"][f"{meter}_gib"]) * GIB
    try:
        estimate = price(Job.from_document(row["job"])).estimate
    except OomdocError:
        return -1.0, False
    interval = estimate.intervals.get(meter)
    inside = None if interval is None else interval.low_bytes <= real <= interval.high_bytes
    return getattr(estimate, f"{meter}_bytes") / real - 1, inside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--worst", type=int, default=5, help="how many of the worst rows to print")
    given = parser.parse_args()
    for file in given.files:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        found = sorted(((*compare(row), row["id"]) for row in rows), key=lambda item: -abs(item[0]))
        for error, _, name in found[: given.worst]:
            print(f"  {error:+8.2%}  {name}")
        errors = [abs(error) for error, _, _ in found]
        inside = [held for _, held, _ in found if held is not None]
        print(
            f"{file.name}: {len(rows)} rows, mean {100 * statistics.mean(errors):.2f} %, median "
            f"{100 * statistics.median(errors):.2f} %, worst {100 * max(errors):.2f} %, "
            f"interval holds {sum(inside)}/{len(inside)}"
        )


if __name__ == "__main__":
    main()
