"""Microseconds an estimate takes in process: the first of its kind, its next sizes, and all later ones.

usage: python bench/speed_memory.py [TRACES.jsonl]
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from oomkb.memory.job import Job
from oomkb.memory.model import estimate
from oomkb.memory.shape import ModelShape

DEFAULT = Path(__file__).parent.parent / "tests" / "kb" / "memory" / "data" / "traces.jsonl"


def _seconds(jobs: list[tuple[Job, ModelShape]], sizes: tuple[tuple[int, int], ...]) -> float:
    """Processor seconds an estimate, for each job at each micro-batch and length."""
    changed = [(job.with_fields({"micro_batch": b, "seq_len": s}), shape) for job, shape in jobs for b, s in sizes]
    started = time.process_time()
    for job, shape in changed:
        estimate(job, shape)
    return (time.process_time() - started) / len(changed)


def main() -> int:
    """Print the figures: what is played once is read off its forms first, and compiled when it is asked for again."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    jobs = [(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"])) for row in rows]
    started = time.process_time()
    for job, shape in jobs:
        estimate(job, shape)
    first = (time.process_time() - started) / len(jobs)
    second = _seconds(jobs, ((1, 777), (3, 3333)))
    later = _seconds(jobs, ((2, 2048), (4, 1024), (1, 5000), (6, 640)))
    print(
        f"{len(jobs)} jobs: first of its kind {1e3 * first:.2f} ms, the second and third size {1e6 * second:.0f} us, "
        f"every later one {1e6 * later:.0f} us"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
