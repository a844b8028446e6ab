"""How much `oomdoc run` costs a command that prints 100,000 lines a second.

The command prints at a fixed pace for some seconds, alone and under `oomdoc run`; both times are taken in one run, in
turn, and compared as a ratio, less what starting the wrapper takes. Also the processor time of the wrapper itself (its
own start-up taken off), and what the command's own processor time grew by: that is what a pipe does to it. Two ways of
printing: whole blocks, as a redirected program does, and a flush after each line.

    python bench/run_overhead.py --seconds 5 --repeats 3
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

PRINTER = """
import resource, sys, time
lines, pace, block = {lines}, {pace}, {block}
write, flush = sys.stdout.write, sys.stdout.flush
line = "[rank0] step 123456 loss 2.3456 lr 1e-05 tokens/s 12345.6\\n"
started = time.perf_counter()
for first in range(0, lines, 1000):
    for _ in range(1000 // block):
        write(line * block)
        flush()
    ahead = started + (first + 1000) / pace - time.perf_counter()
    if ahead > 0:
        time.sleep(ahead)
took = time.perf_counter() - started
used = resource.getrusage(resource.RUSAGE_SELF)
print(took, used.ru_utime + used.ru_stime, file=open({report!r}, "w"))
"""


def timed(command: list[str], report: str = "") -> tuple[float, float, float]:
    """Seconds that the printing took, processor seconds of the command, and of everything."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    everything = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if not report:
        return 0.0, 0.0, everything
    took, own = map(float, Path(report).read_text().split())
    return took, own, everything


def compare(name: str, block: int, given: argparse.Namespace, report: str) -> None:
    lines = int(given.seconds * given.pace) // 1000 * 1000
    script = PRINTER.format(lines=lines, pace=given.pace, block=block, report=report)
    plain = [sys.executable, "-c", script]
    oomdoc = [sys.executable, "-m", "oomdoc", "run", "--"]
    idle = statistics.median(timed([*oomdoc, sys.executable, "-c", "pass"])[2] for _ in range(3)) - statistics.median(
        timed([sys.executable, "-c", "pass"])[2] for _ in range(3)
    )
    ratios, wrapper, command = [], [], []
    for _ in range(given.repeats):
        alone, alone_own, _ = timed(plain, report)
        under, under_own, under_all = timed([*oomdoc, *plain], report)
        start = timed([sys.executable, "-c", "pass"])[2]
        ratios.append(under / alone)
        wrapper.append((under_all - under_own - idle - start) / alone)
        command.append((under_own - alone_own) / alone)
    print(f"{name}, {given.pace:,} lines/s of 58 bytes for {given.seconds:g} s:")
    print(f"  time under the wrapper       {100 * (statistics.median(ratios) - 1):+.2f} %")
    print(f"  processor time of the wrapper {100 * statistics.median(wrapper):.1f} % of one core")
    print(f"  more processor time of the command {100 * statistics.median(command):+.1f} % of one core")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pace", type=int, default=100_000, help="lines a second")
    given = parser.parse_args()
    report = f"/tmp/oomdoc-overhead-{os.getpid()}"
    started = time.perf_counter()
    try:
        compare("blocks of 100 lines", 100, given, report)
        compare("a flush after each line", 1, given, report)
    finally:
        Path(report).unlink(missing_ok=True)
    print(f"took {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
