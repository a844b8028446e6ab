"""Time the memory model in process: microseconds an estimate, first of its kind and after.

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


def main() -> int:
    """Print both figures."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    jobs = [(Job.from_document(row["job"]), ModelShape.from_config(row["job"]["model"])) for row in rows]
    started = time.process_time()
    for job, shape in jobs:
        estimate(job, shape)
    first = (time.process_time() - started) / len(jobs)
    changed = [
        (job.with_fields({"micro_batch": b, "seq_len": s}), shape)
        for job, shape in jobs
        for b, s in ((1, 777), (3, 3333))
    ]
    started = time.process_time()
    for job, shape in changed:
        estimate(job, shape)
    again = (time.process_time() - started) / len(changed)
    print(f"{len(jobs)} jobs: first of its kind {1e3 * first:.2f} ms, another batch or length {1e6 * again:.0f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
