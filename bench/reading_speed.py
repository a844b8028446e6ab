"""How long reading alone takes in a warm process, in processor milliseconds.

usage: python bench/reading_speed.py [--reports FILE.jsonl] [--repeat 15] [--profile]

Printed, each as the best of the repetitions: a report of 3 KB, a log of 20 KB whose training lines end in a failure, a
log of 20 KB in which much is said, and, with --reports ({"report" or "text": ...} a line), their mean. --profile lists
the functions that a log of 20 KB spends its time in.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
from pathlib import Path

from oomdoc.intake import read_text

EXAMPLES = Path(__file__).parents[1] / "examples"


def texts() -> dict[str, str]:
    """The texts that are measured."""
    logs = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*/train.log"))]
    longest = max(logs, key=len)
    steps = "\n".join(f"INFO step {i} loss=1.{i:04d} lr=1e-05 grad_norm=0.{i % 97}" for i in range(1000))
    told = "Training on 4 A100 80GB dies with the log below. With batch size 1 it works, with 4 it does not.\n"
    return {
        "a report of 3 KB": (told + longest + logs[0])[:3000],
        "a log of 20 KB": steps[: 20_000 - len(longest)] + "\n" + longest,
        "a varied log of 20 KB": ("\n".join(logs) * 4)[:20_000],
    }


def best_ms(text: str, repeat: int) -> float:
    """Processor milliseconds of the fastest repetition."""
    used = []
    for _ in range(repeat):
        started = time.process_time()
        read_text(text)
        used.append(time.process_time() - started)
    return 1000 * min(used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=Path)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    for name, text in texts().items():
        read_text(text)
        print(f"{name:24s} {len(text):7,} characters {best_ms(text, options.repeat):7.2f} ms")
    if options.reports is not None:
        rows = [json.loads(line) for line in options.reports.read_text(encoding="utf-8").splitlines() if line.strip()]
        reports = [str(row.get("report") or row.get("text") or "") for row in rows]
        spent = sum(best_ms(report, 3) for report in reports) / len(reports)
        mean = sum(map(len, reports)) // len(reports)
        print(f"{'mean of the reports':24s} {mean:7,} characters {spent:7.2f} ms")
    if options.profile:
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(options.repeat):
            read_text(texts()["a log of 20 KB"])
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
