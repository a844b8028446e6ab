"""How much `oomdoc run` costs a command that prints 100,000 lines a second.

The command prints at a fixed pace for some seconds, alone and under `oomdoc run`; both times are taken in one run, in
turn, and compared as a ratio. Also the processor time that the wrapper takes of its own.

    python bench/run_overhead.py --seconds 5 --repeats 3
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time

PRINTER = """
import sys, time
lines, pace = {lines}, {pace}
block = 1000
started = time.perf_counter()
for first in range(0, lines, block):
    sys.stdout.write("".join(f"[rank0] step {{i}} loss 2.3456 lr 1e-05 tokens/s 12345.6\\n" for i in range(first, first + block)))
    ahead = started + (first + block) / pace - time.perf_counter()
    if ahead > 0:
        time.sleep(ahead)
"""


def timed(command: list[str]) -> tuple[float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with open("/dev/null", "w") as null:
        subprocess.run(command, stdout=null, check=True)
    took = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pace", type=int, default=100_000, help="lines a second")
    given = parser.parse_args()
    script = PRINTER.format(lines=int(given.seconds * given.pace) // 1000 * 1000, pace=given.pace)
    plain = [sys.executable, "-c", script]
    wrapped = [sys.executable, "-m", "oomdoc", "run", "--", *plain]
    empty = [sys.executable, "-m", "oomdoc", "run", "--", sys.executable, "-c", "pass"]
    start_up = statistics.median(timed(empty)[0] for _ in range(3)) - statistics.median(
        timed([sys.executable, "-c", "pass"])[0] for _ in range(3)
    )
    ratios, cpu = [], []
    for _ in range(given.repeats):
        alone, alone_cpu = timed(plain)
        under, under_cpu = timed(wrapped)
        ratios.append((under - start_up) / alone)
        cpu.append((under_cpu - alone_cpu) / alone)
    print(f"start-up of the wrapper: {start_up:.2f} s, once")
    print(f"time under the wrapper: {100 * (statistics.median(ratios) - 1):+.2f} % at {given.pace:,} lines/s")
    print(f"processor time of the wrapper: {100 * statistics.median(cpu):.1f} % of one core")


if __name__ == "__main__":
    main()
